"""The end of a run to the fixpoint: reruns, and nodes that fail because nothing can advance them any more.

When nothing runs and nothing can, `drain` reruns the nodes that read everything (see `reruns`). If there are none, it
raises the drain level of the parked nodes whose needs cannot advance. If there are none of these either, it raises the
level of the nodes that wait for each other in a cycle.

It ends: each call raises a level, a level falls only when its node ends, and a node that has ended runs again only at
the cost of its own budget, or because of what another one emits at the cost of its budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rota.engine.core import Core
from rota.engine.cycles import shortest_cycle, sink_cycles
from rota.engine.node import FORCE, PARKED, Node


def drain(core: Core) -> bool:
    """Make nodes runnable that must rerun or fail, once nothing runs and nothing can. Returns False at the end."""
    assert not core.running and not core.queued and not core.sleeping
    return _rerun(core) or (core.parked > 0 and _escalate(core))


def _rerun(core: Core) -> bool:
    if core.reruns is not None:
        for node, charge in core.reruns.due():
            core.enqueue(node, charge=charge)
    return core.queued > 0


def _escalate(core: Core) -> bool:
    """Raise the level of the nodes whose needs cannot advance; if there are none, of those in cycles."""
    parked = sorted((node for node in core.nodes.values() if core.is_hopeful(node)), key=lambda node: node.id)
    leaves = [node for node in parked if not any(map(core.pending, core.awaited(node)))]
    for node in leaves:
        core.raise_level(node, node.level + 1)
    if not leaves:

        def awaited(node: Node) -> Iterable[Node]:
            return [core.nodes[id_] for id_ in core.awaited(node) if core.pending(id_)]

        for part in sink_cycles(parked, awaited):
            members = frozenset(node.id for node in part)
            for node in sorted(part, key=lambda node: node.id):
                core.forced[node.id] = members.intersection(node.on)
                core.raise_level(node, FORCE)
    return core.queued > 0


def cycle(core: Core, id_: str) -> tuple[str, ...] | None:
    """Return the shortest cycle of waits through a node, now or when it was forced."""

    def edges(at: str) -> Any:
        if at in core.forced:
            return sorted(core.forced[at])
        node = core.nodes.get(at)
        return core.awaited(node) if node is not None and node.state == PARKED else ()

    return shortest_cycle(id_, edges)
