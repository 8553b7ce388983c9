"""Root causes: reduce a graph of waiting objects to the few that everything else waits for.

A cause waits for nothing, or is a cycle of objects that wait for each other. The objects that it blocks form a tree
below it, nearest first. An object with several causes appears once, below the first, so the trees together are no
larger than the set of objects that are not ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rota.engine.cycles import shortest_cycle

WaitsFor = Callable[[str], Iterable[str]]
Edges = Mapping[str, Sequence[str]]


class Branch(NamedTuple):
    """A blocked object, and the object that blocks it."""

    id: str
    by: str
    depth: int


class Tree(NamedTuple):
    """A cause, and everything that it blocks."""

    roots: tuple[str, ...]
    """One id; of a cycle all ids, with the first repeated at the end."""
    branches: list[Branch]
    """From the root downwards, each directly below its blocker. The members of a cycle are branches, too."""

    @property
    def is_circle(self) -> bool:
        return len(self.roots) > 1


def trees(unready: Iterable[str], waits_for: WaitsFor) -> list[Tree]:
    """Return the causes, in the order of the objects that they block."""
    causes = _all_causes(unready, waits_for)
    waiters: dict[str, list[str]] = {id_: [] for id_ in causes}
    for id_, because in causes.items():
        for one in because:
            waiters[one].append(id_)
    place = {id_: n for n, id_ in enumerate(causes)}
    parts = [part for part in _components(causes, waiters) if len(part) > 1 or not causes[part[0]]]
    parts.sort(key=lambda part: (min(place[one] for id_ in part for one in (id_, *waiters[id_])), min(part)))
    claimed = {id_ for part in parts for id_ in part}
    return [_tree(sorted(part, key=place.__getitem__), causes, waiters, claimed) for part in parts]


def _all_causes(unready: Iterable[str], waits_for: WaitsFor) -> dict[str, tuple[str, ...]]:
    """Return every object that is waited for, directly or not, with what it waits for itself."""
    coming = list(dict.fromkeys(unready))
    known = set(coming)
    causes: dict[str, tuple[str, ...]] = {}
    for id_ in coming:
        causes[id_] = tuple(one for one in dict.fromkeys(waits_for(id_)) if one != id_)
        for one in causes[id_]:
            if one not in known:
                known.add(one)
                coming.append(one)
    return causes


def _components(causes: Edges, waiters: Edges) -> Iterator[list[str]]:
    """Yield the strongly connected components."""
    assigned: set[str] = set()
    for start in reversed(_in_finish_order(causes)):
        if start in assigned:
            continue
        part = [start]
        assigned.add(start)
        for id_ in part:
            for one in waiters[id_]:
                if one not in assigned:
                    assigned.add(one)
                    part.append(one)
        yield part


def _in_finish_order(causes: Edges) -> list[str]:
    """Return all ids, each after everything that it waits for, except within cycles."""
    entered: set[str] = set()
    out: list[str] = []
    for start in causes:
        if start in entered:
            continue
        entered.add(start)
        work = [(start, iter(causes[start]))]
        while work:
            id_, rest = work[-1]
            to = next((one for one in rest if one not in entered), None)
            if to is None:
                work.pop()
                out.append(id_)
            else:
                entered.add(to)
                work.append((to, iter(causes[to])))
    return out


def _tree(part: list[str], causes: Edges, waiters: Edges, claimed: set[str]) -> Tree:
    members = set(part)
    roots = shortest_cycle(part[0], lambda at: (one for one in causes[at] if one in members)) or tuple(part)
    below: dict[str, list[str]] = {}
    around = list(dict.fromkeys((*roots, *part)))
    nearest = list(around)
    for id_ in nearest:
        for one in waiters[id_]:
            if one not in claimed:
                claimed.add(one)
                below.setdefault(id_, []).append(one)
                nearest.append(one)
    if len(part) > 1:
        first = [Branch(id_, "", 0) for id_ in around]
    else:
        first = [Branch(id_, part[0], 0) for id_ in below.get(part[0], ())]
    branches: list[Branch] = []
    work = first[::-1]
    while work:
        branch = work.pop()
        branches.append(branch)
        work += [Branch(one, branch.id, branch.depth + 1) for one in reversed(below.get(branch.id, ()))]
    return Tree(roots, branches)
