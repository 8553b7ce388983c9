"""Calls of functions: from the caller to a worker, and back.

The edge and the controllers of a server share one object for all functions. Its state can be rebuilt from objects and
runners' reports, except for the calls under way, which are lost with the process.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from msgspec import Raw

from rota.api import Function, Instance
from rota.client import Key
from rota.control.functions.metrics import FunctionMetrics
from rota.control.functions.planning import Version
from rota.control.functions.routing import Worker
from rota.control.functions.served import BegunCall, CallOutcome, CallRequest, NotCalled, ServedFunction
from rota.control.instances.names import controller_of, subject_of
from rota.engine.clock import Clock, Limit
from rota.engine.metrics import Metrics
from rota.engine.objects import Objects, get
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import Call, Called, CancelCall, Report
from rota.runtime.runners import Runners

WAITING_MAX = 1024
"""Calls of one function, without those of tasks, that wait for a worker."""
WAIT_SECONDS_MAX = 30.0
"""The longest that such a call waits for a worker."""
GUARD_SECONDS = 5.0
"""Time after a call's timeout by which its runner must have reported the end. After that the worker counts as lost."""
RETRY_SECONDS = 1
"""`Retry-After` of a call that was refused because too many wait."""


class FunctionListener(NamedTuple):
    """Callbacks for the events of functions and workers."""

    outgrown: Callable[[Key], None] = lambda key: None
    """A function needs more workers than it has."""
    changed: Callable[[Key], None] = lambda key: None
    """A worker of a function has come, gone, or sent another report."""
    counted: Callable[[Key], None] = lambda key: None
    """A call of a function has ended."""
    stuck: Callable[[Subject], None] = lambda subject: None
    """A worker has not reported the end of a call in time."""


class Calls:
    """The calls of all functions of a server. `begin` when this process leads."""

    def __init__(self, objects: Objects, runners: Runners, clock: Clock) -> None:
        self._objects = objects
        self._runners = runners
        self.clock = clock
        self._served: dict[Key, ServedFunction] = {}
        self._served_by_worker: dict[str, ServedFunction] = {}
        """The function of each worker, by the worker's uid."""
        self._under_way: dict[str, asyncio.Future[Called | None]] = {}
        """The results of calls under way, by the call's id. None: the worker is lost."""
        self._running_on: dict[str, Subject] = {}
        self.epoch = secrets.token_hex(8)
        """Identifies this process, since the numbers of calls begin anew in each."""
        self._numbers = itertools.count(1)
        self.serves = False
        self.metrics = FunctionMetrics(Metrics())
        self._listener = FunctionListener()

    def use_metrics(self, metrics: FunctionMetrics) -> None:
        """Count calls in these metrics from now on."""
        self.metrics = metrics
        metrics.watch(lambda: {key: served.routing for key, served in self._served.items()})

    def begin(self, listener: FunctionListener) -> Callable[[], None]:
        self._listener = listener
        ends = (self._runners.listen(self._report_changed), self._runners.on_call_ends(self._called))
        self.serves = True
        for obj in self._objects.list(Instance.api, ""):
            self._report_changed(subject_of(obj))  # type: ignore[arg-type]

        def end() -> None:
            self.serves = False
            self._listener = FunctionListener()
            for one in ends:
                one()
            for id_ in list(self._under_way):
                self._complete(id_, None)
            self._served.clear()
            self._served_by_worker.clear()

        return end

    def served(self, function: Function) -> ServedFunction:
        key = Key(function.metadata.namespace, function.metadata.name)
        served = self._served.get(key)
        if served is None or served.uid != function.metadata.uid:
            self.forget(key)
            served = self._served[key] = ServedFunction(key, function.metadata.uid, WAITING_MAX)
        served.concurrency, served.most = function.spec.concurrency, function.spec.scale.max
        if function.metadata.generation > served.generation:
            # The new generation may be able to load: its calls wait until that is known.
            served.generation, served.trouble = function.metadata.generation, ""
        return served

    def find(self, key: Key) -> ServedFunction | None:
        return self._served.get(key)

    def versions(self) -> list[Version]:
        """Return the versions that answer calls, or may have to do so again."""
        return [served.good for served in self._served.values() if served.good is not None]

    def forget(self, key: Key) -> None:
        """Forget a deleted function, and fail its waiting calls."""
        self.metrics.forget(key)
        served = self._served.pop(key, None)
        if served is not None:
            self.fail_waiting(served, NotCalled("NoWorker", "the function is gone"))
            self._served_by_worker = {uid: one for uid, one in self._served_by_worker.items() if one is not served}

    # Making a call.

    async def call(
        self,
        function: Function,
        request: CallRequest,
        *,
        is_patient: bool = False,
        beginning: Callable[[str], Awaitable[None]] | None = None,
        accept: Callable[[bytes], None] | None = None,
    ) -> CallOutcome:
        """Make a call, and return its outcome. Raises `NotCalled` if it has not begun, also after WAIT_SECONDS_MAX.

        `is_patient`: the call is a task's, and waits for a worker without a limit. `beginning` is awaited with the
        worker's name before the call is sent. If `accept` raises ValueError for the result, the call has failed.
        """
        key, came = Key(function.metadata.namespace, function.metadata.name), self.clock.time()
        served = self.served(function)
        try:
            ended = await self._call_any_worker(key, served, request, is_patient=is_patient, beginning=beginning)
        except NotCalled as error:
            served.last_call = self.clock.time()
            if self._served.get(key) is served:
                self.metrics.not_called(key, error.reason)
                self._listener.counted(key)
            raise
        if accept is not None and ended.reason == "Succeeded":
            try:
                accept(bytes(ended.result))
            except ValueError as error:
                ended = ended._replace(reason="Failed", message=str(error))
        served.last_call = ended.ended
        if ended.reason == "Succeeded":
            served.succeeded += 1
        else:
            served.failed += 1
        if self._served.get(key) is served:
            # Otherwise the function was deleted meanwhile, and its metrics with it.
            self._observe(served)
            self.metrics.ended(key, ended.reason, ended.started - came, ended.ended - ended.started)
            self._listener.counted(key)
        return ended

    async def _call_any_worker(
        self,
        key: Key,
        served: ServedFunction,
        request: CallRequest,
        *,
        is_patient: bool,
        beginning: Callable[[str], Awaitable[None]] | None,
    ) -> CallOutcome:
        """Make a call on the first worker that takes it. A worker may refuse it; then it waits for another."""
        if served.routing.is_full and not is_patient:
            raise NotCalled("TooMany", f"{WAITING_MAX} calls wait already")
        is_first = False
        while True:
            worker = await self._worker(key, served, request.id, is_patient=is_patient, is_first=is_first)
            try:
                if beginning is not None:
                    await beginning(worker.subject.name)
                ended = await self._send_and_wait(served, worker, request)
            finally:
                worker.calls.discard(request.id)
                self._serve(served)
            if ended is not None:
                return ended
            # The worker refused it: it goes back to the head of the queue.
            is_first = True

    async def _worker(self, key: Key, served: ServedFunction, id_: str, *, is_patient: bool, is_first: bool) -> Worker:
        worker = served.routing.take(id_, is_task=is_patient, first=is_first)
        needed = self._observe(served)
        if needed > served.have:
            self._listener.outgrown(key)
        if worker is not None:
            return worker
        if served.trouble and not served.routing.is_served:
            served.routing.leave(id_)
            raise NotCalled("NotLoaded", served.trouble)
        if served.over_budget and not is_patient and not served.routing.is_served:
            served.routing.leave(id_)
            raise NotCalled("QuotaExceeded", served.over_budget)
        if served.held_up and not is_patient and not served.routing.is_served:
            served.routing.leave(id_)
            raise NotCalled("NotLoaded", served.held_up)
        slot: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        served.slots[id_] = slot
        try:
            async with Limit(self.clock, None if is_patient else WAIT_SECONDS_MAX):
                return await slot
        except BaseException as error:
            served.routing.leave(id_)
            if slot.done() and not slot.cancelled() and slot.exception() is None:
                # It got a worker at the moment at which it gave up.
                slot.result().calls.discard(id_)
                self._serve(served)
            if isinstance(error, TimeoutError):
                raise NotCalled("NoWorker", f"no worker had room within {WAIT_SECONDS_MAX:.0f} s") from None
            raise
        finally:
            del served.slots[id_]

    async def _send_and_wait(self, served: ServedFunction, worker: Worker, request: CallRequest) -> CallOutcome | None:
        """Send a call to a worker, and return its outcome; None: the worker did not take it."""
        started = self.clock.time()
        called = self._under_way[request.id] = asyncio.get_running_loop().create_future()
        self._running_on[request.id] = worker.subject
        answer = None
        try:
            begun = BegunCall(next(self._numbers), request.id, started, worker.subject.name, request.log)
            call = Call(request.id, Raw(request.event), request.seconds, request.log, begun.call)
            if not self._runners.send(worker.subject, call):
                worker.is_open = False
                return None
            served.begun.append(begun)
            async with Limit(self.clock, request.seconds + GUARD_SECONDS):
                answer = await called
        except TimeoutError:
            worker.is_open = False
            self._listener.stuck(worker.subject)
        except asyncio.CancelledError:
            self._runners.send(worker.subject, CancelCall(request.id))
            raise
        finally:
            del self._under_way[request.id], self._running_on[request.id]
        ended, name = self.clock.time(), worker.subject.name
        if answer is None:
            return CallOutcome("WorkerLost", started, ended, name, message=f"its worker {name} was lost")
        if answer.reason == "Refused":
            worker.is_open = False
            return None
        return CallOutcome(answer.reason, started, ended, name, answer.result, answer.message, answer.exit_code)

    def is_under_way(self, id_: str) -> bool:
        return id_ in self._under_way

    def cancel(self, id_: str) -> None:
        """Cancel a call under way. Its caller gets the outcome that the runner reports."""
        subject = self._running_on.get(id_)
        if subject is not None:
            self._runners.send(subject, CancelCall(id_))

    def give_up(self, id_: str, why: str) -> None:
        """End a call now: as WorkerLost if it is under way, as not called if it waits."""
        if id_ in self._under_way:
            self.cancel(id_)
            self._complete(id_, Called(id_, "WorkerLost", message=why))
        for served in self._served.values():
            slot = served.slots.get(id_)
            if slot is not None and not slot.done():
                slot.set_exception(NotCalled("NoWorker", why))

    def _observe(self, served: ServedFunction) -> int:
        return served.scale.observe(served.load, served.concurrency, served.most, self.clock.now())

    def _serve(self, served: ServedFunction) -> None:
        """Give free workers to waiting calls."""
        while (found := served.routing.next()) is not None:
            call, worker = found
            slot = served.slots.get(call)
            if slot is None or slot.done():
                worker.calls.discard(call)
            else:
                slot.set_result(worker)

    def fail_waiting(self, served: ServedFunction, why: NotCalled, *, but_patient: bool = False) -> None:
        """Fail the waiting calls: all, or, with `but_patient`, all except those of tasks."""
        for id_ in served.routing.impatient() if but_patient else served.routing.all_waiting():
            slot = served.slots.get(id_)
            if slot is not None and not slot.done():
                slot.set_exception(NotCalled(why.reason, str(why)))

    # Reports of runners.

    def _called(self, subject: Subject, called: Called) -> None:
        if self._running_on.get(called.id) == subject:
            self._complete(called.id, called)

    def _complete(self, id_: str, called: Called | None) -> None:
        future = self._under_way.get(id_)
        if future is not None and not future.done():
            future.set_result(called)

    def _report_changed(self, subject: Subject) -> None:
        report = self._runners.report(subject)
        if report is None:
            self._worker_lost(subject)
            return
        instance: Any = get(self._objects, Instance, subject.name, subject.namespace)
        if instance is None or instance.metadata.uid != subject.uid or instance.spec.handler is None:
            return
        served = self._served_of(instance)
        if served is not None:
            self.note_report(served, instance, report)
            self._listener.changed(served.key)

    def _served_of(self, instance: Instance) -> ServedFunction | None:
        owner = controller_of(instance)
        if owner is None or owner.kind != Function.api.name:
            return None
        function = get(self._objects, Function, owner.name, instance.metadata.namespace)
        return self.served(function) if function is not None and function.metadata.uid == owner.uid else None

    def note_report(self, served: ServedFunction, instance: Instance, report: Report) -> None:
        """Take the report of a worker."""
        handler = instance.spec.handler
        assert handler is not None
        worker = served.routing.add_worker(subject_of(instance), instance.spec.template_hash, handler.concurrency)
        self._served_by_worker[worker.subject.uid] = served
        stream = self._runners.stream(worker.subject)
        if worker.stream is not stream:
            worker.stream = stream
            for id_ in worker.calls:
                self._complete(id_, None)
        is_leaving = instance.metadata.deletion_timestamp is not None
        worker.is_open = report.phase in ("Idle", "Held") and bool(report.configured) and not is_leaving
        if worker.is_open:
            served.trouble = ""
            self._serve(served)

    def close(self, uid: str) -> None:
        """Send no more calls to a worker that is about to be deleted."""
        served = self._served_by_worker.get(uid)
        worker = served.routing.worker(uid) if served is not None else None
        if worker is not None:
            worker.is_open = False

    def _worker_lost(self, subject: Subject) -> None:
        served = self._served_by_worker.pop(subject.uid, None)
        if served is not None:
            served.routing.remove_worker(subject.uid)
            self._listener.changed(served.key)
        # Also calls of a deleted function, whose last ones may still be under way.
        for id_ in [id_ for id_, where in self._running_on.items() if where == subject]:
            self._complete(id_, None)
