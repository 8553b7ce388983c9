"""From a rehearsal to a plan: what becomes ready, in which order; what never does, and why; what was assumed."""

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
from rota.manifest.plan import Rehearsal, is_well
from rota.manifest.planned import Assumed, Cause, CauseType, HeldUp, NotHonoured, Plan, Ready, Summary
from rota.registry import ApiError

NEAR_LOOKS_MAX = 20
"""Missing objects for which one of a similar name is looked for."""


def plan_of(rehearsal: Rehearsal) -> Plan:
    """What a rehearsal came to."""
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
        beyond = dict.fromkeys(id_ for id_ in self._followed if self._beyond(id_))
        unready = [id_ for id_ in self._followed if not self._well(id_) and id_ not in beyond]
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
        """What is written and changes nothing. What is made of it says the same, and is left out."""
        found = []
        for id_ in self._r.written:
            obj = self._followed.get(id_)
            status = getattr(obj, "status", None)
            condition = status.condition(HONOURED) if isinstance(status, ObjectStatus) else None
            if condition is not None and condition.status == "False":
                found.append(NotHonoured(id_, shown(id_), condition.message, *self._place(id_)))
        return found

    def _in_order(self) -> list[Ready]:
        """What becomes ready, step by step. Within a step the order is that of the files."""
        depths: dict[str, int] = {}
        for id_ in self._r.ready:
            obj = self._followed.get(id_)
            before = (*self._needs(id_), *self._children.get(id_, ()), self._owner(obj) if obj is not None else "")
            below = max((depths[one] for one in before if one in depths), default=0)
            # What was there already takes a step only where it had to wait for one that was not.
            depths[id_] = below + 1 if below or obj is not None else 0
        when = {id_: (self._r.ready[id_], depths[id_]) for id_ in self._r.ready if id_ in self._followed}
        when = {id_: moment for id_, moment in when.items() if self._well(id_)}
        steps = {moment: n for n, moment in enumerate(sorted(set(when.values())), 1)}
        ids = sorted((id_ for id_ in self._followed if id_ in when), key=when.__getitem__)
        return [self._ready(id_, steps[when[id_]]) for id_ in ids]

    # How it is with one.

    def _error(self, id_: str) -> BaseException | None:
        """What a controller raised over a node."""
        node = self._r.view.get(id_)
        return node.outcome.error if node is not None and isinstance(node.outcome, Failed) else None

    def _find(self, id_: str) -> Object | None:
        if id_ not in self._found:
            self._found[id_] = self._r.find(id_)
        return self._found[id_]

    def _well(self, id_: str) -> bool:
        obj = self._find(id_)
        return obj is not None and is_well(obj) and self._error(id_) is None

    def _beyond(self, id_: str) -> bool:
        """Nobody here acts on it, so it cannot be told. Those who need it find that out."""
        obj = self._followed[id_]
        return obj.readiness().state == "Pending" and self._r.view.get(id_) is None and not self._children.get(id_)

    def _waits_for(self, id_: str) -> list[str]:
        node = self._r.view.get(id_)
        if self._error(id_) is not None or (kind_of(id_) is not None and self._find(id_) is None):
            return []
        # A pool that is to have no workers is ready as such, and holds up whoever waits for one.
        in_vain = node is not None and getattr(node.outcome, "reason", "") == NO_WORKERS
        on = [one for one in node.on if in_vain or self._holds_up(one)] if node is not None else []
        return on or [child for child in self._children.get(id_, ()) if not self._well(child)]

    def _holds_up(self, id_: str) -> bool:
        if kind_of(id_) is not None:
            return not self._well(id_)
        node = self._r.view.get(id_)
        return node is None or node.state != "done"

    def _failed_controllers(self) -> Iterator[str]:
        """Nodes that are no objects, and failed."""
        return (node.id for node in self._r.view.failed() if kind_of(node.id) is None)

    def _owner(self, obj: Object) -> str:
        references = obj.metadata.owner_references
        chosen = next((one for one in references if one.controller), references[0] if references else None)
        return self._by_uid.get(chosen.uid, "") if chosen is not None else ""

    def _place(self, id_: str) -> tuple[str, int]:
        manifest = self._r.written.get(id_)
        return (manifest.source, manifest.line) if manifest is not None else ("", 0)

    def _needs(self, id_: str) -> list[str]:
        return list(dict.fromkeys(edge.target for edge in self._r.graph.references(id_)))

    def _field(self, id_: str, target: str) -> str:
        return next((edge.path for edge in self._r.graph.references(id_) if edge.target == target), "")

    # What is said of it.

    def _ready(self, id_: str, step: int) -> Ready:
        obj = self._followed[id_]
        skipped = obj.readiness().state == "Skipped"
        made = id_ in self._made
        return Ready(id_, shown(id_), step, skipped, made, self._owner(obj), self._needs(id_), *self._place(id_))

    def _note_elsewhere(self, tree: Tree) -> None:
        below = _below(tree)
        for branch in tree.branches:
            for one in self._waits_for(branch.id):
                if one not in below:
                    self._elsewhere.setdefault(one, []).append(branch.id)

    def _cause(self, tree: Tree) -> Cause:
        id_ = tree.roots[0]
        below = _below(tree)
        held_up = [self._held_up(branch, tree, below) for branch in tree.branches]
        elsewhere = [one for root in dict.fromkeys(tree.roots) for one in self._elsewhere.get(root, ())]
        circle = [shown(one) for one in tree.roots] if tree.is_circle else []
        type_, message, advice = self._told(id_, circle)
        return Cause(type_, id_, _named(id_), circle, message, advice, *self._place(id_), held_up, elsewhere)

    def _told(self, id_: str, circle: list[str]) -> tuple[CauseType, str, str]:
        """What a cause is, in words, and what to do about it."""
        if circle:
            return "Circle", f"{' → '.join(circle)} wait for each other", "take one of these references out"
        error = self._error(id_)
        if error is not None:
            return "Controller", _raised(id_, error), "this is a fault of the controller, not of the manifests"
        if self._find(id_) is None:
            return "Missing", *self._absent(id_)
        if self._well(id_):
            return "Object", f"{shown(id_)} is to have no workers: spec.replicas is 0", self._give_workers(id_)
        why = self._r.explain(id_)
        reason = why.step.message or why.step.reason or "nothing makes it ready"
        return "Object", f"{shown(id_)}: {reason}", why.advice

    def _give_workers(self, id_: str) -> str:
        if file := self._r.file_of(id_):
            return f"give {shown(id_)} a worker: set its spec.replicas to 1 or more in {file}"
        return give_workers(id_)

    def _absent(self, id_: str) -> tuple[str, str]:
        """What is said of something that is not there, and what to do."""
        where = "neither in the manifests nor on the server" if self._r.against_server else "not in the manifests"
        fields = {self._field(referrer, id_) for referrer in self._r.graph.referrers(id_)}
        place = f" in {fields.pop()}" if len(fields) == 1 else ""
        near = self._near(id_)
        hint = f"; did you mean {shown(near)}?" if near else ""
        return f"{shown(id_)} is {where}", f"declare it, or correct the name{place}{hint}"

    def _near(self, id_: str) -> str:
        """What may have been meant by something that is not there. Looked for a few times only: it takes long."""
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
            # Its own part of the circle is what can be taken out.
            on = next((one for one in self._waits_for(id_) if one in tree.roots), "")
        else:
            on = by
        also = [one for one in self._waits_for(id_) if one not in below]
        node = self._r.view.get(id_)
        outcome = node.outcome if node is not None else None
        reason, message = getattr(outcome, "reason", ""), getattr(outcome, "message", "")
        field = self._field(id_, on)
        return HeldUp(id_, shown(id_), by, field, branch.depth, also, reason, message, *self._place(id_))


def _below(tree: Tree) -> set[str]:
    return {branch.id for branch in tree.branches} | set(tree.roots)


def _named(id_: str) -> str:
    """An object as people write it; of any other node, whose it is."""
    lane, _, name = id_.partition("/")
    return shown(id_) if kind_of(id_) is not None else f"controller {lane} ({name.strip('/')})"


def _raised(id_: str, error: BaseException) -> str:
    controller = id_.partition("/")[0]
    if isinstance(error, NotConverged):
        told = str(error).removeprefix(id_).strip()
        return f"{_named(id_)} {told}" + (f" (controller {controller})" if kind_of(id_) is not None else "")
    text = error.message if isinstance(error, ApiError) else f"{type(error).__name__}: {error}".rstrip(": ")
    who = f"{_named(id_)}: controller {controller}" if kind_of(id_) is not None else _named(id_)
    return f"{who} failed: {text}"
