"""References between objects as dependencies: the graph, its cycles, and the readiness of dependencies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from rota.api import BY_BUCKET, Kind, Object, Readiness
from rota.api.references import Need, Reference, references, referring_kinds
from rota.engine.cycles import shortest_cycle
from rota.engine.node import CASCADE, FORCE
from rota.engine.outcome import Blocked, Failed

Find = Callable[[Kind, str, str], Object | None]

NOT_FOUND, FAILED, NOT_READY, CYCLE = "DependencyNotFound", "DependencyFailed", "DependencyNotReady", "DependencyCycle"
SKIPPED = "DependencySkipped"
"""Reasons of dependencies. DependencyNotReady is normal; people should notice the others."""
NAMED_AT_ONCE_MAX = 10
"""Bound on the objects that one message names."""
CACHED_MAX = 256
"""Bound on the objects whose references are cached."""
INTERNED_MAX = 1_024
"""Bound on the interned sets of references."""


def id_of(obj: Object) -> str:
    """Return the node id of an object."""
    return obj.api.key(obj.metadata.namespace, obj.metadata.name)


def kind_of(id_: str) -> Kind | None:
    """Return the kind of a node's object; None if the node is no object."""
    return BY_BUCKET.get(id_.partition("/")[0])


def shown(id_: str) -> str:
    """Return a node as people write it: `Task/name`, with the namespace in between unless it is default."""
    bucket, namespace, name = id_.split("/", 2)
    kind = BY_BUCKET.get(bucket)
    place = f"{namespace}/" if namespace not in ("", "default") else ""
    return f"{kind.name if kind else bucket}/{place}{name}"


def references_of(obj: Object) -> Sequence[Reference]:
    """Return the references of an object."""
    kind = obj.api
    if kind not in referring_kinds():
        return ()
    # The graph and, soon after, the object's controller ask for the same object.
    known = _cached.get(id(obj))
    if known is not None and known[0] is obj:
        return known[1]
    found = references(kind, {"spec": msgspec.to_builtins(getattr(obj, "spec", None))})
    if len(_cached) >= CACHED_MAX:
        del _cached[next(iter(_cached))]
    _cached[id(obj)] = obj, found
    return found


_cached: dict[int, tuple[Object, Sequence[Reference]]] = {}
"""The cached references of objects, by the `id()` of the object."""


def target_of(obj: Object, reference: Reference) -> str:
    """Return the node id of a reference, in the namespace of the referring object."""
    kind = reference.kind
    return kind.key(obj.metadata.namespace if kind.namespaced else "", reference.name)


class Edge(NamedTuple):
    """A reference from one object to another."""

    path: str
    target: str
    needs: Need


@lru_cache(maxsize=INTERNED_MAX)
def _interned(edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
    """Intern edges, which many objects share."""
    return edges


class Graph:
    """The references of all existing objects. Their targets need not exist."""

    def __init__(self) -> None:
        self._out: dict[str, tuple[Edge, ...]] = {}
        self._in: dict[str, dict[str, Need]] = {}

    def put(self, obj: Object, id_: str | None = None) -> None:
        """Add or update an object. `id_` saves making the id anew."""
        id_ = id_ or id_of(obj)
        self.remove(id_)
        edges = _interned(tuple(Edge(r.path, target_of(obj, r), r.needs) for r in references_of(obj)))
        if edges:
            self._out[id_] = edges
        for edge in edges:
            referrers = self._in.setdefault(edge.target, {})
            if referrers.get(id_) != "readiness":
                referrers[id_] = edge.needs

    def remove(self, id_: str) -> None:
        """Remove an object."""
        for edge in self._out.pop(id_, ()):
            referrers = self._in.get(edge.target)
            if referrers is not None:
                referrers.pop(id_, None)
                if not referrers:
                    del self._in[edge.target]

    def references(self, id_: str) -> Sequence[Edge]:
        """Return the references of an object, in the order of its fields."""
        return self._out.get(id_, ())

    def referrers(self, id_: str, needs: Need | None = None) -> list[str]:
        """Return the referrers of an object; with `needs`, only those that need at least that."""
        found = self._in.get(id_, {})
        return sorted(one for one, need in found.items() if needs in (None, "existence") or need == "readiness")

    def some_referrers(self, id_: str, most: int) -> list[str]:
        """Return some referrers of an object, at most `most`."""
        return sorted(islice(self._in.get(id_, ()), most))

    def cycle(self, id_: str) -> tuple[str, ...] | None:
        """Return the shortest cycle of references through an object, both ends included."""
        return shortest_cycle(id_, lambda at: (edge.target for edge in self._out.get(at, ())))

    def __len__(self) -> int:
        return sum(map(len, self._out.values()))


def cycle_message(cycle: Iterable[str]) -> str:
    return f"dependency cycle detected: {' → '.join(map(shown, cycle))}"


class Dependency(NamedTuple):
    """A dependency of an object, with its state."""

    id: str
    path: str
    state: Literal["Absent", "Pending", "Failed", "Skipped", "Ready"]
    readiness: Readiness

    @property
    def undecided(self) -> bool:
        """Report whether it may still become ready without being changed."""
        return self.state not in ("Failed", "Skipped", "Ready")


def dependencies(obj: Object, find: Find, *, needs: Need | None = None) -> list[Dependency]:
    """Return the dependencies of an object, each once, with its state. `needs` overrides the need of each."""
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
    """Return None if the dependencies of an object are as needed; else the outcome of its reconcile.

    The outcome is Failed only when all dependencies are decided, so that the message does not depend on their order.
    `cycle` finds the cycle that the object is in, given the ids it waits for. `coming`: absent ones are expected to be
    created, and waiting for them is not reported as an error.
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
    """Return the reason of the worst unmet dependency, and a message about all of them."""
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
        parts.append(f"dependencies skipped: {_names(skipped, _reason_note)}")
    if others:
        parts.append(f"not ready: {_names(others, _reason_note)}")
    reason = NOT_FOUND if absent and not coming else FAILED if failed else SKIPPED if skipped else NOT_READY
    return reason, "; ".join(parts)


def _reason_note(d: Dependency) -> str:
    return f" ({d.readiness.reason})" if d.readiness.reason else ""


def _names(some: Sequence[Dependency], note: Callable[[Dependency], str] = lambda d: "") -> str:
    names = [shown(d.id) + note(d) for d in sorted(some, key=lambda d: d.id)]
    more = len(names) - NAMED_AT_ONCE_MAX
    return ", ".join(names[:NAMED_AT_ONCE_MAX]) + (f" and {more} more" if more > 0 else "")
