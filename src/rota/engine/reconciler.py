"""What a controller is: which objects it is for, whose news it wants, and what it does about one of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

import msgspec

from rota.api import BY_BUCKET, Condition, Event, Kind, Object
from rota.api.conditions import with_condition, without_condition
from rota.api.references import Need
from rota.api.texts import whole
from rota.client import Client, Key
from rota.engine.node import FORCE
from rota.engine.outcome import DONE, Blocked, Failed, Outcome
from rota.engine.pacing import SPIN_RUNS_MAX, Looks
from rota.engine.paths import shortest_cycle
from rota.engine.recorder import CLUSTER_NAMESPACE, event_name
from rota.engine.references import Dependency, decide, dependencies, id_of
from rota.engine.status_writes import status_write
from rota.registry import ApiError

if TYPE_CHECKING:
    from rota.engine.clock import Clock
    from rota.engine.objects import Objects
    from rota.engine.references import Graph
    from rota.engine.view import View

T = TypeVar("T", bound=Object)

LANE_CONCURRENCY = 8
"""Objects of one kind that are reconciled at once, unless their controller says otherwise."""
CONFLICTS_MAX = 5
"""Conflicts in a row that are tried again at once, each with what is on the server by then."""
TIMEOUT_SECONDS = 60.0
"""How long one reconciliation may take."""


@dataclass(frozen=True, slots=True)
class Watch:
    """News of another kind that a controller wants: from an object that has changed to those that it matters to."""

    kind: type[Object]
    to: Callable[[Any], Iterable[Key]]


class Recording(Protocol):
    """Takes events for people."""

    def record(self, about: Object, type: Literal["Normal", "Warning"], reason: str, message: str) -> None: ...  # noqa: A002


class Memory(Protocol):
    """What the loop keeps for reconcilers from one run to the next. Nothing is lost with it but time."""

    circles: dict[str, tuple[int, tuple[str, ...] | None]]
    """By object, the circle it was in, and after how much news that was so."""
    news: int
    """How much news there was that may have made or broken a circle."""
    looks: Looks
    """What is still looked at for circles."""

    def expect(self, id_: str, status: object) -> None:
        """The news of this status will only be the echo of our own write."""
        ...

    def unexpect(self, id_: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a reconciler works with, in one run."""

    id: str
    level: int
    """The drain level: at 1, fail for what cannot come any more; at 2, for what waits in a circle."""
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
        """What an object refers to, and how each of it is."""
        found = dependencies(obj, self.objects.find, needs=needs)
        return [self._seen_by_engine(d) for d in found]

    def _seen_by_engine(self, d: Dependency) -> Dependency:
        node = self.view.get(d.id) if d.undecided else None
        return d._replace(state="Failed") if node is not None and node.state == "failed" else d

    def held_up(
        self, obj: Object, *, needs: Need | None = None, settled: Collection[str] = (), coming: bool = False
    ) -> Blocked | Failed | None:
        """None if all that an object refers to is as it needs to be; else the outcome that says what is not.

        What is `settled` is not looked at: the object knows what came of it. `coming`: what is absent is taken to be on
        its way.
        """
        found = self.dependencies(obj, needs=needs)
        return decide(
            [d for d in found if d.id not in settled] if settled else found,
            self.level,
            self.view.pending,
            self._cycle,
            coming=coming,
        )

    def _cycle(self, awaited: Collection[str]) -> tuple[str, ...] | None:
        """The circle that the object is in. On the way to a fixpoint it is looked for when nothing else is left."""
        if not self.live:
            return self.view.cycle(self.id) if self.level >= FORCE else None
        known = self.memory.circles.get(self.id)
        if known is not None and known[0] == self.memory.news:
            return known[1]
        namespace, now = self.id.split("/", 2)[1], self.clock.now()
        if not self.memory.looks.are_left(namespace, now):
            # It is looked for again when the object is, which it is from time to time.
            return known[1] if known is not None else None
        looked_at = 0

        def unmet(at: str) -> Collection[str]:
            nonlocal looked_at
            looked_at += 1
            return awaited if at == self.id else self._unmet(at)

        circle = shortest_cycle(self.id, unmet)
        self.memory.looks.take(namespace, looked_at, now)
        self.memory.circles[self.id] = (self.memory.news, circle)
        return circle

    def _unmet(self, id_: str) -> list[str]:
        """What an object that is not ready refers to, and needs to be ready."""
        # Whether those are is asked when it is their turn: once, however many refer to them.
        edges = self.graph.references(id_)
        needed = [edge.target for edge in edges if edge.needs == "readiness"]
        return needed if needed and not self._is_ready(id_) else []

    def _is_ready(self, id_: str) -> bool:
        bucket, namespace, name = id_.split("/", 2)
        obj = self.objects.find(BY_BUCKET[bucket], namespace, name)
        return obj is not None and obj.readiness().state == "Ready"

    def tell_once(self, obj: Object, reason: str, message: str) -> None:
        """Record a warning, unless it is there already: said by an earlier run, process or leader."""
        message = whole(message)
        name = event_name(obj.metadata.name, obj.metadata.uid, "Warning", reason, message)
        if self.objects.find(Event.api, obj.metadata.namespace or CLUSTER_NAMESPACE, name) is None:
            self.events.record(obj, "Warning", reason, message)

    async def write_status(self, obj: T, status: Any) -> T:
        """Write a status, if it differs. Refused with 409 when the object has changed since it was read."""
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
        """A status with a condition in it."""
        now = self.clock.time()
        message, generation = whole(condition.message), obj.metadata.generation
        placed = msgspec.structs.replace(condition, message=message, observed_generation=generation)
        conditions = with_condition(status.conditions, placed, now)
        return msgspec.structs.replace(status, conditions=conditions)

    @staticmethod
    def no_condition(status: Any, type_: str) -> Any:
        """A status without a condition."""
        return msgspec.structs.replace(status, conditions=without_condition(status.conditions, type_))


class Reconciler:
    """Brings one thing to what it should be, step by step; it is run again whenever something it depends on changes.

    It reads what is there now and never relies on what it was woken by. To be run once too often must do no harm.
    """

    name: str
    """The lane: unique among controllers."""
    kind: type[Object] | None = None
    """The kind it is for, and whose status it alone writes. None: its nodes are `seeds` and those `watches` name."""
    owns: tuple[type[Object], ...] = ()
    """Kinds of objects that it makes: their news is news of their owner."""
    watches: tuple[Watch, ...] = ()
    reads: tuple[type[Object], ...] = ()
    """Other kinds that it looks at when it is run, and whose news is nothing to it."""
    follows = False
    """Whether any change of what its objects refer to is news to them, and not only that it is there, or ready."""
    seeds: tuple[Key, ...] = ()
    concurrency = LANE_CONCURRENCY
    timeout_seconds = TIMEOUT_SECONDS
    spin_runs_max = SPIN_RUNS_MAX
    """Runs of one node within ten seconds; beyond that it is taken not to come to rest, and slowed down."""

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        """The loop begins. `wake` has one of our nodes looked at: for news that is not in objects. Returns the end."""
        return lambda: None

    def overhear(self, old: Object | None, new: Object | None) -> bool:
        """News of an object of a kind that it owns. Whether that is all: then its owner is not looked at for it."""
        return False

    def is_settled(self, obj: Any) -> bool:
        """Report whether an object that has just come needs nothing, so that this is not run for it."""
        return False

    def at_once(self, context: Context, key: Key) -> Outcome | None:
        """The outcome, where that is plain without waiting for anything; None: `reconcile` has to find out."""
        return None

    async def reconcile(self, context: Context, key: Key) -> Outcome:
        """Do what there is to do."""
        raise NotImplementedError

    def told(self, objects: Objects, obj: Any) -> tuple[str, str] | None:
        """Why an object of its kind waits, as things are now: reason and message. None: its status says all."""
        return None

    def gone_at_once(self, context: Context, key: Key) -> bool:
        """There is no object of this name, or no longer: tidy up, as far as nothing has to be waited for.

        Returns whether that was all; else `gone` does the rest.
        """
        return type(self).gone is Reconciler.gone

    async def gone(self, context: Context, key: Key) -> None:
        """There is no object of this name, or no longer: tidy up what may be left of it. Tried again if it fails."""


class ObjectReconciler(Reconciler, Generic[T]):
    """A reconciler of the objects of a kind: it is handed the object as it is now."""

    kind: type[T]

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self.name = kind.api.bucket

    async def look(self, context: Context, obj: T) -> Outcome:
        """Do what there is to do for an object."""
        raise NotImplementedError

    async def reconcile(self, context: Context, key: Key) -> Outcome:
        obj: Any = context.find(self.kind.api, *key)
        for attempt in range(CONFLICTS_MAX + 1):
            if obj is None:
                return DONE
            try:
                return await self.look(context, obj)
            except ApiError as error:
                if error.reason not in ("Conflict", "NotFound") or attempt == CONFLICTS_MAX:
                    raise
                obj = await self._fresh(context, key)
                if obj is not None and error.reason == "NotFound":
                    raise  # Something else is not there.
        raise AssertionError("the last attempt returns or raises")

    async def _fresh(self, context: Context, key: Key) -> Any:
        """An object as the server has it now: what is known of it may be behind."""
        kind: Any = self.kind
        try:
            return await context.client.get(kind, key.name, namespace=key.namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
