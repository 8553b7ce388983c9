"""Calls of functions: from whoever asks to a worker, and back.

One object for all functions of a server, which the edge and the controllers share. It knows nothing that cannot be
found again in objects and in what runners say, but for the calls that are under way: those are lost with the process.
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
from rota.control.functions.counting import Counting
from rota.control.functions.line import Asked, Begun, Ended, Line, NotCalled
from rota.control.functions.planning import Version
from rota.control.functions.routing import Worker
from rota.control.instances.names import controller_of, subject_of
from rota.engine.clock import Clock, Limit
from rota.engine.metrics import Metrics
from rota.engine.objects import Objects, get
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import Call, Called, CancelCall, Report
from rota.runtime.runners import Runners

WAITING_MAX = 1024
"""Calls of one function that wait for a worker, and whose caller waits too."""
WAIT_SECONDS_MAX = 30.0
"""How long such a caller waits before the call has begun."""
GUARD_SECONDS = 5.0
"""A runner that has not told the end of a call so long after its time is taken to be lost."""
RETRY_SECONDS = 1
"""When somebody who came when there were too many may come again."""


class Listener(NamedTuple):
    """Who is told of functions, by their keys, and of workers."""

    outgrown: Callable[[Key], None] = lambda key: None
    """A function needs more workers than it has."""
    changed: Callable[[Key], None] = lambda key: None
    """A worker of a function has come, gone, or said something new of itself."""
    counted: Callable[[Key], None] = lambda key: None
    """A call of a function has ended."""
    stuck: Callable[[Subject], None] = lambda subject: None
    """A worker does not say what became of a call."""


class Calls:
    """All functions of a server. `begin` when this process leads."""

    def __init__(self, objects: Objects, runners: Runners, clock: Clock) -> None:
        self._objects = objects
        self._runners = runners
        self.clock = clock
        self._lines: dict[Key, Line] = {}
        self._lines_of: dict[str, Line] = {}
        """By the uid of a worker."""
        self._under_way: dict[str, asyncio.Future[Called | None]] = {}
        """By the id of a call. None: its worker is lost."""
        self._running_on: dict[str, Subject] = {}
        self.epoch = secrets.token_hex(8)
        """Tells the numbers of calls apart from those of another process."""
        self._numbers = itertools.count(1)
        self.serves = False
        self.counting = Counting(Metrics())
        self._listener = Listener()

    def count(self, counting: Counting) -> None:
        """Have calls counted there from now on."""
        self.counting = counting
        counting.watch(lambda: {key: line.routing for key, line in self._lines.items()})

    def begin(self, listener: Listener) -> Callable[[], None]:
        self._listener = listener
        ends = (self._runners.listen(self._heard), self._runners.hear_calls(self._called))
        self.serves = True
        for obj in self._objects.list(Instance.api, ""):
            self._heard(subject_of(obj))  # type: ignore[arg-type]

        def end() -> None:
            self.serves = False
            self._listener = Listener()
            for one in ends:
                one()
            for id_ in list(self._under_way):
                self._settle(id_, None)
            self._lines.clear()
            self._lines_of.clear()

        return end

    def line(self, function: Function) -> Line:
        key = Key(function.metadata.namespace, function.metadata.name)
        line = self._lines.get(key)
        if line is None or line.uid != function.metadata.uid:
            self.forget(key)
            line = self._lines[key] = Line(key, function.metadata.uid, WAITING_MAX)
        line.concurrency, line.most = function.spec.concurrency, function.spec.scale.max
        if function.metadata.generation > line.generation:
            # What was wrong with the function before may not be any more: its calls wait until that is known.
            line.generation, line.trouble = function.metadata.generation, ""
        return line

    def known(self, key: Key) -> Line | None:
        return self._lines.get(key)

    def versions(self) -> list[Version]:
        """Those that answer calls, or may have to do so again."""
        return [line.good for line in self._lines.values() if line.good is not None]

    def forget(self, key: Key) -> None:
        """There is no function of this name any more."""
        self.counting.forget(key)
        line = self._lines.pop(key, None)
        if line is not None:
            self.fail_waiting(line, NotCalled("NoWorker", "the function is gone"))
            self._lines_of = {uid: one for uid, one in self._lines_of.items() if one is not line}

    # Making a call.

    async def call(
        self,
        function: Function,
        asked: Asked,
        *,
        is_patient: bool = False,
        beginning: Callable[[str], Awaitable[None]] | None = None,
        accept: Callable[[bytes], None] | None = None,
    ) -> Ended:
        """Make a call, and return how it ended. Raises `NotCalled`, also when it has waited too long.

        Who is patient waits as long as it takes, however many others do. `beginning` is told the worker before the
        call is made. A call whose result `accept` does not take, with a ValueError, has failed.
        """
        key, came = Key(function.metadata.namespace, function.metadata.name), self.clock.time()
        line = self.line(function)
        try:
            ended = await self._called_somewhere(key, line, asked, is_patient=is_patient, beginning=beginning)
        except NotCalled as error:
            line.last_call = self.clock.time()
            if self._lines.get(key) is line:
                self.counting.not_called(key, error.reason)
                self._listener.counted(key)
            raise
        if accept is not None and ended.reason == "Succeeded":
            try:
                accept(bytes(ended.result))
            except ValueError as error:
                ended = ended._replace(reason="Failed", message=str(error))
        line.last_call = ended.ended
        if ended.reason == "Succeeded":
            line.succeeded += 1
        else:
            line.failed += 1
        if self._lines.get(key) is line:
            # Else the function is gone, and what was counted of it too.
            self._observe(line)
            self.counting.ended(key, ended.reason, ended.started - came, ended.ended - ended.started)
            self._listener.counted(key)
        return ended

    async def _called_somewhere(
        self,
        key: Key,
        line: Line,
        asked: Asked,
        *,
        is_patient: bool,
        beginning: Callable[[str], Awaitable[None]] | None,
    ) -> Ended:
        if line.routing.is_full and not is_patient:
            raise NotCalled("TooMany", f"{WAITING_MAX} calls wait already")
        is_first = False
        while True:
            worker = await self._worker(key, line, asked.id, is_patient=is_patient, is_first=is_first)
            try:
                if beginning is not None:
                    await beginning(worker.subject.name)
                ended = await self._made(line, worker, asked)
            finally:
                worker.calls.discard(asked.id)
                self._serve(line)
            if ended is not None:
                return ended
            # It was not begun, and keeps its place.
            is_first = True

    async def _worker(self, key: Key, line: Line, id_: str, *, is_patient: bool, is_first: bool) -> Worker:
        worker = line.routing.take(id_, is_task=is_patient, first=is_first)
        needed = self._observe(line)
        if needed > line.have:
            self._listener.outgrown(key)
        if worker is not None:
            return worker
        if line.trouble and not line.routing.is_served:
            line.routing.leave(id_)
            raise NotCalled("NotLoaded", line.trouble)
        if line.over_budget and not is_patient and not line.routing.is_served:
            line.routing.leave(id_)
            raise NotCalled("QuotaExceeded", line.over_budget)
        if line.held_up and not is_patient and not line.routing.is_served:
            line.routing.leave(id_)
            raise NotCalled("NotLoaded", line.held_up)
        slot: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        line.slots[id_] = slot
        try:
            async with Limit(self.clock, None if is_patient else WAIT_SECONDS_MAX):
                return await slot
        except BaseException as error:
            line.routing.leave(id_)
            if slot.done() and not slot.cancelled() and slot.exception() is None:
                # It got one at the moment at which it gave up.
                slot.result().calls.discard(id_)
                self._serve(line)
            if isinstance(error, TimeoutError):
                raise NotCalled("NoWorker", f"no worker had room within {WAIT_SECONDS_MAX:.0f} s") from None
            raise
        finally:
            del line.slots[id_]

    async def _made(self, line: Line, worker: Worker, asked: Asked) -> Ended | None:
        """How a call ended; None: it was not begun."""
        started = self.clock.time()
        called = self._under_way[asked.id] = asyncio.get_running_loop().create_future()
        self._running_on[asked.id] = worker.subject
        told = None
        try:
            begun = Begun(next(self._numbers), asked.id, started, worker.subject.name, asked.log)
            call = Call(asked.id, Raw(asked.event), asked.seconds, asked.log, begun.call)
            if not self._runners.send(worker.subject, call):
                worker.is_open = False
                return None
            line.begun.append(begun)
            async with Limit(self.clock, asked.seconds + GUARD_SECONDS):
                told = await called
        except TimeoutError:
            worker.is_open = False
            self._listener.stuck(worker.subject)
        except asyncio.CancelledError:
            self._runners.send(worker.subject, CancelCall(asked.id))
            raise
        finally:
            del self._under_way[asked.id], self._running_on[asked.id]
        ended, name = self.clock.time(), worker.subject.name
        if told is None:
            return Ended("WorkerLost", started, ended, name, message=f"its worker {name} was lost")
        if told.reason == "Refused":
            worker.is_open = False
            return None
        return Ended(told.reason, started, ended, name, told.result, told.message, told.exit_code)

    def is_under_way(self, id_: str) -> bool:
        return id_ in self._under_way

    def cancel(self, id_: str) -> None:
        """End a call that is under way. Who made it learns how it ended."""
        subject = self._running_on.get(id_)
        if subject is not None:
            self._runners.send(subject, CancelCall(id_))

    def give_up(self, id_: str, why: str) -> None:
        """Nobody can wait for a call any more. Whoever does learns that it is lost, or that it was not begun."""
        if id_ in self._under_way:
            self.cancel(id_)
            self._settle(id_, Called(id_, "WorkerLost", message=why))
        for line in self._lines.values():
            slot = line.slots.get(id_)
            if slot is not None and not slot.done():
                slot.set_exception(NotCalled("NoWorker", why))

    def _observe(self, line: Line) -> int:
        return line.scale.observe(line.load, line.concurrency, line.most, self.clock.now())

    def _serve(self, line: Line) -> None:
        """Those that wait, as far as there is room."""
        while (found := line.routing.next()) is not None:
            call, worker = found
            slot = line.slots.get(call)
            if slot is None or slot.done():
                worker.calls.discard(call)
            else:
                slot.set_result(worker)

    def fail_waiting(self, line: Line, why: NotCalled, *, but_patient: bool = False) -> None:
        """Tell those that wait why they get no worker: all, or all but those that wait as long as it takes."""
        for id_ in line.routing.impatient() if but_patient else line.routing.all_waiting():
            slot = line.slots.get(id_)
            if slot is not None and not slot.done():
                slot.set_exception(NotCalled(why.reason, str(why)))

    # What runners say.

    def _called(self, subject: Subject, called: Called) -> None:
        if self._running_on.get(called.id) == subject:
            self._settle(called.id, called)

    def _settle(self, id_: str, called: Called | None) -> None:
        future = self._under_way.get(id_)
        if future is not None and not future.done():
            future.set_result(called)

    def _heard(self, subject: Subject) -> None:
        report = self._runners.report(subject)
        if report is None:
            self._lost(subject)
            return
        instance: Any = get(self._objects, Instance, subject.name, subject.namespace)
        if instance is None or instance.metadata.uid != subject.uid or instance.spec.handler is None:
            return
        line = self._line_of(instance)
        if line is not None:
            self.see(line, instance, report)
            self._listener.changed(line.key)

    def _line_of(self, instance: Instance) -> Line | None:
        owner = controller_of(instance)
        if owner is None or owner.kind != Function.api.name:
            return None
        function = get(self._objects, Function, owner.name, instance.metadata.namespace)
        return self.line(function) if function is not None and function.metadata.uid == owner.uid else None

    def see(self, line: Line, instance: Instance, report: Report) -> None:
        """A worker, and how it says it is."""
        handler = instance.spec.handler
        assert handler is not None
        worker = line.routing.meet(subject_of(instance), instance.spec.template_hash, handler.concurrency)
        self._lines_of[worker.subject.uid] = line
        stream = self._runners.stream(worker.subject)
        if worker.stream is not stream:
            worker.stream = stream
            for id_ in worker.calls:
                self._settle(id_, None)
        is_leaving = instance.metadata.deletion_timestamp is not None
        worker.is_open = report.phase in ("Idle", "Held") and bool(report.configured) and not is_leaving
        if worker.is_open:
            line.trouble = ""
            self._serve(line)

    def close(self, uid: str) -> None:
        """A worker is about to go: it gets no more calls."""
        line = self._lines_of.get(uid)
        worker = line.routing.worker(uid) if line is not None else None
        if worker is not None:
            worker.is_open = False

    def _lost(self, subject: Subject) -> None:
        line = self._lines_of.pop(subject.uid, None)
        if line is not None:
            line.routing.part(subject.uid)
            self._listener.changed(line.key)
        # Also of a function that is gone, whose last calls may still be under way.
        for id_ in [id_ for id_, where in self._running_on.items() if where == subject]:
            self._settle(id_, None)
