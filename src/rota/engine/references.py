"""What objects need of each other, from what their kinds declare: the graph, its cycles, and whether one may go on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from rota.api import BY_BUCKET, Kind, Object, Readiness
from rota.api.references import Need, Reference, references, referring_kinds
from rota.engine.node import CASCADE, FORCE
from rota.engine.outcome import Blocked, Failed
from rota.engine.paths import shortest_cycle

Find = Callable[[Kind, str, str], Object | None]

NOT_FOUND, FAILED, NOT_READY, CYCLE = "DependencyNotFound", "DependencyFailed", "DependencyNotReady", "DependencyCycle"
SKIPPED = "DependencySkipped"
"""Why an object cannot go on. To wait for what is on its way is in order; the others a person should notice."""
NAMED_AT_ONCE_MAX = 10
"""Objects that one message names."""
LATELY_MAX = 256
"""Objects whose references are remembered for a moment."""
ALIKE_MAX = 1_024
"""Sets of references that are recognised as the same."""


def id_of(obj: Object) -> str:
    """The node of an object."""
    return obj.api.key(obj.metadata.namespace, obj.metadata.name)


def kind_of(id_: str) -> Kind | None:
    """The kind of the object that a node is, if it is one."""
    return BY_BUCKET.get(id_.partition("/")[0])


def shown(id_: str) -> str:
    """A node as people write it: `Task/name`, with the namespace in between unless it is the default one."""
    bucket, namespace, name = id_.split("/", 2)
    kind = BY_BUCKET.get(bucket)
    place = f"{namespace}/" if namespace not in ("", "default") else ""
    return f"{kind.name if kind else bucket}/{place}{name}"


def references_of(obj: Object) -> Sequence[Reference]:
    """What an object refers to."""
    kind = obj.api
    if kind not in referring_kinds():
        return ()
    # The graph asks first, and the object's controller soon after that, of the same object.
    known = _lately.get(id(obj))
    if known is not None and known[0] is obj:
        return known[1]
    found = references(kind, {"spec": msgspec.to_builtins(getattr(obj, "spec", None))})
    if len(_lately) >= LATELY_MAX:
        del _lately[next(iter(_lately))]
    _lately[id(obj)] = obj, found
    return found


_lately: dict[int, tuple[Object, Sequence[Reference]]] = {}
"""Objects that were looked at lately, by their identity, and what they refer to."""


def target_of(obj: Object, reference: Reference) -> str:
    """The node that a reference means: in the namespace of the object that refers."""
    kind = reference.kind
    return kind.key(obj.metadata.namespace if kind.namespaced else "", reference.name)


class Edge(NamedTuple):
    """One object refers to another."""

    path: str
    target: str
    needs: Need


@lru_cache(maxsize=ALIKE_MAX)
def _one_of_a_kind(edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
    """The same edges, in memory once for all that refer to the same."""
    return edges


class Graph:
    """Who refers to whom, of all objects that are there. What is referred to need not be there."""

    def __init__(self) -> None:
        self._out: dict[str, tuple[Edge, ...]] = {}
        self._in: dict[str, dict[str, Need]] = {}

    def put(self, obj: Object, id_: str | None = None) -> None:
        """An object is there, or has changed. Who has its id at hand shares the text."""
        id_ = id_ or id_of(obj)
        self.remove(id_)
        edges = _one_of_a_kind(tuple(Edge(r.path, target_of(obj, r), r.needs) for r in references_of(obj)))
        if edges:
            self._out[id_] = edges
        for edge in edges:
            referrers = self._in.setdefault(edge.target, {})
            if referrers.get(id_) != "readiness":
                referrers[id_] = edge.needs

    def remove(self, id_: str) -> None:
        """An object is gone."""
        for edge in self._out.pop(id_, ()):
            referrers = self._in.get(edge.target)
            if referrers is not None:
                referrers.pop(id_, None)
                if not referrers:
                    del self._in[edge.target]

    def references(self, id_: str) -> Sequence[Edge]:
        """What an object refers to, in the order of its fields."""
        return self._out.get(id_, ())

    def referrers(self, id_: str, needs: Need | None = None) -> list[str]:
        """Those that refer to an object; with `needs`, only those that need no less of it."""
        found = self._in.get(id_, {})
        return sorted(one for one, need in found.items() if needs in (None, "existence") or need == "readiness")

    def some_referrers(self, id_: str, most: int) -> list[str]:
        """So many of those that refer to an object, and no more, however many there are."""
        return sorted(islice(self._in.get(id_, ()), most))

    def cycle(self, id_: str) -> tuple[str, ...] | None:
        """The shortest circle of references through an object, both ends included."""
        return shortest_cycle(id_, lambda at: (edge.target for edge in self._out.get(at, ())))

    def __len__(self) -> int:
        return sum(map(len, self._out.values()))


def cycle_message(cycle: Iterable[str]) -> str:
    return f"dependency cycle detected: {' → '.join(map(shown, cycle))}"


class Dependency(NamedTuple):
    """Something that an object needs, and how it is."""

    id: str
    path: str
    state: Literal["Absent", "Pending", "Failed", "Skipped", "Ready"]
    readiness: Readiness

    @property
    def undecided(self) -> bool:
        """Whether it may still come to be what is needed, without having to change."""
        return self.state not in ("Failed", "Skipped", "Ready")


def dependencies(obj: Object, find: Find, *, needs: Need | None = None) -> list[Dependency]:
    """What an object refers to and how each of it is, once each. `needs` overrides what is needed of each."""
    found: dict[str, Dependency] = {}
    for reference in references_of(obj):
        id_ = target_of(obj, reference)
        needed = needs or reference.needs
        known = found.get(id_)
        if known is None or (needed == "readiness" and known.state == "Ready"):
            found[id_] = _look(id_, reference, find, needed)
    return list(found.values())


def _look(id_: str, reference: Reference, find: Find, needs: Need) -> Dependency:
    _, namespace, name = id_.split("/", 2)
    there = find(reference.kind, namespace, name)
    if there is None:
        return Dependency(id_, reference.path, "Absent", Readiness("Pending", "NotFound", "not found"))
    readiness = there.readiness()
    if there.metadata.deletion_timestamp is not None:
        readiness = Readiness("Pending", "Deleting", "it is being deleted")
    state = "Ready" if needs == "existence" else readiness.state
    return Dependency(id_, reference.path, state, readiness)


def decide(
    needed: Collection[Dependency],
    level: int,
    pending: Callable[[str], bool],
    cycle: Callable[[Collection[str]], tuple[str, ...] | None],
    *,
    coming: bool = False,
) -> Blocked | Failed | None:
    """Whether an object may go on: None if so, else what it says.

    It fails only when all that it needs is decided, so that what it says does not depend on what was first. `cycle`
    finds the circle that the object is in, given what it waits for. `coming`: what is absent is taken to be on its way,
    and while the object waits for it that is not called an error.
    """
    undecided = [d for d in needed if d.undecided]
    failed = [d for d in needed if d.state in ("Failed", "Skipped")]
    if not undecided and not failed:
        return None
    path = cycle([d.id for d in undecided]) if undecided or level >= FORCE else None
    if path is not None and level >= FORCE:
        because = tuple(sorted(d.id for d in (*undecided, *failed)))
        return Failed(because, CYCLE, cycle_message(path))
    waiting = undecided
    if level == CASCADE:
        waiting = [d for d in undecided if pending(d.id)]
    elif level >= FORCE:
        waiting = []
    if waiting:
        on = tuple(sorted(d.id for d in undecided))
        if path is not None:
            return Blocked(on, CYCLE, cycle_message(path))
        return Blocked(on, *_reason(undecided, coming=coming))
    because = tuple(sorted(d.id for d in (*undecided, *failed)))
    return Failed(because, *_reason([*undecided, *failed]))


def _reason(unmet: Sequence[Dependency], *, coming: bool = False) -> tuple[str, str]:
    """The reason of the worst, and a sentence on all."""
    absent = [d for d in unmet if d.state == "Absent"]
    failed = [d for d in unmet if d.state == "Failed"]
    skipped = [d for d in unmet if d.state == "Skipped"]
    others = [d for d in unmet if d.undecided and d.state != "Absent"]
    parts = []
    if absent:
        what = "not there yet" if coming else "dependency not found"
        parts.append(f"{what}: {_names(absent, lambda d: f' ({d.path})')}")
    if failed:
        parts.append(f"dependencies failed: {_names(failed)}")
    if skipped:
        parts.append(f"dependencies skipped: {_names(skipped, _how)}")
    if others:
        parts.append(f"not ready: {_names(others, _how)}")
    reason = NOT_FOUND if absent and not coming else FAILED if failed else SKIPPED if skipped else NOT_READY
    return reason, "; ".join(parts)


def _how(d: Dependency) -> str:
    return f" ({d.readiness.reason})" if d.readiness.reason else ""


def _names(some: Sequence[Dependency], note: Callable[[Dependency], str] = lambda d: "") -> str:
    names = [shown(d.id) + note(d) for d in sorted(some, key=lambda d: d.id)]
    more = len(names) - NAMED_AT_ONCE_MAX
    return ", ".join(names[:NAMED_AT_ONCE_MAX]) + (f" and {more} more" if more > 0 else "")
