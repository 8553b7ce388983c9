"""The index of waiting nodes by the id that they wait for.

Most ids have one waiter, some a few, and a few very many, any of which may be removed.
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.engine.node import Node

FEW_WAITERS = 16
"""Bound on the waiters of one id in a list; more are kept in a dict."""

Waiters = Node | list[Node] | dict[Node, None]
Index = dict[str, Waiters]


def once(ids: Iterable[str]) -> tuple[str, ...]:
    """Return ids without duplicates, in order."""
    found = tuple(ids)
    return found if len(found) < 2 or len(set(found)) == len(found) else tuple(dict.fromkeys(found))


def add(index: Index, id_: str, node: Node) -> None:
    there = index.get(id_)
    if there is None:
        index[id_] = node
    elif type(there) is list:
        there.append(node)
    elif type(there) is dict:
        there[node] = None
    else:
        index[id_] = [there, node]  # type: ignore[list-item]


def remove(index: Index, id_: str, node: Node) -> None:
    there = index.get(id_)
    if there is node:
        del index[id_]
        return
    if type(there) is list:
        if len(there) <= FEW_WAITERS:
            if node in there:
                there.remove(node)
        else:
            there = index[id_] = dict.fromkeys(there)
    if type(there) is dict:
        there.pop(node, None)
    if not there and there is not None:
        del index[id_]


def has(index: Index, id_: str, node: Node) -> bool:
    there = index.get(id_)
    return there is node or (type(there) in (list, dict) and node in there)  # type: ignore[operator]
