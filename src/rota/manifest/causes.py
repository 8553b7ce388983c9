"""From what is not ready, and what each of it waits for, to the few causes at the bottom.

A cause is something that waits for nothing, or some that wait for each other in a circle. Everything that it holds up
hangs below it as a tree, nearest first. What is held up by several causes hangs below the first of them, once: so the
whole is no larger than what is not ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rota.engine.paths import shortest_cycle

WaitsFor = Callable[[str], Iterable[str]]
Edges = Mapping[str, Sequence[str]]


class Branch(NamedTuple):
    """One that is held up, and by which."""

    id: str
    by: str
    depth: int


class Tree(NamedTuple):
    """A cause, and all that it holds up."""

    roots: tuple[str, ...]
    """One; or several, which wait for each other in a circle, the first one again at the end."""
    branches: list[Branch]
    """From the root downwards, each right below the one that holds it up. Those of a circle are branches themselves."""

    @property
    def is_circle(self) -> bool:
        return len(self.roots) > 1


def trees(unready: Iterable[str], waits_for: WaitsFor) -> list[Tree]:
    """The causes, in the order of what they hold up."""
    causes = _closure(unready, waits_for)
    waiters: dict[str, list[str]] = {id_: [] for id_ in causes}
    for id_, because in causes.items():
        for one in because:
            waiters[one].append(id_)
    place = {id_: n for n, id_ in enumerate(causes)}
    parts = [part for part in _parts(causes, waiters) if len(part) > 1 or not causes[part[0]]]
    parts.sort(key=lambda part: (min(place[one] for id_ in part for one in (id_, *waiters[id_])), min(part)))
    claimed = {id_ for part in parts for id_ in part}
    return [_tree(sorted(part, key=place.__getitem__), causes, waiters, claimed) for part in parts]


def _closure(unready: Iterable[str], waits_for: WaitsFor) -> dict[str, tuple[str, ...]]:
    """Everything that is waited for, however far away, and what each waits for itself."""
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


def _parts(causes: Edges, waiters: Edges) -> Iterator[list[str]]:
    """The strongly connected parts: each on its own, or those that wait for each other."""
    assigned: set[str] = set()
    for start in reversed(_by_end(causes)):
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


def _by_end(causes: Edges) -> list[str]:
    """All, each after everything that it waits for, circles aside."""
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
