"""The controller loop: events of objects wake nodes of the scheduler, whose bodies are reconcilers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Sequence, Set
from typing import Any, Literal, cast

from rota.api import KINDS, Condition, Event, Kind, Object
from rota.api.meta import ReadyState, empty_status
from rota.api.references import referring_kinds, targets_of
from rota.client import Client, Key, Update
from rota.engine.clock import Clock, Limit, RealClock
from rota.engine.metrics import EngineMetrics, Metrics
from rota.engine.objects import Objects
from rota.engine.outcome import DONE, OUTCOMES, Done, Failed, Outcome, Promise, RequeueAfter
from rota.engine.pacing import SPIN_CALM_SECONDS, Backoff, Brake, Looks
from rota.engine.reconciler import Context, Reconciler, Recording
from rota.engine.references import Graph, kind_of
from rota.engine.scheduler import Result, Scheduler
from rota.registry import ApiError

log = logging.getLogger(__name__)

SPINNING = "Spinning"
SPINNING_MESSAGE = "reconciled again and again without coming to rest: slowed down until it does"
DONE_PENDING = Done("Pending")


class ControlLoop:
    """Runs controllers on the objects of one server, for ever or to the fixpoint."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        controllers: Iterable[Reconciler],
        events: Recording,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        live: bool = True,
    ) -> None:
        self._client = client
        self._objects = objects
        self._events = events
        self._clock = clock or RealClock()
        self._patience = self._clock if live else RealClock()
        """The clock for time-outs of reconcilers: virtual time does not pass on the way to the fixpoint."""
        self._live = live
        self.graph = Graph()
        self._controllers = {controller.name: controller for controller in controllers}
        self._by_kind: dict[Kind, Reconciler] = {
            controller.kind.api: controller for controller in self._controllers.values() if controller.kind is not None
        }
        self._routes = _routes(self._controllers.values())
        self._owners = _owners(self._controllers.values())
        self._owning: dict[Kind, list[Reconciler]] = {}
        for controller in self._controllers.values():
            if type(controller).wants is not Reconciler.wants:
                for owned in controller.owns:
                    self._owning.setdefault(owned.api, []).append(controller)
        self._backoff = Backoff()
        self._brake = Brake()
        self._expected: dict[str, object] = {}
        self.cycles: dict[str, tuple[int, tuple[str, ...] | None]] = {}
        self.news = 0
        self.looks = Looks()
        self._spinning: set[str] = set()
        self.scheduler = Scheduler(
            self._dispatch,
            clock=self._clock,
            lane_of=lambda id_: id_.partition("/")[0],
            lane_limit=lambda lane: self._controllers[str(lane)].concurrency,
            live=live,
            concurrency=sum(controller.concurrency for controller in self._controllers.values()) or 1,
        )
        if metrics is not None:
            self.scheduler.observer = EngineMetrics(metrics, self.scheduler.view, _kind_name)
        self.view = self.scheduler.view

    @property
    def kinds(self) -> list[Kind]:
        """Return every kind whose events are needed."""
        return kinds_of(self._controllers.values())

    async def serve(self) -> None:
        """Run for ever, until cancelled."""
        ends = self._begin()
        try:
            ends.append(await self._objects.follow(self.kinds, self._handle))
            await self.scheduler.serve()
        finally:
            for one in ends:
                one()

    async def run(self) -> Result:
        """Run to the fixpoint."""
        ends = self._begin()
        try:
            ends.append(self._objects.listen(self.kinds, self._handle))
            return await self.scheduler.run()
        finally:
            for one in ends:
                one()

    def _begin(self) -> list[Callable[[], None]]:
        """Start every controller. Return the functions that stop them."""
        ends = []
        for controller in self._controllers.values():
            for key in controller.seeds:
                self.scheduler.arrive(_id(controller, key))
            ends.append(controller.begin(self._waker(controller)))
        return ends

    def controller(self, kind: Kind) -> Reconciler | None:
        """Return the controller of a kind; None if there is none."""
        return self._by_kind.get(kind)

    def _waker(self, controller: Reconciler) -> Callable[[Key], None]:
        return lambda key: self.scheduler.arrive(_id(controller, key))

    # Events.

    def _handle(self, kind: Kind, update: Update[Any]) -> None:
        """Handle an event. Errors are logged: they must not reach the writer that caused it."""
        try:
            self._wake_for(kind, update)
        except Exception:
            log.exception("news of %s could not be taken up", kind.key(*update.key))

    def _wake_for(self, kind: Kind, update: Update[Any]) -> None:
        id_ = self._objects.id_of(kind, update.key)
        old, new = update.old, update.new
        if kind in referring_kinds():
            if new is None:
                self.news += 1
                self.graph.remove(id_)
            elif old is None or old.metadata.generation != new.metadata.generation:
                self.news += 1
                self.graph.put(new, id_)
        is_changed = old is None or new is None or _desired(old) != _desired(new)
        if kind in self._by_kind and self._is_wanted(kind, old, new):
            if is_changed or self._is_news(id_, old, new):
                self.scheduler.arrive(id_)
        elif new is not None:
            self.scheduler.arrive(id_, runnable=False)
        self._wake_by_readiness(id_, old, new)
        if is_changed and old is not None and new is not None:
            self._wake_followers(id_)
        unwanted = {owner.name for owner in self._owning.get(kind, ()) if not owner.wants(old, new)}
        for obj in (old, new):
            if obj is not None:
                self._wake_others(kind, obj, unwanted)

    def _is_wanted(self, kind: Kind, old: Object | None, new: Object | None) -> bool:
        """Report whether the controller wants a new object. A plan reconciles every object."""
        return old is not None or new is None or not self._live or self._by_kind[kind].wants(None, new)

    def _is_news(self, id_: str, old: Object | None, new: Object | None) -> bool:
        """Report whether the controller must see a change of the status alone. It needs no echo of its own write."""
        assert new is not None
        status = getattr(new, "status", None)
        if status == getattr(old, "status", None):
            return not new.api.has_status
        if id_ in self._expected and self._expected[id_] == status:
            del self._expected[id_]
            return False
        return True

    def _wake_by_readiness(self, id_: str, old: Object | None, new: Object | None) -> None:
        before, after = _state(old), _state(new)
        if before == after:
            return
        self.news += 1
        if after is not None and after != "Deleting":
            self.scheduler.status(id_, after)
        appeared = before is None or after is None
        for referrer in self.graph.referrers(id_, "existence" if appeared else "readiness"):
            kind = kind_of(referrer)
            if kind in self._by_kind:
                self.scheduler.arrive(referrer)

    def _wake_followers(self, id_: str) -> None:
        for referrer in self.graph.referrers(id_):
            kind = kind_of(referrer)
            if kind in self._by_kind and self._by_kind[kind].follows:
                self.scheduler.arrive(referrer)

    def _wake_others(self, kind: Kind, obj: Object, but: Set[str]) -> None:
        for reference in obj.metadata.owner_references:
            owner = KINDS.get(reference.kind)
            if owner is None or owner.api_version != reference.api_version:
                continue
            if reference.controller and (owner, kind) in self._owners and owner.bucket not in but:
                namespace = obj.metadata.namespace if owner.namespaced else ""
                self.scheduler.arrive(owner.key(namespace, reference.name))
        for controller, to in self._routes.get(kind, ()):
            try:
                keys = list(to(obj))
            except Exception:
                log.exception("%s could not tell what %s means to it", controller.name, obj.metadata.name)
                continue
            for key in keys:
                self.scheduler.arrive(_id(controller, key))

    def expect(self, id_: str, status: object) -> None:
        self._expected[id_] = status

    def unexpect(self, id_: str) -> None:
        self._expected.pop(id_, None)

    def wake(self, id_: str) -> None:
        self.scheduler.arrive(id_)

    # Bodies.

    def _dispatch(self, id_: str, level: int) -> Promise:
        lane, namespace, name = id_.split("/", 2)
        controller = self._controllers[lane]
        key = Key(namespace, name)
        # This run does not see an echo that is still to come, so that must wake the controller afterwards.
        self._expected.pop(id_, None)
        if controller.kind is not None and not self._objects.has(controller.kind.api, namespace, name):
            return self._finalize(controller, key, id_)
        if self._live:
            pause = self._brake.pause(id_, self._clock.now(), controller.spin_runs_max)
            if pause:
                return self._slowed(controller, key, id_, pause)
        context = self._context(id_, level)
        try:
            promise = controller.reconcile(context, key)
        except Exception as error:
            return self._failed(controller, key, id_, error)
        if type(promise) not in OUTCOMES or id_ in self._spinning:
            return _WrappedCoroutine(self._reconciled(controller, context, key, promise), promise)
        self._backoff.succeeded(id_)
        return self._without_readiness(promise)  # type: ignore[arg-type]

    def _finalize(self, controller: Reconciler, key: Key, id_: str) -> Promise:
        """Reconcile a key without an object, and forget its node afterwards."""
        # Forgotten first: a new object of the same name that arrives meanwhile must not be forgotten.
        self._forget(id_)
        try:
            promise = controller.reconcile(self._context(id_, 0), key)
        except Exception as error:
            return self._not_finalized(controller, key, id_, error)
        if type(promise) not in OUTCOMES:
            inner = cast("Awaitable[Outcome]", promise)
            return _WrappedCoroutine(self._finalized(controller, key, id_, inner), inner)
        self._backoff.succeeded(id_)
        return DONE

    async def _finalized(self, controller: Reconciler, key: Key, id_: str, promise: Awaitable[Outcome]) -> Outcome:
        try:
            await promise
        except Exception as error:
            return self._not_finalized(controller, key, id_, error)
        self._backoff.succeeded(id_)
        return DONE

    def _not_finalized(self, controller: Reconciler, key: Key, id_: str, error: Exception) -> Outcome:
        self.scheduler.remember(id_)
        return self._failed(controller, key, id_, error)

    def _context(self, id_: str, level: int) -> Context:
        where = (self._client, self._objects, self.graph, self.view, self._clock, self._events)
        return Context(id_, level, *where, self, self._live)

    def _forget(self, id_: str) -> None:
        self._expected.pop(id_, None)
        self.cycles.pop(id_, None)
        self._spinning.discard(id_)
        self._brake.forget(id_)
        self.scheduler.forget(id_)

    async def _reconciled(self, controller: Reconciler, context: Context, key: Key, promise: Promise) -> Outcome:
        """Await the outcome of a reconcile within its time-out, and update the condition Spinning."""
        id_ = context.id
        try:
            async with Limit(self._patience, controller.timeout_seconds) as limit:
                outcome: Outcome = promise if type(promise) in OUTCOMES else await promise  # type: ignore[assignment, misc]
                if type(outcome) not in OUTCOMES:
                    raise TypeError(f"{outcome!r} is no outcome")
                if self._live:
                    await self._update_spinning(controller, context, key)
            if limit.expired():
                raise TimeoutError(f"not done in {controller.timeout_seconds} s")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and self.scheduler.stopping:
                raise
            return self._failed(controller, key, id_, error)
        self._backoff.succeeded(id_)
        if type(outcome) is Done and id_ in self._spinning:
            # Runs once more when it is calm, to remove the condition.
            return Done("Pending", SPIN_CALM_SECONDS)
        return self._without_readiness(outcome)

    @staticmethod
    def _without_readiness(outcome: Outcome) -> Outcome:
        """Return Pending for Ready: the readiness of an object follows from its events, not from the end of its
        reconcile."""
        if type(outcome) is not Done or outcome.status != "Ready":
            return outcome
        return DONE_PENDING if outcome.again_after is None else Done("Pending", outcome.again_after)

    def _failed(self, controller: Reconciler, key: Key, id_: str, error: BaseException) -> Outcome:
        message = str(error) or type(error).__name__
        if isinstance(error, asyncio.CancelledError):
            message = "it was cancelled"
        if isinstance(error, ApiError) and error.reason == "Conflict" and self._live:
            # A concurrent write was faster, which is no error: run again with the new state as soon as it is here.
            pause = 0.0 if self._client.in_process else self._backoff.conflicted(id_)
            return RequeueAfter(pause, "Conflict", message)
        if not self._live:
            return Failed(reason="ReconcileFailed", message=message, error=error)
        pause = self._backoff.failed(id_)
        log.warning("%s: %s; again in %.1f s", id_, message, pause, exc_info=not isinstance(error, ApiError | OSError))
        self._note(controller, key, "ReconcileFailed", message)
        return RequeueAfter(pause, "ReconcileFailed", message, error)

    def _note(self, controller: Reconciler, key: Key, reason: str, message: str) -> None:
        obj = self._objects.find(controller.kind.api, *key) if controller.kind is not None else None
        if obj is not None:
            self._events.record(obj, "Warning", reason, message)

    async def _slowed(self, controller: Reconciler, key: Key, id_: str, pause: float) -> Outcome:
        """Delay a node that runs over and over."""
        if id_ not in self._spinning:
            log.warning("%s: %s", id_, SPINNING_MESSAGE)
            self._note(controller, key, SPINNING, SPINNING_MESSAGE)
        try:
            await self._update_spinning(controller, self._context(id_, 0), key)
        except (ApiError, OSError) as error:
            log.debug("%s: that it spins could not be said: %s", id_, error)
        return RequeueAfter(pause, SPINNING, SPINNING_MESSAGE)

    async def _update_spinning(self, controller: Reconciler, context: Context, key: Key) -> None:
        """Set or remove the condition Spinning of an object."""
        id_ = context.id
        slowed = self._brake.is_slowed(id_)
        obj: Any = None if controller.kind is None else self._objects.find(controller.kind.api, *key)
        if obj is not None and obj.api.has_status and slowed != _has_spinning(obj):
            await self._write_spinning(context, obj, key, slowed)
        (self._spinning.add if slowed else self._spinning.discard)(id_)

    async def _write_spinning(self, context: Context, obj: Any, key: Key, slowed: bool) -> None:
        # The cached object may be older than what this run has written.
        kind: type[Object] = type(obj)
        obj = await self._client.get(kind, key.name, namespace=key.namespace)
        status = obj.status if obj.status is not None else empty_status(type(obj))
        if slowed:
            condition = Condition(type=SPINNING, status="True", reason="RateLimited", message=SPINNING_MESSAGE)
            await context.write_status(obj, context.condition(obj, status, condition))
        else:
            await context.write_status(obj, context.no_condition(status, SPINNING))


class _WrappedCoroutine:
    """A coroutine that awaits another one. Closing it before it has started closes the other one too."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: Coroutine[Any, Any, Outcome], inner: Promise) -> None:
        self._outer = outer
        self._inner = inner

    def __await__(self) -> Generator[Any, Any, Outcome]:
        return self._outer.__await__()

    def close(self) -> None:
        self._outer.close()
        if isinstance(self._inner, Coroutine):
            self._inner.close()


def _has_spinning(obj: Any) -> bool:
    return obj.status is not None and obj.status.condition(SPINNING) is not None


def _state(obj: Object | None) -> ReadyState | Literal["Deleting"] | None:
    """Return the state of an object for its referrers."""
    if obj is None:
        return None
    return "Deleting" if obj.metadata.deletion_timestamp is not None else obj.readiness().state


def kinds_of(controllers: Collection[Reconciler]) -> list[Kind]:
    """Return every kind that controllers must see: their own, those they own, watch or read, and those they refer
    to."""
    found: dict[Kind, None] = {}
    for controller in controllers:
        if controller.kind is not None:
            found[controller.kind.api] = None
            found.update(dict.fromkeys(targets_of(controller.kind.api)))
        for owned in controller.owns:
            found[owned.api] = None
        for watch in controller.watches:
            found[watch.kind.api] = None
        found.update({read.api: None for read in controller.reads})
    if any(controller.kind is not None for controller in controllers):
        # Events that exist already are not recorded again.
        found[Event.api] = None
    return list(found)


def _routes(controllers: Iterable[Reconciler]) -> dict[Kind, list[tuple[Reconciler, Callable[[Any], Iterable[Key]]]]]:
    routes: dict[Kind, list[tuple[Reconciler, Callable[[Any], Iterable[Key]]]]] = {}
    for controller in controllers:
        for watch in controller.watches:
            routes.setdefault(watch.kind.api, []).append((controller, watch.to))
    return routes


def _owners(controllers: Iterable[Reconciler]) -> frozenset[tuple[Kind, Kind]]:
    return frozenset(
        (controller.kind.api, owned.api)
        for controller in controllers
        if controller.kind is not None
        for owned in controller.owns
    )


def _id(controller: Reconciler, key: Key) -> str:
    return f"{controller.name}/{key.namespace}/{key.name}"


def _desired(obj: Object) -> Sequence[object]:
    """Return the parts of an object that controllers act on."""
    meta = obj.metadata
    version = "" if obj.api.has_status else meta.resource_version
    return (
        meta.uid,
        meta.generation,
        version,
        meta.deletion_timestamp,
        meta.labels,
        meta.annotations,
        meta.finalizers,
        meta.owner_references,
    )


def _kind_name(id_: str) -> str:
    kind = kind_of(id_)
    return kind.name if kind is not None else id_.partition("/")[0]
