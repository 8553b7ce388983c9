"""Reconcilers: their kinds, the events that wake them, and the work on one object."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

import msgspec

from rota.api import BY_BUCKET, Condition, Event, Kind, Object
from rota.api.field_rules import whole
from rota.api.meta import with_condition, without_condition
from rota.api.references import Need
from rota.client import Client, Key, Operation, status_body
from rota.engine.cycles import shortest_cycle
from rota.engine.node import FORCE
from rota.engine.outcome import DONE, Blocked, Failed, Outcome, Promise
from rota.engine.pacing import SPIN_RUNS_MAX, Looks
from rota.engine.recorder import CLUSTER_NAMESPACE, event_name
from rota.engine.references import Dependency, decide, dependencies, id_of
from rota.registry import ApiError
from rota.registry.amendment import Amendment

if TYPE_CHECKING:
    from rota.engine.clock import Clock
    from rota.engine.objects import Objects
    from rota.engine.references import Graph
    from rota.engine.view import View

T = TypeVar("T", bound=Object)

LANE_CONCURRENCY = 8
"""Default bound on the concurrent reconciles of one controller."""
CONFLICTS_MAX = 5
"""Bound on immediate retries after conflicts, each with the object from the server."""
TIMEOUT_SECONDS = 60.0
"""Default time-out of one reconcile."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch of another kind: `to` maps a changed object to the keys to reconcile."""

    kind: type[Object]
    to: Callable[[Any], Iterable[Key]]


class Recording(Protocol):
    """A recorder of Events."""

    def record(self, about: Object, type: Literal["Normal", "Warning"], reason: str, message: str) -> None: ...  # noqa: A002


class Memory(Protocol):
    """State that the loop keeps between reconciles. It is a cache: losing it costs only time."""

    cycles: dict[str, tuple[int, tuple[str, ...] | None]]
    """By object, the cycle it was in, and the number of `news` at that time."""
    news: int
    """Number of events that may have made or broken a cycle."""
    looks: Looks
    """The budget of searches for cycles."""

    def expect(self, id_: str, status: object) -> None:
        """Note an own write of a status: its echo wakes nothing."""
        ...

    def unexpect(self, id_: str) -> None: ...

    def wake(self, id_: str) -> None:
        """Have an object reconciled."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """The context of one reconcile."""

    id: str
    level: int
    """The drain level: at 1, fail for dependencies that cannot come any more; at 2, for those in a cycle."""
    client: Client
    objects: Objects
    graph: Graph
    view: View
    clock: Clock
    events: Recording
    memory: Memory
    live: bool

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self.objects.find(kind, namespace, name)

    def dependencies(self, obj: Object, *, needs: Need | None = None) -> list[Dependency]:
        """Return the dependencies of an object, with their states."""
        found = dependencies(obj, self.objects.find, needs=needs)
        return [self._with_engine_state(d) for d in found]

    def _with_engine_state(self, d: Dependency) -> Dependency:
        node = self.view.get(d.id) if d.undecided else None
        return d._replace(state="Failed") if node is not None and node.state == "failed" else d

    def held_up(
        self, obj: Object, *, needs: Need | None = None, ignored: Collection[str] = (), coming: bool = False
    ) -> Blocked | Failed | None:
        """Return None if all dependencies of an object are as needed; else the outcome that says which are not.

        Dependencies in `ignored` are not checked: their outcome is known. `coming`: absent ones are expected
        to be created.
        """
        found = self.dependencies(obj, needs=needs)
        return decide(
            [d for d in found if d.id not in ignored] if ignored else found,
            self.level,
            self.view.pending,
            self._cycle,
            coming=coming,
        )

    def _cycle(self, awaited: Collection[str]) -> tuple[str, ...] | None:
        """Return the cycle that the object is in.

        On the way to a fixpoint it is only searched at the last drain level.
        """
        if not self.live:
            return self.view.cycle(self.id) if self.level >= FORCE else None
        known = self.memory.cycles.get(self.id)
        if known is not None and known[0] == self.memory.news:
            return known[1]
        namespace, now = self.id.split("/", 2)[1], self.clock.now()
        if not self.memory.looks.are_left(namespace, now):
            # The budget is used up: search at the next relook of the object.
            return known[1] if known is not None else None
        looked_at = 0

        def unmet(at: str) -> Collection[str]:
            nonlocal looked_at
            looked_at += 1
            return awaited if at == self.id else self._unmet(at)

        cycle = shortest_cycle(self.id, unmet)
        self.memory.looks.take(namespace, looked_at, now)
        self.memory.cycles[self.id] = (self.memory.news, cycle)
        return cycle

    def _unmet(self, id_: str) -> list[str]:
        """Return the ids that an unready object needs to be ready."""
        # Their readiness is checked when they are visited: once, however many refer to them.
        edges = self.graph.references(id_)
        needed = [edge.target for edge in edges if edge.needs == "readiness"]
        return needed if needed and not self._is_ready(id_) else []

    def _is_ready(self, id_: str) -> bool:
        bucket, namespace, name = id_.split("/", 2)
        obj = self.objects.find(BY_BUCKET[bucket], namespace, name)
        return obj is not None and obj.readiness().state == "Ready"

    def warn_once(self, obj: Object, reason: str, message: str) -> None:
        """Record a warning, unless an earlier run, process or leader has recorded it."""
        message = whole(message)
        name = event_name(obj.metadata.name, obj.metadata.uid, "Warning", reason, message)
        if self.objects.find(Event.api, obj.metadata.namespace or CLUSTER_NAMESPACE, name) is None:
            self.events.record(obj, "Warning", reason, message)

    async def write_status(self, obj: T, status: Any) -> T:
        """Write a status if it differs. Raises `ApiError` 409 if the object has changed since it was read."""
        if getattr(obj, "status", None) == status:
            return obj
        id_ = id_of(obj)
        self.memory.expect(id_, status)
        changed = msgspec.structs.replace(obj, status=status)
        try:
            if not self.client.in_process:
                return await self.client.update_status(changed)
            (written,) = await self.client.batch([status_write(self.client, changed)], typed=True)
            return cast("T", written)
        except BaseException:
            self.memory.unexpect(id_)
            raise

    def condition(self, obj: Object, status: Any, condition: Condition) -> Any:
        """Return a status with a condition."""
        now = self.clock.time()
        message, generation = whole(condition.message), obj.metadata.generation
        placed = msgspec.structs.replace(condition, message=message, observed_generation=generation)
        conditions = with_condition(status.conditions, placed, now)
        return msgspec.structs.replace(status, conditions=conditions)

    @staticmethod
    def no_condition(status: Any, type_: str) -> Any:
        """Return a status without a condition."""
        return msgspec.structs.replace(status, conditions=without_condition(status.conditions, type_))


class Reconciler:
    """Brings objects to the state that their specs ask for.

    It is level-based: it gets a key, reads what is there now, and never relies on the event that woke it. An extra run
    must do no harm. Four methods, of which only `reconcile` has to be written:

    - `begin` starts what feeds it events that are not objects.
    - `wants` filters events before they wake it.
    - `reconcile` does the work.
    - `why_waiting` explains a wait that is not written into a status.
    """

    name: str
    """The lane: unique among controllers."""
    kind: type[Object] | None = None
    """The kind whose objects it reconciles; it is the one writer of their status. None: it reconciles the keys in
    `seeds` and those that `watches` return."""
    owns: tuple[type[Object], ...] = ()
    """Kinds that it creates: an event of such an object wakes its controlling owner."""
    watches: tuple[Watch, ...] = ()
    reads: tuple[type[Object], ...] = ()
    """Further kinds that it reads, whose events wake nothing."""
    follows = False
    """Wake an object for every change of what it refers to. False: only when that is created, deleted, or its readiness
    changes."""
    seeds: tuple[Key, ...] = ()
    concurrency = LANE_CONCURRENCY
    timeout_seconds = TIMEOUT_SECONDS
    spin_runs_max = SPIN_RUNS_MAX
    """Runs of one key in ten seconds; past that the key is slowed down and gets the condition Spinning."""

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        """Start sources of events outside the API; `wake` queues a key. Returns the function that stops them."""
        return lambda: None

    def wants(self, old: Object | None, new: Object | None) -> bool:
        """Return False if this event needs no reconcile.

        Asked for every event of the kinds in `owns` and for each object of `kind` that is new (`old` is None). It runs
        before the write that caused the event returns, so it must be quick and must not raise.
        """
        return True

    def reconcile(self, context: Context, key: Key) -> Promise:
        """Bring the object at `key` to its spec. Return the outcome if it is known at once, else what to await for it.

        Also called for a key whose object is deleted, until that returns: then remove what is left of it. Never called
        twice at the same time for one key. An exception is retried with back-off.
        """
        raise NotImplementedError

    def why_waiting(self, objects: Objects, obj: Any) -> tuple[str, str] | None:
        """Return reason and message of an object's wait as of now; None if its status says it all."""
        return None


class ObjectReconciler(Reconciler, Generic[T]):
    """A reconciler of the objects of one kind: `sync` gets the object, `gone` the key of one that is deleted."""

    kind: type[T]

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self.name = kind.api.bucket

    async def sync(self, context: Context, obj: T) -> Outcome:
        """Bring the object to its spec. Called again at once, with the object from the server, after a conflict."""
        raise NotImplementedError

    def gone(self, context: Context, key: Key) -> Promise:
        """Clean up after a deleted object."""
        return DONE

    def reconcile(self, context: Context, key: Key) -> Promise:
        obj: Any = context.find(self.kind.api, *key)
        return self.gone(context, key) if obj is None else self._sync(context, key, obj)

    async def _sync(self, context: Context, key: Key, obj: T) -> Outcome:
        found: T | None = obj
        for attempt in range(CONFLICTS_MAX + 1):
            if found is None:
                return DONE
            try:
                return await self.sync(context, found)
            except ApiError as error:
                if error.reason not in ("Conflict", "NotFound") or attempt == CONFLICTS_MAX:
                    raise
                found = await self._fresh(context, key)
                if found is not None and error.reason == "NotFound":
                    raise  # Another object is missing.
        raise AssertionError("the last attempt returns or raises")

    async def _fresh(self, context: Context, key: Key) -> T | None:
        """Read the object from the server: the cache may be behind."""
        assert self.kind is not None
        try:
            return cast("T", await context.client.get(self.kind, key.name, namespace=key.namespace))
        except ApiError as error:
            if error.code == 404:
                return None
            raise


def status_write(client: Client, obj: Object) -> Operation:
    """Return the operation that writes the status of an object; it is refused if the object has changed since."""
    meta = obj.metadata
    if client.in_process:
        status = msgspec.to_builtins(getattr(obj, "status", None))
        change = Amendment(meta.uid, meta.resource_version, status=status)
        return Operation("amend", obj.api, meta.namespace, meta.name, change)
    return Operation("update", obj.api, meta.namespace, meta.name, status_body(obj), subresource="status")
