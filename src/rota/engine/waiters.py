"""The index of waiting nodes by the id that they wait for.

Most ids have one waiter, some a few, and a few very many, any of which may be removed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from rota.engine.node import FAILED, PARKED, Node

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


class Waits:
    """Two indexes by id: the nodes that wait for an id, and the nodes that failed because of it."""

    def __init__(self) -> None:
        self.waiting: Index = {}
        """By awaited id, the nodes parked under it."""
        self.recovering: Index = {}
        """By id, the nodes that failed because of it."""
        self.parked = 0
        self._contents: dict[str, Hashable] = {}
        """By id, the content of awaited data."""

    def awaited(self, node: Node) -> list[str]:
        """Return the ids that a node still waits for."""
        if not node.left:
            return sorted(node.on)
        return sorted(id_ for id_ in node.on if has(self.waiting, id_, node))

    def _let_go_if_partly(self, node: Node) -> None:
        """Remove a node that waits for all of several ids from the index, where only the missing ones have it."""
        if node.left:
            node.left = 0
            self._let_go(node)

    def _let_go(self, node: Node) -> None:
        """Remove a node from the index of waits."""
        index = self.recovering if node.state == FAILED else self.waiting
        for id_ in node.on:
            self._drop(index, id_, node)
        node.on = ()

    def _drop(self, index: Index, id_: str, node: Node) -> None:
        remove(index, id_, node)
        if self._contents and id_ not in self.waiting and id_ not in self.recovering:
            self._contents.pop(id_, None)

    def _park_under(self, node: Node, on: tuple[str, ...]) -> None:
        before = node.on
        if before != on:
            if before:
                wanted, had = frozenset(on), frozenset(before)
                for id_ in before:
                    if id_ not in wanted:
                        self._drop(self.waiting, id_, node)
                for id_ in on:
                    if id_ not in had:
                        add(self.waiting, id_, node)
            else:
                for id_ in on:
                    add(self.waiting, id_, node)
            node.on = on
        node.state = PARKED
        self.parked += 1
