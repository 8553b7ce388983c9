"""Why something is not ready: the chain from an object to what it waits for, from the engine's own state.

Exact, because it is read from the parking index and not guessed from texts; bounded in depth, breadth and in how much
is looked at.

First everything that the object waits for is looked at, nearest first, and what most needs a person is taken to be at
the bottom of it. Then the tree is made, with the way to the bottom before all else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from msgspec import Struct, structs

from rota.api import Kind, Object
from rota.engine.advice import Matter, Verdict, advice, must_correct, workspace_reason
from rota.engine.outcome import Blocked, Failed, RequeueAfter
from rota.engine.references import CYCLE, FAILED, Find, Graph, cycle_message, id_of, kind_of, shown
from rota.engine.view import NodeView, View
from rota.engine.why_status import (
    ConditionSeen,
    State,
    conditions_of,
    is_over,
    since_of,
    spinning,
    state_of,
    told_of,
    written,
)

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
REFERRERS_LOOKS_MAX = 100
"""Of which so many are looked at."""

Acting = Literal["nobody", "gate", "controller"]
"""Who acts on a kind: nobody, a controller that only checks references, or one that does it all."""
MayRead = Callable[[Kind, str, str], bool]

WORKSPACE, INSTANCE = "Workspace", "Instance"
RANK: dict[str, int] = {verdict: rank for rank, verdict in enumerate(get_args(Verdict))}


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
    file: Callable[[str], str] = lambda id_: "",
    is_late: Callable[[], bool] = lambda: False,
) -> Why:
    """The chain from an object down to what is at the bottom of it. `now` is the time of the engine's clock.

    `acting` tells who acts on a kind, where that is known. `file` tells where an object is to be corrected that is not
    on a server, as FILE:LINE. Once it `is_late`, nothing more is looked at: the explanation ends with what was seen.
    """
    return _Explanation(find, view, graph, now, acting, may_read, file, is_late).of(id_)


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
        file: Callable[[str], str],
        is_late: Callable[[], bool],
    ) -> None:
        self._find = find
        self._view = view
        self._graph = graph
        self._now = now
        self._acting = acting
        self._may_read = may_read
        self._file = file
        self._is_late = is_late
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
        told = self._about_workspace(self._seen[bottom])
        told = told or advice(self._matter(self._seen[bottom], way[-2] if len(way) > 1 else ""))
        if not told and (user := self._failing_user(id_)) is not None:
            told = self._about_workspace(user)
            reason = workspace_reason(user.reason, user.message)
            message = f"{shown(user.id)} cannot use it: {user.message}"
            step = root = structs.replace(step, reason=reason, message=message)
        return Why(step, root, told, over=step.state in ("Failed", "Skipped"))

    # Workspaces: whether one can be had is known to those that use it.

    def _about_workspace(self, seen: _Seen) -> str:
        """Return what to do about the workspace that something cannot have; empty if that is not what it lacks."""
        reason = workspace_reason(seen.reason, seen.message)
        targets = [edge.target for edge in self._graph.references(seen.id)] if reason else []
        workspace = next((one for one in targets if _is(one, WORKSPACE) and self._readable(one)), "")
        return advice(Matter(workspace, "Settled", reason=reason, file=self._file(workspace))) if workspace else ""

    def _failing_user(self, id_: str) -> _Seen | None:
        """Return an instance that cannot have this workspace."""
        users = self._graph.referrers(id_) if _is(id_, WORKSPACE) else ()
        for one in [one for one in users if _is(one, INSTANCE) and self._readable(one)][:LOOKS_MAX]:
            if self._is_late():
                break
            seen = self._look(one)
            if workspace_reason(seen.reason, seen.message):
                return seen
        return None

    # What there is.

    def _survey(self, id_: str) -> None:
        coming = [id_]
        for at in coming:
            if self._seen and self._is_late():
                break
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
        best = min(self._seen.values(), key=_urgency)
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
            state = state_of(obj)
            verdict: Verdict = {"Absent": "Missing", "Ready": "Ready"}.get(state, "Hidden")  # type: ignore[assignment]
            return _Seen(id_, None, None, True, state, "", "", verdict, ())
        if obj is None:
            if kind is None and node is not None:
                return _Seen(id_, None, node, False, node.status, "", "", self._by_node(node, node.status), node.on)
            return _Seen(id_, None, None, False, "Absent", "NotFound", self._not_found(id_), "Missing", ())
        state, reason, message = told_of(obj, node)
        verdict = self._verdict(obj, node, state)
        if verdict == "Failed" and reason == FAILED and (causes := self._failed_before(id_)):
            return _Seen(id_, obj, node, False, state, reason, message, "Blocked", causes)
        return _Seen(id_, obj, node, False, state, reason, message, verdict, self._waits_for(obj, node, state, verdict))

    def _waits_for(self, obj: Object, node: NodeView | None, state: State, verdict: Verdict) -> tuple[str, ...]:
        if state == "Deleting" or is_over(obj):
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
            if kind is not None and state_of(self._find(kind, namespace, name)) == "Failed":
                found.append(target)
        return tuple(found)

    def _not_found(self, id_: str) -> str:
        found = self._graph.some_referrers(id_, REFERRERS_LOOKS_MAX)
        by = [one for one in found if self._readable(one)]
        if not by:
            return "not found"
        names = ", ".join(map(shown, by[:REFERRERS_MAX]))
        at_least = "at least " if len(found) == REFERRERS_LOOKS_MAX else ""
        more = f" and {at_least}{len(by) - REFERRERS_MAX} more" if len(by) > REFERRERS_MAX else ""
        return f"not found; referred to by {names}{more}"

    def _readable(self, id_: str) -> bool:
        kind = kind_of(id_)
        _, namespace, name = id_.split("/", 2)
        return kind is None or self._may_read(kind, namespace, name)

    # What holds it up.

    def _verdict(self, obj: Object, node: NodeView | None, state: State) -> Verdict:
        if state == "Deleting":
            return "Deleting"
        if is_over(obj):
            return "Ready" if state == "Ready" else "Failed"
        if spinning(obj, node):
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
            file=self._file(seen.id),
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
            key=lambda one: (one not in way, _urgency(self._seen[one]), one),
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
            created=written(obj.metadata.creation_timestamp) if obj is not None else "",
            since=written(since_of(obj, seen.state)) if obj is not None else "",
            engine=node.state if node is not None else "",
            runs=node.runs if node is not None else 0,
            waiting_seconds=max(0.0, self._now - node.since) if waits and node is not None else None,
            again_seconds=self._again(node),
            conditions=[] if seen_above else conditions_of(obj),
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


def _is(id_: str, kind: str) -> bool:
    found = kind_of(id_)
    return found is not None and found.name == kind


def _urgency(seen: _Seen) -> int:
    """The rank of what holds an object up. What somebody has to correct comes before what goes on by itself."""
    if seen.verdict in ("Settled", "Working") and must_correct(seen.id, seen.reason) and not _serves(seen.obj):
        return RANK["Unattended"]
    return RANK[seen.verdict]


def _serves(obj: Object | None) -> bool:
    """Whether something that is not ready as a whole does its work in part: a pool with workers that are."""
    return bool(getattr(getattr(obj, "status", None), "ready_replicas", 0))
