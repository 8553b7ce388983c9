"""Turn a rehearsal into a plan: the order of readiness, the causes of what is never ready, and the assumptions."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from rota.api import Object
from rota.api.meta import ObjectStatus
from rota.control.simulation import NO_WORKERS
from rota.control.unhonoured import HONOURED
from rota.engine import Failed, NotConverged
from rota.engine.advice import give_workers
from rota.engine.references import id_of, kind_of, shown
from rota.manifest.causes import Branch, Tree, trees
from rota.manifest.plan_types import Assumed, Cause, CauseType, HeldUp, NotHonoured, Plan, Ready, Summary
from rota.manifest.rehearsal import Rehearsal, is_ready
from rota.registry import ApiError

NEAR_LOOKS_MAX = 20
"""Missing objects for which a similar name is searched."""


def make_plan(rehearsal: Rehearsal) -> Plan:
    """Return the plan that a rehearsal leads to."""
    return _Planner(rehearsal).plan()


class _Planner:
    def __init__(self, rehearsal: Rehearsal) -> None:
        self._r = rehearsal
        self._made = {id_of(obj): obj for obj in rehearsal.made()}
        self._elsewhere: dict[str, list[str]] = {}
        self._looked = 0
        self._names: dict[str, list[str]] = {}
        self._by_uid: dict[str, str] = {}
        self._children: dict[str, list[str]] = {}
        written = (rehearsal.find(id_) for id_ in rehearsal.written)
        self._found: dict[str, Object | None] = {}
        self._followed = {id_of(obj): obj for obj in (*written, *self._made.values()) if obj is not None}
        for id_, obj in self._followed.items():
            self._by_uid[obj.metadata.uid] = id_
        for id_, obj in self._followed.items():
            if owner := self._owner(obj):
                self._children.setdefault(owner, []).append(id_)

    def plan(self) -> Plan:
        ready = self._in_order()
        beyond = dict.fromkeys(id_ for id_ in self._followed if self._is_external(id_))
        unready = [id_ for id_ in self._followed if not self._is_ready(id_) and id_ not in beyond]
        found = trees([*unready, *self._failed_controllers()], self._waits_for)
        explained = {root for tree in found for root in tree.roots}
        for tree in found:
            self._note_elsewhere(tree)
        causes = [self._cause(tree) for tree in found]
        assumed = [Assumed("Exists", id_, shown(id_), by) for id_, by in self._r.assumed.items()]
        assumed += [Assumed("BecomesReady", id_, shown(id_), []) for id_ in beyond if id_ not in explained]
        never = len(unready) + sum(id_ in explained for id_ in beyond)
        summary = Summary(len(self._followed), len(self._made), len(ready), never, len(causes), len(assumed))
        return Plan(not causes, ready, causes, self._not_honoured(), assumed, summary)

    def _not_honoured(self) -> list[NotHonoured]:
        """Return the settings of manifests that have no effect here. Objects made from them would repeat them."""
        found = []
        for id_ in self._r.written:
            obj = self._followed.get(id_)
            status = getattr(obj, "status", None)
            condition = status.condition(HONOURED) if isinstance(status, ObjectStatus) else None
            if condition is not None and condition.status == "False":
                found.append(NotHonoured(id_, shown(id_), condition.message, *self._position(id_)))
        return found

    def _in_order(self) -> list[Ready]:
        """Return what becomes ready, step by step, within a step in the order of the files."""
        depths: dict[str, int] = {}
        for id_ in self._r.ready:
            obj = self._followed.get(id_)
            before = (*self._needs(id_), *self._children.get(id_, ()), self._owner(obj) if obj is not None else "")
            below = max((depths[one] for one in before if one in depths), default=0)
            # An object that existed before takes a step only if it waited for a new one.
            depths[id_] = below + 1 if below or obj is not None else 0
        when = {id_: (self._r.ready[id_], depths[id_]) for id_ in self._r.ready if id_ in self._followed}
        when = {id_: moment for id_, moment in when.items() if self._is_ready(id_)}
        steps = {moment: n for n, moment in enumerate(sorted(set(when.values())), 1)}
        ids = sorted((id_ for id_ in self._followed if id_ in when), key=when.__getitem__)
        return [self._ready(id_, steps[when[id_]]) for id_ in ids]

    # The state of one object.

    def _error(self, id_: str) -> BaseException | None:
        """Return the exception that a controller raised for a node."""
        node = self._r.view.get(id_)
        return node.outcome.error if node is not None and isinstance(node.outcome, Failed) else None

    def _find(self, id_: str) -> Object | None:
        if id_ not in self._found:
            self._found[id_] = self._r.find(id_)
        return self._found[id_]

    def _is_ready(self, id_: str) -> bool:
        obj = self._find(id_)
        return obj is not None and is_ready(obj) and self._error(id_) is None

    def _is_external(self, id_: str) -> bool:
        """Report whether no controller acts on an object, so that its readiness cannot be known here."""
        obj = self._followed[id_]
        return obj.readiness().state == "Pending" and self._r.view.get(id_) is None and not self._children.get(id_)

    def _waits_for(self, id_: str) -> list[str]:
        node = self._r.view.get(id_)
        if self._error(id_) is not None or (kind_of(id_) is not None and self._find(id_) is None):
            return []
        # A pool with zero replicas is ready, and still blocks tasks that wait for a worker.
        in_vain = node is not None and getattr(node.outcome, "reason", "") == NO_WORKERS
        on = [one for one in node.on if in_vain or self._holds_up(one)] if node is not None else []
        return on or [child for child in self._children.get(id_, ()) if not self._is_ready(child)]

    def _holds_up(self, id_: str) -> bool:
        if kind_of(id_) is not None:
            return not self._is_ready(id_)
        node = self._r.view.get(id_)
        return node is None or node.state != "done"

    def _failed_controllers(self) -> Iterator[str]:
        """Yield the failed nodes that are controllers and not objects."""
        return (node.id for node in self._r.view.failed() if kind_of(node.id) is None)

    def _owner(self, obj: Object) -> str:
        references = obj.metadata.owner_references
        chosen = next((one for one in references if one.controller), references[0] if references else None)
        return self._by_uid.get(chosen.uid, "") if chosen is not None else ""

    def _position(self, id_: str) -> tuple[str, int]:
        manifest = self._r.written.get(id_)
        return (manifest.source, manifest.line_number) if manifest is not None else ("", 0)

    def _needs(self, id_: str) -> list[str]:
        return list(dict.fromkeys(edge.target for edge in self._r.graph.references(id_)))

    def _field(self, id_: str, target: str) -> str:
        return next((edge.path for edge in self._r.graph.references(id_) if edge.target == target), "")

    # The entries of the plan.

    def _ready(self, id_: str, step: int) -> Ready:
        obj = self._followed[id_]
        skipped = obj.readiness().state == "Skipped"
        made = id_ in self._made
        return Ready(id_, shown(id_), step, skipped, made, self._owner(obj), self._needs(id_), *self._position(id_))

    def _note_elsewhere(self, tree: Tree) -> None:
        below = _members(tree)
        for branch in tree.branches:
            for one in self._waits_for(branch.id):
                if one not in below:
                    self._elsewhere.setdefault(one, []).append(branch.id)

    def _cause(self, tree: Tree) -> Cause:
        id_ = tree.roots[0]
        below = _members(tree)
        held_up = [self._held_up(branch, tree, below) for branch in tree.branches]
        elsewhere = [one for root in dict.fromkeys(tree.roots) for one in self._elsewhere.get(root, ())]
        circle = [shown(one) for one in tree.roots] if tree.is_circle else []
        type_, message, advice = self._describe_cause(id_, circle)
        return Cause(type_, id_, _display_name(id_), circle, message, advice, *self._position(id_), held_up, elsewhere)

    def _describe_cause(self, id_: str, circle: list[str]) -> tuple[CauseType, str, str]:
        """Return a cause's type, its description, and advice."""
        if circle:
            return "Circle", f"{' → '.join(circle)} wait for each other", "take one of these references out"
        error = self._error(id_)
        if error is not None:
            return (
                "Controller",
                _describe_failure(id_, error),
                "this is a fault of the controller, not of the manifests",
            )
        if self._find(id_) is None:
            return "Missing", *self._describe_missing(id_)
        if self._is_ready(id_):
            return "Object", f"{shown(id_)} is to have no workers: spec.replicas is 0", self._give_workers(id_)
        why = self._r.explain(id_)
        reason = why.step.message or why.step.reason or "nothing makes it ready"
        return "Object", f"{shown(id_)}: {reason}", why.advice

    def _give_workers(self, id_: str) -> str:
        if file := self._r.file_of(id_):
            return f"give {shown(id_)} a worker: set its spec.replicas to 1 or more in {file}"
        return give_workers(id_)

    def _describe_missing(self, id_: str) -> tuple[str, str]:
        """Return the description of a missing object, and advice."""
        where = "neither in the manifests nor on the server" if self._r.against_server else "not in the manifests"
        fields = {self._field(referrer, id_) for referrer in self._r.graph.referrers(id_)}
        place = f" in {fields.pop()}" if len(fields) == 1 else ""
        near = self._similar_id(id_)
        hint = f"; did you mean {shown(near)}?" if near else ""
        return f"{shown(id_)} is {where}", f"declare it, or correct the name{place}{hint}"

    def _similar_id(self, id_: str) -> str:
        """Return an existing id with a similar name, or an empty text. Bounded, because the search is slow."""
        kind = kind_of(id_)
        self._looked += 1
        if self._looked > NEAR_LOOKS_MAX:
            return ""
        prefix, _, name = id_.rpartition("/")
        if prefix not in self._names:
            there = self._r.objects.list(kind, prefix.partition("/")[2]) if kind is not None else []
            self._names[prefix] = [obj.metadata.name for obj in there]
        match = get_close_matches(name, self._names[prefix], 1)
        return f"{prefix}/{match[0]}" if match else ""

    def _held_up(self, branch: Branch, tree: Tree, below: set[str]) -> HeldUp:
        id_, by = branch.id, branch.by
        if tree.is_circle and not by:
            # A cycle is broken by removing a reference between its members.
            on = next((one for one in self._waits_for(id_) if one in tree.roots), "")
        else:
            on = by
        also = [one for one in self._waits_for(id_) if one not in below]
        node = self._r.view.get(id_)
        outcome = node.outcome if node is not None else None
        reason, message = getattr(outcome, "reason", ""), getattr(outcome, "message", "")
        field = self._field(id_, on)
        return HeldUp(id_, shown(id_), by, field, branch.depth, also, reason, message, *self._position(id_))


def _members(tree: Tree) -> set[str]:
    return {branch.id for branch in tree.branches} | set(tree.roots)


def _display_name(id_: str) -> str:
    """Return the name of an object for people; of any other node, its controller."""
    controller, _, name = id_.partition("/")
    return shown(id_) if kind_of(id_) is not None else f"controller {controller} ({name.strip('/')})"


def _describe_failure(id_: str, error: BaseException) -> str:
    controller = id_.partition("/")[0]
    if isinstance(error, NotConverged):
        message = str(error).removeprefix(id_).strip()
        return f"{_display_name(id_)} {message}" + (f" (controller {controller})" if kind_of(id_) is not None else "")
    text = error.message if isinstance(error, ApiError) else f"{type(error).__name__}: {error}".rstrip(": ")
    who = f"{_display_name(id_)}: controller {controller}" if kind_of(id_) is not None else _display_name(id_)
    return f"{who} failed: {text}"
