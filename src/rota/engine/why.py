"""Why something is not ready: the chain from an object to what it waits for, from the engine's own state.

Exact, because it is read from the parking index and not guessed from texts; bounded in depth, breadth and in how much
is looked at.

First everything that the object waits for is looked at, nearest first, and what most needs a person is taken to be at
the bottom of it. Then the tree is made, with the way to the bottom before all else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

from msgspec import Struct

from rota.api import Kind, Object
from rota.engine.advice import Matter, Verdict, advice
from rota.engine.outcome import Blocked, Failed, RequeueAfter
from rota.engine.references import CYCLE, FAILED, Find, Graph, cycle_message, id_of, kind_of, shown
from rota.engine.view import NodeView, View

DEPTH_MAX = 32
"""Steps of a chain that are shown, before the one at the bottom."""
CAUSES_MAX = 20
"""Causes that are shown of one step."""
STEPS_MAX = 200
"""Steps that are shown in all."""
LOOKS_MAX = 1_000
"""Objects that are looked at for one explanation."""
CYCLE_LOOKS_MAX = 32
"""Nodes that are tried for being in a circle, when nothing else explains the waiting."""
REFERRERS_MAX = 3
"""Objects that are named as those which refer to one that is not there."""

State = Literal["Ready", "Pending", "Failed", "Skipped", "Absent", "Deleting"]
Acting = Literal["nobody", "gate", "controller"]
"""Who acts on a kind: nobody, a controller that only checks references, or one that does it all."""
MayRead = Callable[[Kind, str, str], bool]

SPINNING = "Spinning"
TELLING = ("Ready", "Available", "Enforced", "Granted", "ResolvedRefs")
"""The conditions that tell readiness."""
RANK: dict[str, int] = {verdict: rank for rank, verdict in enumerate(get_args(Verdict))}


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
    verdict: Verdict = "Ready"
    """What holds it up."""
    created: str = ""
    since: str = ""
    """Since when it is in this state, as far as the object says."""
    engine: str = ""
    """What the engine does with it: runnable, running, parked, sleeping, done, failed; empty: nothing."""
    runs: int = 0
    """How often it was looked at since it last came to rest."""
    waiting_seconds: float | None = None
    """For how long it is parked or sleeps."""
    again_seconds: float | None = None
    """In how many seconds it is looked at again even if nothing happens."""
    conditions: list[ConditionSeen] = []
    causes: list[Step] = []
    """What it waits for, or failed because of."""
    more_causes: int = 0
    """How many further causes there are."""
    left_out: int = 0
    """How many steps there are between this one and its cause, which is the one at the bottom."""
    seen_above: bool = False
    """It is explained further up: the chain is a circle, or two chains meet."""
    hidden: bool = False
    """Whoever asks may not read it: it has a name and a state only."""


class Why(Struct, frozen=True, rename="camel"):
    """An explanation."""

    step: Step
    root: Step
    """What is at the bottom of it."""
    advice: str
    """The one thing to do next; empty when nothing is wrong."""
    over: bool = False
    """It has failed or was given up, and does not become ready by itself any more."""

    @property
    def ready(self) -> bool:
        return self.step.state == "Ready"


def explain(
    id_: str,
    *,
    find: Find,
    view: View,
    graph: Graph,
    now: float,
    acting: Callable[[Kind], Acting] | None = None,
    may_read: MayRead = lambda kind, namespace, name: True,
) -> Why:
    """The chain from an object down to what is at the bottom of it. `now` is the time of the engine's clock.

    `acting` tells who acts on a kind, where that is known.
    """
    return _Explanation(find, view, graph, now, acting, may_read).of(id_)


class _Seen(NamedTuple):
    """An object that was looked at."""

    id: str
    obj: Object | None
    node: NodeView | None
    hidden: bool
    state: State
    reason: str
    message: str
    verdict: Verdict
    waits_for: tuple[str, ...]


class _Explanation:
    def __init__(
        self,
        find: Find,
        view: View,
        graph: Graph,
        now: float,
        acting: Callable[[Kind], Acting] | None,
        may_read: MayRead,
    ) -> None:
        self._find = find
        self._view = view
        self._graph = graph
        self._now = now
        self._acting = acting
        self._may_read = may_read
        self._seen: dict[str, _Seen] = {}
        """In the order in which they were looked at: the nearest first."""
        self._from: dict[str, str] = {}
        """By what each was first come to."""
        self._shown: set[str] = set()

    def of(self, id_: str) -> Why:
        self._survey(id_)
        bottom = self._bottom()
        way = [bottom]
        while way[-1] != id_:
            way.append(self._from[way[-1]])
        way.reverse()
        step = self._step(id_, "", way)
        root = step if bottom == id_ else self._end(way)[0]
        told = advice(self._matter(self._seen[bottom], way[-2] if len(way) > 1 else ""))
        return Why(step, root, told, over=step.state in ("Failed", "Skipped"))

    # What there is.

    def _survey(self, id_: str) -> None:
        coming = [id_]
        for at in coming:
            self._seen[at] = seen = self._look(at)
            for one in seen.waits_for:
                if len(coming) < LOOKS_MAX and one not in self._from and one != id_:
                    self._from[one] = at
                    coming.append(one)
        for seen in list(self._seen.values()):
            if seen.verdict == "Blocked" and not any(self._holds_up(one) for one in seen.waits_for):
                # All that it waited for has come since: it is about to look again.
                self._seen[seen.id] = seen._replace(verdict="Working" if seen.state != "Ready" else "Ready")

    def _holds_up(self, id_: str) -> bool:
        return id_ not in self._seen or self._seen[id_].state != "Ready"

    def _bottom(self) -> str:
        best = min(self._seen.values(), key=lambda seen: RANK[seen.verdict])
        if best.verdict != "Blocked":
            return best.id
        for seen in list(self._seen.values())[:CYCLE_LOOKS_MAX]:
            path = self._view.cycle(seen.id)
            if path is not None:
                self._seen[seen.id] = seen._replace(verdict="Cycle", reason=CYCLE, message=cycle_message(path))
                return seen.id
        return next(reversed(self._seen))

    def _look(self, id_: str) -> _Seen:
        kind = kind_of(id_)
        _, namespace, name = id_.split("/", 2)
        obj = self._find(kind, namespace, name) if kind is not None else None
        node = self._view.get(id_)
        if kind is not None and not self._may_read(kind, namespace, name):
            state = _state(obj)
            verdict: Verdict = {"Absent": "Missing", "Ready": "Ready"}.get(state, "Hidden")  # type: ignore[assignment]
            return _Seen(id_, None, None, True, state, "", "", verdict, ())
        if obj is None:
            if kind is None and node is not None:
                return _Seen(id_, None, node, False, node.status, "", "", self._by_node(node, node.status), node.on)
            return _Seen(id_, None, None, False, "Absent", "NotFound", self._not_found(id_), "Missing", ())
        state, reason, message = _told(obj, node)
        verdict = self._verdict(obj, node, state)
        if verdict == "Failed" and reason == FAILED and (causes := self._failed_before(id_)):
            return _Seen(id_, obj, node, False, state, reason, message, "Blocked", causes)
        return _Seen(id_, obj, node, False, state, reason, message, verdict, self._waits_for(obj, node, state, verdict))

    def _waits_for(self, obj: Object, node: NodeView | None, state: State, verdict: Verdict) -> tuple[str, ...]:
        if state == "Deleting" or _is_over(obj):
            return ()
        if node is not None and node.on:
            return node.on
        if verdict in ("Gated", "Settled") and getattr(getattr(obj, "status", None), "start_time", None) is None:
            # Nothing holds it up by name, but it cannot begin with what is not ready: a task in its pool's queue.
            return tuple(dict.fromkeys(edge.target for edge in self._graph.references(id_of(obj))))
        return ()

    def _failed_before(self, id_: str) -> tuple[str, ...]:
        """Return what has failed of that which an object needed ready."""
        found: list[str] = []
        for target in dict.fromkeys(edge.target for edge in self._graph.references(id_) if edge.needs == "readiness"):
            kind = kind_of(target)
            _, namespace, name = target.split("/", 2)
            if kind is not None and _state(self._find(kind, namespace, name)) == "Failed":
                found.append(target)
        return tuple(found)

    def _not_found(self, id_: str) -> str:
        by = [one for one in self._graph.referrers(id_) if self._readable(one)]
        if not by:
            return "not found"
        names = ", ".join(map(shown, by[:REFERRERS_MAX]))
        more = f" and {len(by) - REFERRERS_MAX} more" if len(by) > REFERRERS_MAX else ""
        return f"not found; referred to by {names}{more}"

    def _readable(self, id_: str) -> bool:
        kind = kind_of(id_)
        _, namespace, name = id_.split("/", 2)
        return kind is None or self._may_read(kind, namespace, name)

    # What holds it up.

    def _verdict(self, obj: Object, node: NodeView | None, state: State) -> Verdict:
        if state == "Deleting":
            return "Deleting"
        if _is_over(obj):
            return "Ready" if state == "Ready" else "Failed"
        if _spinning(obj, node):
            return "Spinning"
        verdict = self._by_node(node, state) if node is not None else "Settled"
        if verdict != "Settled":
            return verdict
        if state == "Ready":
            return "Ready"
        if self._acting is None:
            return "Unattended" if node is None else "Settled"
        by_acting: dict[Acting, Verdict] = {"nobody": "Unattended", "gate": "Gated", "controller": "Settled"}
        return by_acting[self._acting(obj.api)]

    @staticmethod
    def _by_node(node: NodeView, state: State) -> Verdict:
        outcome = node.outcome
        if isinstance(outcome, RequeueAfter) and outcome.error is not None:
            return "Error"
        if isinstance(outcome, Blocked | Failed) and outcome.reason == CYCLE:
            return "Cycle"
        if node.on:
            return "Blocked"
        if state == "Ready":
            return "Ready"
        if node.state == "failed":
            return "Failed"
        return "Settled" if node.state == "done" else "Working"

    def _matter(self, seen: _Seen, referrer: str) -> Matter:
        node = seen.node
        status = getattr(seen.obj, "status", None)
        circle = self._circle(seen.id) if seen.verdict == "Cycle" else ()
        return Matter(
            seen.id,
            seen.verdict,
            why=seen.message or seen.reason,
            reason=seen.reason,
            referrer=referrer,
            field=self._field(referrer, seen.id) if referrer else "",
            engine=node.state if node is not None else "",
            again_seconds=self._again(node),
            others_queued=self._view.queued().get(seen.id.partition("/")[0], 1) - 1,
            ended=getattr(status, "phase", None) is not None,
            finalizers=seen.obj.metadata.finalizers if seen.obj is not None else (),
            cycle=circle,
            edge=self._field(seen.id, circle[1]) if circle else "",
            acting_known=self._acting is not None,
        )

    def _circle(self, id_: str) -> tuple[str, ...]:
        return self._view.cycle(id_) or self._graph.cycle(id_) or ()

    # The tree.

    def _step(self, id_: str, field: str, way: list[str], depth: int = 0) -> Step:
        """An object and what it waits for. `way` goes from the object asked about to the bottom."""
        seen = self._seen[id_]
        if id_ in self._shown:
            return self._plain(seen, field, seen_above=True)
        self._shown.add(id_)
        causes = sorted(
            (one for one in seen.waits_for if one in self._seen and self._holds_up(one)),
            key=lambda one: (one not in way, RANK[self._seen[one].verdict], one),
        )
        # What was not looked at any more is counted all the same.
        count = len(causes) + sum(one not in self._seen for one in seen.waits_for)
        if depth >= DEPTH_MAX:
            end = self._end(way) if id_ in way[:-1] else []
            return self._plain(seen, field, end, count - len(end), left_out=len(way) - 2 - depth if end else 0)
        steps = [
            self._step(one, self._field(id_, one), way, depth + 1)
            for one in causes[:CAUSES_MAX]
            if len(self._shown) < STEPS_MAX
        ]
        return self._plain(seen, field, steps, count - len(steps))

    def _end(self, way: list[str]) -> list[Step]:
        before, bottom = way[-2:]
        self._shown.add(bottom)
        return [self._plain(self._seen[bottom], self._field(before, bottom))]

    def _plain(
        self,
        seen: _Seen,
        field: str,
        causes: list[Step] | None = None,
        more_causes: int = 0,
        *,
        left_out: int = 0,
        seen_above: bool = False,
    ) -> Step:
        obj, node = seen.obj, seen.node
        waits = node is not None and node.state in ("parked", "sleeping")
        return Step(
            seen.id,
            shown(seen.id),
            seen.state,
            seen.reason,
            seen.message,
            field,
            seen.verdict,
            created=_written(obj.metadata.creation_timestamp) if obj is not None else "",
            since=_written(_since(obj, seen.state)) if obj is not None else "",
            engine=node.state if node is not None else "",
            runs=node.runs if node is not None else 0,
            waiting_seconds=max(0.0, self._now - node.since) if waits and node is not None else None,
            again_seconds=self._again(node),
            conditions=[] if seen_above else _conditions(obj),
            causes=causes or [],
            more_causes=more_causes,
            left_out=left_out,
            seen_above=seen_above,
            hidden=seen.hidden,
        )

    def _again(self, node: NodeView | None) -> float | None:
        return None if node is None or node.due is None else max(0.0, node.due - self._now)

    def _field(self, referrer: str, id_: str) -> str:
        """The field by which one refers to the other; of several, the one that asks for more."""
        edges = [edge for edge in self._graph.references(referrer) if edge.target == id_]
        edges.sort(key=lambda edge: edge.needs != "readiness")
        return edges[0].path if edges else ""


def _state(obj: Object | None) -> State:
    if obj is None:
        return "Absent"
    return "Deleting" if obj.metadata.deletion_timestamp is not None else obj.readiness().state


def _told(obj: Object, node: NodeView | None) -> tuple[State, str, str]:
    """How an object is, and why, by what it says itself and by what its last run came to."""
    state, readiness = _state(obj), obj.readiness()
    if state == "Deleting":
        holders = ", ".join(obj.metadata.finalizers)
        return state, "Deleting", f"it is being deleted{f', held by {holders}' if holders else ''}"
    if _is_over(obj):
        return state, readiness.reason, readiness.message
    spinning = _spinning(obj, node)
    if spinning:
        return state, SPINNING, spinning
    outcome = node.outcome if node is not None else None
    if isinstance(outcome, Failed) and state != "Ready":
        return "Failed", outcome.reason, outcome.message
    if isinstance(outcome, Blocked | RequeueAfter | Failed) and outcome.reason:
        return state, outcome.reason, outcome.message
    return state, readiness.reason, readiness.message


def _is_over(obj: Object) -> bool:
    """Whether it does not matter any more what an object refers to."""
    ended = getattr(getattr(obj, "status", None), "completion_time", None) is not None
    return ended or obj.readiness().state in ("Failed", "Skipped")


def _spinning(obj: Object, node: NodeView | None) -> str:
    """What is said of an object that does not come to rest; empty when it does."""
    outcome = node.outcome if node is not None else None
    if isinstance(outcome, RequeueAfter) and outcome.reason == SPINNING:
        return outcome.message
    said = next((c for c in _status_conditions(obj) if c.type == SPINNING and c.status == "True"), None)
    return "" if said is None else said.message or SPINNING


def _since(obj: Object, state: State) -> datetime | None:
    status = getattr(obj, "status", None)
    if state == "Deleting":
        return obj.metadata.deletion_timestamp
    for moment in ("completion_time", "start_time"):
        if (at := getattr(status, moment, None)) is not None:
            return at  # type: ignore[no-any-return]
    for type_ in TELLING:
        for condition in _status_conditions(obj):
            if condition.type == type_ and condition.last_transition_time is not None:
                return condition.last_transition_time  # type: ignore[no-any-return]
    return obj.metadata.creation_timestamp


def _status_conditions(obj: Object | None) -> Iterable[Any]:
    return getattr(getattr(obj, "status", None), "conditions", ())


def _conditions(obj: Object | None) -> list[ConditionSeen]:
    return [
        ConditionSeen(c.type, c.status, c.reason, c.message, _written(c.last_transition_time))
        for c in _status_conditions(obj)
    ]


def _written(time: datetime | None) -> str:
    return "" if time is None else time.isoformat().replace("+00:00", "Z")
