"""Who waits for what, by what is waited for.

Most ids have one waiter, some a few, and a few very many, of which any may have to be taken out.
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.engine.node import Node

FEW_WAITERS = 16
"""Waiters of one id that are kept in a list."""

Waiters = Node | list[Node] | dict[Node, None]
Index = dict[str, Waiters]


def once(ids: Iterable[str]) -> tuple[str, ...]:
    """Each of them once, in order."""
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
