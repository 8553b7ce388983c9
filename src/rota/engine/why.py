"""Explanations: the chain from an object that is not ready to the cause, from the engine's own state.

They are exact, because they are read from the parking index and not guessed from messages, and bounded in depth,
breadth and visited objects.

First everything that the object waits for is visited, nearest first; the object that most needs a person is taken as
the cause. Then the tree is made, with the path to the cause first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from msgspec import Struct, structs
from msgspec import field as wire_field

from rota.api import Kind, Object
from rota.engine.advice import Finding, Verdict, advice, must_correct, workspace_reason
from rota.engine.outcome import Blocked, Failed, RequeueAfter
from rota.engine.references import CYCLE, FAILED, Find, Graph, cycle_message, id_of, kind_of, shown
from rota.engine.view import NodeView, View
from rota.engine.why_status import (
    ConditionSummary,
    State,
    conditions_of,
    is_over,
    since_of,
    spinning,
    state_and_reason,
    state_of,
    written,
)

DEPTH_MAX = 32
"""Bound on the shown steps of a chain, before the last one."""
CAUSES_MAX = 20
"""Bound on the shown causes of one step."""
STEPS_MAX = 200
"""Bound on the shown steps in all."""
LOOKS_MAX = 1_000
"""Bound on the objects visited for one explanation."""
CYCLE_LOOKS_MAX = 32
"""Bound on the nodes checked for cycles, if nothing else explains the wait."""
REFERRERS_MAX = 3
"""Bound on the named referrers of a missing object."""
REFERRERS_LOOKS_MAX = 100
"""Bound on the visited referrers of a missing object."""

Acting = Literal["nobody", "gate", "controller"]
"""The actor on a kind: nobody, a controller that only checks references, or a full controller."""
MayRead = Callable[[Kind, str, str], bool]

WORKSPACE, INSTANCE = "Workspace", "Instance"
RANK: dict[str, int] = {verdict: rank for rank, verdict in enumerate(get_args(Verdict))}


class Step(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One object of the chain, and its causes."""

    id: str
    """The node id: `bucket/namespace/name`."""
    name: str
    """The name as people write it: `Task/name`."""
    state: State
    reason: str = ""
    message: str = ""
    field: str = ""
    """The field of the previous object that refers to this one."""
    verdict: Verdict = "Ready"
    """The verdict on the object."""
    created: str = ""
    since: str = ""
    """The time of its last change of state, as far as the object says."""
    engine: str = ""
    """The state of its node: runnable, running, parked, sleeping, done, failed; empty without a node."""
    runs: int = 0
    """Number of runs of its node."""
    waiting_seconds: float | None = None
    """Seconds it has been parked or asleep."""
    again_seconds: float | None = None
    """Seconds until it runs again even if nothing happens."""
    conditions: list[ConditionSummary] = []
    causes: list[Step] = []
    """The objects it waits for, or failed because of."""
    more_causes: int = 0
    """Number of further causes."""
    left_out: int = 0
    """Number of steps left out between this one and its cause, which is the last one."""
    explained_above: bool = wire_field(default=False, name="seenAbove")
    """True if it is explained further up: the chain is a cycle, or two chains join."""
    hidden: bool = False
    """True if the caller may not read the object: only its name and state are shown."""


class Why(Struct, frozen=True, rename="camel"):
    """An explanation."""

    step: Step
    root: Step
    """The cause at the end of the chain."""
    advice: str
    """The next thing to do; empty if nothing is wrong."""
    over: bool = False
    """True if it has failed or was skipped, and will not become ready by itself."""

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
    """Return the chain from an object to the cause of its wait. `now` is the time of the engine's clock.

    `acting` returns the actor on a kind, if known. `file` returns the place to correct an object that is not
    on a server, as FILE:LINE. Once `is_late` returns True, no more objects are visited.
    """
    return _Explanation(find, view, graph, now, acting, may_read, file, is_late).of(id_)


class _Visited(NamedTuple):
    """A visited object."""

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
        self._visited: dict[str, _Visited] = {}
        """The visited objects, nearest first."""
        self._from: dict[str, str] = {}
        """By id, the object through which it was first reached."""
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
        todo = self._about_workspace(self._visited[bottom])
        todo = todo or advice(self._finding(self._visited[bottom], way[-2] if len(way) > 1 else ""))
        if not todo and (user := self._failing_user(id_)) is not None:
            todo = self._about_workspace(user)
            reason = workspace_reason(user.reason, user.message)
            message = f"{shown(user.id)} cannot use it: {user.message}"
            step = root = structs.replace(step, reason=reason, message=message)
        return Why(step, root, todo, over=step.state in ("Failed", "Skipped"))

    # Workspaces, whose failures only their users know.

    def _about_workspace(self, visited: _Visited) -> str:
        """Return advice about the workspace that an object cannot use; empty if that is not its problem."""
        reason = workspace_reason(visited.reason, visited.message)
        targets = [edge.target for edge in self._graph.references(visited.id)] if reason else []
        workspace = next((one for one in targets if _is(one, WORKSPACE) and self._readable(one)), "")
        return advice(Finding(workspace, "Settled", reason=reason, file=self._file(workspace))) if workspace else ""

    def _failing_user(self, id_: str) -> _Visited | None:
        """Return an instance that cannot use a workspace; None if there is none."""
        users = self._graph.referrers(id_) if _is(id_, WORKSPACE) else ()
        for one in [one for one in users if _is(one, INSTANCE) and self._readable(one)][:LOOKS_MAX]:
            if self._is_late():
                break
            visited = self._look(one)
            if workspace_reason(visited.reason, visited.message):
                return visited
        return None

    # Visiting objects.

    def _survey(self, id_: str) -> None:
        coming = [id_]
        for at in coming:
            if self._visited and self._is_late():
                break
            self._visited[at] = visited = self._look(at)
            for one in visited.waits_for:
                if len(coming) < LOOKS_MAX and one not in self._from and one != id_:
                    self._from[one] = at
                    coming.append(one)
        for visited in list(self._visited.values()):
            if visited.verdict == "Blocked" and not any(self._holds_up(one) for one in visited.waits_for):
                # Everything it waited for is ready: it is about to run again.
                self._visited[visited.id] = visited._replace(verdict="Working" if visited.state != "Ready" else "Ready")

    def _holds_up(self, id_: str) -> bool:
        return id_ not in self._visited or self._visited[id_].state != "Ready"

    def _bottom(self) -> str:
        best = min(self._visited.values(), key=_urgency)
        if best.verdict != "Blocked":
            return best.id
        for visited in list(self._visited.values())[:CYCLE_LOOKS_MAX]:
            path = self._view.cycle(visited.id)
            if path is not None:
                self._visited[visited.id] = visited._replace(verdict="Cycle", reason=CYCLE, message=cycle_message(path))
                return visited.id
        return next(reversed(self._visited))

    def _look(self, id_: str) -> _Visited:
        kind = kind_of(id_)
        _, namespace, name = id_.split("/", 2)
        obj = self._find(kind, namespace, name) if kind is not None else None
        node = self._view.get(id_)
        if kind is not None and not self._may_read(kind, namespace, name):
            state = state_of(obj)
            verdict: Verdict = {"Absent": "Missing", "Ready": "Ready"}.get(state, "Hidden")  # type: ignore[assignment]
            return _Visited(id_, None, None, True, state, "", "", verdict, ())
        if obj is None:
            if kind is None and node is not None:
                return _Visited(id_, None, node, False, node.status, "", "", self._by_node(node, node.status), node.on)
            return _Visited(id_, None, None, False, "Absent", "NotFound", self._not_found(id_), "Missing", ())
        state, reason, message = state_and_reason(obj, node)
        verdict = self._verdict(obj, node, state)
        if verdict == "Failed" and reason == FAILED and (causes := self._failed_before(id_)):
            return _Visited(id_, obj, node, False, state, reason, message, "Blocked", causes)
        return _Visited(
            id_, obj, node, False, state, reason, message, verdict, self._waits_for(obj, node, state, verdict)
        )

    def _waits_for(self, obj: Object, node: NodeView | None, state: State, verdict: Verdict) -> tuple[str, ...]:
        if state == "Deleting" or is_over(obj):
            return ()
        if node is not None and node.on:
            return node.on
        if verdict in ("Gated", "Settled") and getattr(getattr(obj, "status", None), "start_time", None) is None:
            # It is not parked, but cannot begin before its references are ready, such as a task in its pool's queue.
            return tuple(dict.fromkeys(edge.target for edge in self._graph.references(id_of(obj))))
        return ()

    def _failed_before(self, id_: str) -> tuple[str, ...]:
        """Return the failed dependencies of an object."""
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

    # Verdicts.

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

    def _finding(self, visited: _Visited, referrer: str) -> Finding:
        node = visited.node
        status = getattr(visited.obj, "status", None)
        circle = self._circle(visited.id) if visited.verdict == "Cycle" else ()
        return Finding(
            visited.id,
            visited.verdict,
            why=visited.message or visited.reason,
            reason=visited.reason,
            referrer=referrer,
            field=self._field(referrer, visited.id) if referrer else "",
            engine=node.state if node is not None else "",
            again_seconds=self._again(node),
            others_queued=self._view.queued().get(visited.id.partition("/")[0], 1) - 1,
            ended=getattr(status, "phase", None) is not None,
            finalizers=visited.obj.metadata.finalizers if visited.obj is not None else (),
            cycle=circle,
            edge=self._field(visited.id, circle[1]) if circle else "",
            acting_known=self._acting is not None,
            file=self._file(visited.id),
        )

    def _circle(self, id_: str) -> tuple[str, ...]:
        return self._view.cycle(id_) or self._graph.cycle(id_) or ()

    # The tree.

    def _step(self, id_: str, field: str, way: list[str], depth: int = 0) -> Step:
        """Return the step of an object with its causes. `way` goes from the explained object to the cause."""
        visited = self._visited[id_]
        if id_ in self._shown:
            return self._plain(visited, field, explained_above=True)
        self._shown.add(id_)
        causes = sorted(
            (one for one in visited.waits_for if one in self._visited and self._holds_up(one)),
            key=lambda one: (one not in way, _urgency(self._visited[one]), one),
        )
        # Causes that were not visited are counted too.
        count = len(causes) + sum(one not in self._visited for one in visited.waits_for)
        if depth >= DEPTH_MAX:
            end = self._end(way) if id_ in way[:-1] else []
            return self._plain(visited, field, end, count - len(end), left_out=len(way) - 2 - depth if end else 0)
        steps = [
            self._step(one, self._field(id_, one), way, depth + 1)
            for one in causes[:CAUSES_MAX]
            if len(self._shown) < STEPS_MAX
        ]
        return self._plain(visited, field, steps, count - len(steps))

    def _end(self, way: list[str]) -> list[Step]:
        before, bottom = way[-2:]
        self._shown.add(bottom)
        return [self._plain(self._visited[bottom], self._field(before, bottom))]

    def _plain(
        self,
        visited: _Visited,
        field: str,
        causes: list[Step] | None = None,
        more_causes: int = 0,
        *,
        left_out: int = 0,
        explained_above: bool = False,
    ) -> Step:
        obj, node = visited.obj, visited.node
        waits = node is not None and node.state in ("parked", "sleeping")
        return Step(
            visited.id,
            shown(visited.id),
            visited.state,
            visited.reason,
            visited.message,
            field,
            visited.verdict,
            created=written(obj.metadata.creation_timestamp) if obj is not None else "",
            since=written(since_of(obj, visited.state)) if obj is not None else "",
            engine=node.state if node is not None else "",
            runs=node.runs if node is not None else 0,
            waiting_seconds=max(0.0, self._now - node.since) if waits and node is not None else None,
            again_seconds=self._again(node),
            conditions=[] if explained_above else conditions_of(obj),
            causes=causes or [],
            more_causes=more_causes,
            left_out=left_out,
            explained_above=explained_above,
            hidden=visited.hidden,
        )

    def _again(self, node: NodeView | None) -> float | None:
        return None if node is None or node.due is None else max(0.0, node.due - self._now)

    def _field(self, referrer: str, id_: str) -> str:
        """Return the field by which one object refers to another; of several, one that needs readiness."""
        edges = [edge for edge in self._graph.references(referrer) if edge.target == id_]
        edges.sort(key=lambda edge: edge.needs != "readiness")
        return edges[0].path if edges else ""


def _is(id_: str, kind: str) -> bool:
    found = kind_of(id_)
    return found is not None and found.name == kind


def _urgency(one: _Visited) -> int:
    """Return the rank of an object as the cause. Objects that a person must correct come first."""
    if one.verdict in ("Settled", "Working") and must_correct(one.id, one.reason) and not _serves(one.obj):
        return RANK["Unattended"]
    return RANK[one.verdict]


def _serves(obj: Object | None) -> bool:
    """Report whether an unready object works in part, such as a pool with some ready workers."""
    return bool(getattr(getattr(obj, "status", None), "ready_replicas", 0))
