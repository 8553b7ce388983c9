"""Cycles in a graph, which is given as a function from a node to its successors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

N = TypeVar("N")

CYCLE_NODES_MAX = 1_000
"""Bound on the nodes visited in the search for one cycle."""


def sink_cycles(nodes: Collection[N], edges: Callable[[N], Iterable[N]]) -> list[list[N]]:
    """Return the strongly connected components that have a cycle and no edge out of them.

    If every node has a successor, there is at least one.
    """
    number: dict[N, int] = {}
    low: dict[N, int] = {}
    on_stack: dict[N, bool] = {}
    stack: list[N] = []
    found: list[list[N]] = []
    part_of: dict[N, int] = {}
    parts = 0
    for root in nodes:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack[root] = True
        work = [(root, iter(list(edges(root))))]
        while work:
            node, rest = work[-1]
            for to in rest:
                if to not in number:
                    number[to] = low[to] = len(number)
                    stack.append(to)
                    on_stack[to] = True
                    work.append((to, iter(list(edges(to)))))
                    break
                if on_stack[to]:
                    low[node] = min(low[node], number[to])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == number[node]:
                    part: list[N] = []
                    while True:
                        member = stack.pop()
                        on_stack[member] = False
                        part_of[member] = parts
                        part.append(member)
                        if member is node or member == node:
                            break
                    inside = all(part_of[to] == parts for member in part for to in edges(member))
                    cyclic = len(part) > 1 or any(to == node for to in edges(node))
                    if inside and cyclic:
                        found.append(part)
                    parts += 1
    return found


def shortest_cycle(start: N, edges: Callable[[N], Iterable[N]]) -> tuple[N, ...] | None:
    """Return the shortest cycle through a node, both ends included; None if none is found within the bound."""
    came_from: dict[N, N] = {}
    queue = deque([start])
    while queue and len(came_from) < CYCLE_NODES_MAX:
        node = queue.popleft()
        for to in edges(node):
            if to == start:
                path = [start, node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return tuple(reversed(path)) if node != start else (start, start)
            if to not in came_from:
                came_from[to] = node
                queue.append(to)
    return None
