"""Why something is not ready: the chain from an object to what it waits for, from the engine's own state.

Exact, because it is read from the parking index and not guessed from texts; bounded in depth and breadth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from rota.api import Kind, Object
from rota.engine.outcome import Blocked, Failed, RequeueAfter
from rota.engine.references import Graph, kind_of, shown
from rota.engine.view import NodeView, View

DEPTH_MAX = 32
"""Steps of a chain that are followed."""
CAUSES_MAX = 20
"""Causes that are shown of one step."""

State = Literal["Ready", "Pending", "Failed", "Skipped", "Absent", "Deleting"]


class ConditionSeen(Struct, frozen=True, rename="camel"):
    """A condition of an object."""

    type: str
    status: str
    reason: str
    message: str
    since: str
    """When its status last changed, as RFC 3339; empty when that is not known."""


class Step(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One object of the chain, and what it waits for."""

    id: str
    """The node: `bucket/namespace/name`."""
    name: str
    """As people write it: `Task/name`."""
    state: State
    reason: str = ""
    message: str = ""
    field: str = ""
    """The field of the object before that refers to this one."""
    created: str = ""
    engine: str = ""
    """What the engine does with it: runnable, running, parked, sleeping, done, failed; empty: nothing."""
    waiting_seconds: float | None = None
    """For how long it is parked or sleeps."""
    again_seconds: float | None = None
    """In how many seconds it is looked at again even if nothing happens."""
    conditions: list[ConditionSeen] = []
    causes: list[Step] = []
    """What it waits for, or failed because of."""
    more_causes: int = 0
    """How many further causes there are."""
    seen_above: bool = False
    """It is explained further up: the chain is a circle, or two chains meet."""


class Why(Struct, frozen=True, rename="camel"):
    """An explanation."""

    step: Step
    root: Step
    """What is at the bottom of it."""
    advice: str
    """The one thing to do next; empty when nothing is wrong."""


def explain(
    id_: str,
    *,
    find: Callable[[Kind, str, str], Object | None],
    view: View,
    graph: Graph,
    now: float,
) -> Why:
    """The chain from an object down to what is at the bottom of it. `now` is the time of the engine's clock."""
    step = _Explanation(find, view, graph, now).step(id_, "", 0)
    root = _root(step)
    return Why(step, root, _advice(root))


class _Explanation:
    def __init__(self, find: Callable[[Kind, str, str], Object | None], view: View, graph: Graph, now: float) -> None:
        self._find = find
        self._view = view
        self._graph = graph
        self._now = now
        self._seen: set[str] = set()

    def step(self, id_: str, field: str, depth: int) -> Step:
        obj = self._object(id_)
        node = self._view.get(id_)
        state, reason, message = self._state(id_, obj, node)
        again = node.due - self._now if node is not None and node.due is not None else None
        waits = node is not None and node.state in ("parked", "sleeping")
        first = id_ not in self._seen
        self._seen.add(id_)
        causes = self._causes(id_, node, state) if first and depth < DEPTH_MAX else []
        fields = {edge.target: edge.path for edge in self._graph.references(id_)}
        return Step(
            id_,
            shown(id_),
            state,
            reason,
            message,
            field,
            created=_written(obj.metadata.creation_timestamp) if obj is not None else "",
            engine=node.state if node is not None else "",
            waiting_seconds=max(0.0, self._now - node.since) if waits and node is not None else None,
            again_seconds=max(0.0, again) if again is not None else None,
            conditions=_conditions(obj),
            causes=[self.step(one, fields.get(one, ""), depth + 1) for one in causes[:CAUSES_MAX]],
            more_causes=max(0, len(causes) - CAUSES_MAX),
            seen_above=not first,
        )

    def _object(self, id_: str) -> Object | None:
        kind = kind_of(id_)
        if kind is None:
            return None
        _, namespace, name = id_.split("/", 2)
        return self._find(kind, namespace, name)

    def _state(self, id_: str, obj: Object | None, node: NodeView | None) -> tuple[State, str, str]:
        if obj is None:
            return "Absent", "NotFound", "not found"
        readiness = obj.readiness()
        if obj.metadata.deletion_timestamp is not None:
            holders = ", ".join(obj.metadata.finalizers)
            return "Deleting", "Deleting", f"it is being deleted{f', held by {holders}' if holders else ''}"
        if readiness.state == "Ready":
            return "Ready", readiness.reason, readiness.message
        outcome = node.outcome if node is not None else None
        if isinstance(outcome, Failed):
            return "Failed", outcome.reason, outcome.message
        if isinstance(outcome, Blocked | RequeueAfter) and outcome.reason:
            return readiness.state, outcome.reason, outcome.message
        return readiness.state, readiness.reason, readiness.message

    def _causes(self, id_: str, node: NodeView | None, state: State) -> list[str]:
        if state in ("Ready", "Absent"):
            return []
        if node is not None and node.on:
            return sorted(node.on, key=self._urgency)
        return []

    def _urgency(self, id_: str) -> tuple[int, str]:
        """What is missing comes before what has failed, and that before what only waits."""
        obj = self._object(id_)
        if obj is None:
            return 0, id_
        return {"Failed": 1, "Pending": 2, "Skipped": 2, "Ready": 3}[obj.readiness().state], id_


def _root(step: Step) -> Step:
    while step.causes and not all(cause.seen_above for cause in step.causes):
        step = next(cause for cause in step.causes if not cause.seen_above)
    return step


def _advice(root: Step) -> str:
    kind, _, name = root.name.partition("/")
    if root.state == "Ready":
        return ""
    if root.state == "Absent":
        return f"create {root.name}{_how_to_create(kind, name)}, or correct the name{_in_field(root.field)}"
    if root.reason == "DependencyCycle":
        return f"break the circle ({root.message.partition(': ')[2]}): take one of them out and make it anew without it"
    if root.state == "Deleting":
        return f"wait until {root.name} is gone, then create it again"
    if root.state == "Failed":
        return f"see why {root.name} failed ({root.message or root.reason}), correct it and make it anew"
    if root.engine == "sleeping":
        return f"see the error of {root.name} ({root.message}); it is tried again by itself"
    if not root.engine:
        return f"nothing here acts on {root.name}: check that its controllers run (`rota doctor`)"
    return f"wait for {root.name}: {root.message or root.reason}"


def _how_to_create(kind: str, name: str) -> str:
    if kind == "Secret":
        return f" (kubectl create secret generic {name.rpartition('/')[2]} --from-literal=KEY=VALUE)"
    if kind == "ConfigMap":
        return f" (kubectl create configmap {name.rpartition('/')[2]} --from-literal=KEY=VALUE)"
    return ""


def _in_field(field: str) -> str:
    return f" in {field}" if field else ""


def _conditions(obj: Object | None) -> list[ConditionSeen]:
    status = getattr(obj, "status", None)
    found: Iterable[object] = getattr(status, "conditions", ())
    return [
        ConditionSeen(c.type, c.status, c.reason, c.message, _written(c.last_transition_time))  # type: ignore[attr-defined]
        for c in found
    ]


def _written(time: object) -> str:
    isoformat = getattr(time, "isoformat", None)
    return str(isoformat()).replace("+00:00", "Z") if isoformat else ""
