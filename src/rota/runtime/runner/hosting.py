"""The calls of a function's worker: what answers them in its box, and what is done when that hangs, grows or dies.

- A call is begun at once or refused: who was refused can go elsewhere, who was not is never begun again.
- One whose time is up has ended, whatever its process does. A process that does not let go of it gets no more calls,
  and ends when those that it has are over; another one takes its place at once.
- The same is done with a process that has grown too much. One that dies takes its calls with it.
- A call that nobody waits for any more, since the stream broke, is ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec
from msgspec import Raw

from rota.api.problems import NOT_JSON
from rota.runtime.runner.box import Box
from rota.runtime.runner.hosting_command import CommandHost
from rota.runtime.runner.hosting_loaded import TIMED_OUT, NotLoaded
from rota.runtime.runner.hosting_log import CallLog
from rota.runtime.runner.hosting_process import PythonHost
from rota.runtime.runner.messages import NO_RESULT, Call, Called, CallReason, Handler
from rota.runtime.workspace import WorkspaceError

log = logging.getLogger(__name__)

CALLS_MAX = 128
"""That a worker has at once, whatever it is sent."""
CANCEL_SECONDS_MAX = 1.0
"""How long a call that was asked to end may take before its process is given up."""
LOAD_SECONDS_MAX = 60.0
EARLY_DEATH_SECONDS = 1.0
"""A process that dies so soon after it was loaded is followed by the next one no sooner."""
LEVELS_SPARE = 64
"""By how many levels a result could be nested more deeply and still be read: messages have levels of their own."""
TOO_DEEP = "what it returned is nested too deeply"

_checked = msgspec.json.Decoder(Raw).decode


class NotHosted(WorkspaceError):  # noqa: N818 - named for what is so
    """A function's code cannot be loaded."""

    def __init__(self, why: NotLoaded) -> None:
        RuntimeError.__init__(self, why.message)
        self.reason = why.reason  # type: ignore[assignment]
        self.said = why.said


class Host(Protocol):
    """What answers calls: one process for many, or one for each."""

    cancels: bool
    """Whether a single call can be ended."""
    lingering: set[str]
    """Calls whose end is told, but which it may still be at."""

    async def load(self) -> NotLoaded | None:
        """Returns None when it can be called, or why it cannot be."""
        ...

    def call(self, call: Call, log: CallLog) -> None: ...

    def cancel(self, id_: str) -> None: ...

    def close(self) -> None:
        """End it, and whatever it is at."""
        ...


class Running:
    """One call, from when it came until its end is told."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.log = CallLog(call.log)
        self.host: Host | None = None
        self.timer: asyncio.TimerHandle | None = None


class Hosting:
    """All calls of one worker."""

    def __init__(self, say: Callable[[Called], None], changed: Callable[[], None]) -> None:
        """`changed` is called when what was loaded is not there any more, and `start` has to be called again."""
        self._say = say
        self._changed = changed
        self._box: Box | None = None
        self._handler: Handler | None = None
        self._tree = ""
        self._host: Host | None = None
        """What new calls go to."""
        self._calls: dict[str, Running] = {}
        self._retired: set[Host] = set()
        """Those that get no more calls, and end with the last that they have."""
        self._loaded_at = 0.0
        self._replacing: asyncio.Task[None] | None = None
        self._is_draining = self._is_ending = False
        self._empty = asyncio.Event()

    async def start(self, box: Box, handler: Handler, tree: str) -> None:
        """Have the code loaded, unless it is. Raises NotHosted and BoxLost."""
        self._is_draining = False
        if self._replacing is not None:
            await asyncio.wait((self._replacing,))
        if self._host is not None and self._box is box and self._handler == handler:
            return
        await self.drain()
        self.close()
        self._is_draining = False
        self._box, self._handler, self._tree = box, handler, tree
        self._host = await self._loaded()
        self._go_on()

    async def _loaded(self) -> Host:
        assert self._box is not None and self._handler is not None
        host = self._made(self._box, self._handler)
        try:
            async with asyncio.timeout(LOAD_SECONDS_MAX):
                failure = await host.load()
        except TimeoutError:
            host.close()
            why = f"the code was not loaded within {LOAD_SECONDS_MAX:.0f} s"
            raise NotHosted(NotLoaded(TIMED_OUT, why)) from None
        except BaseException:
            host.close()
            raise
        if failure is not None:
            host.close()
            raise NotHosted(failure)
        self._loaded_at = asyncio.get_running_loop().time()
        return host

    def _made(self, box: Box, handler: Handler) -> Host:
        code = handler.code or self._tree
        if handler.runtime == "command":
            return CommandHost(box, handler, code, self._ended)
        return PythonHost(box, handler, code, self._ended, self._worn, self._died)

    # Calls.

    def call(self, call: Call) -> None:
        is_hosted = self._host is not None or (self._replacing is not None and not self._replacing.done())
        is_open = is_hosted and not (self._is_draining or self._is_ending)
        if not is_open or len(self._calls) >= CALLS_MAX or call.id in self._calls:
            self._say(Called(call.id, "Refused"))
            return
        running = self._calls[call.id] = Running(call)
        running.timer = asyncio.get_running_loop().call_later(call.seconds, self.end, call.id, "Timeout")
        if self._host is not None:
            self._begin(self._host, running)

    def _begin(self, host: Host, running: Running) -> None:
        running.host = host
        host.call(running.call, running.log)

    def _go_on(self) -> None:
        """With what came while there was nothing to call."""
        for running in [one for one in self._calls.values() if one.host is None]:
            assert self._host is not None
            self._begin(self._host, running)

    def cancel(self, id_: str) -> None:
        self.end(id_, "Cancelled")

    def end(self, id_: str, why: Literal["Timeout", "Cancelled"]) -> None:
        """A call ends now, also if its process does not let go of it."""
        running = self._calls.get(id_)
        if running is None:
            return
        host = running.host
        message = f"it took longer than {running.call.seconds:g} s" if why == "Timeout" else ""
        if host is None:
            self._tell(id_, why, message=message)
            return
        if host.cancels:
            host.lingering.add(id_)
            host.cancel(id_)
            asyncio.get_running_loop().call_later(CANCEL_SECONDS_MAX, self._check, host, id_)
            self._tell(id_, why, message=message)
        else:
            self._tell(id_, why, message=message)
            self._retire(host)

    def _check(self, host: Host, id_: str) -> None:
        if id_ in host.lingering:
            self._retire(host)

    def _ended(
        self, host: Host, id_: str, reason: CallReason, result: Raw, message: str, exit_code: int | None
    ) -> None:
        """A host has answered."""
        host.lingering.discard(id_)
        if not _can_be_sent(result):
            reason, result, message = "Failed", NO_RESULT, TOO_DEEP
        if id_ in self._calls and self._calls[id_].host is host:
            self._tell(id_, reason, result, message, exit_code)

    def _tell(
        self, id_: str, reason: CallReason, result: Raw = NO_RESULT, message: str = "", exit_code: int | None = None
    ) -> None:
        running = self._calls.pop(id_)
        if running.timer is not None:
            running.timer.cancel()
        running.log.close()
        self._say(Called(id_, reason, result if bytes(result) else NO_RESULT, message, exit_code))
        if running.host is not None:
            self._part(running.host)
        if not self._calls:
            self._empty.set()

    # Processes.

    def _retire(self, host: Host) -> None:
        """It gets no more calls, and ends when it has none."""
        self._retired.add(host)
        if host is self._host:
            self._host = None
            self._replace()
        self._part(host)

    def _part(self, host: Host) -> None:
        if host in self._retired and not any(one.host is host for one in self._calls.values()):
            self._retired.discard(host)
            host.close()

    def _worn(self, host: Host) -> None:
        log.info("what answers calls has grown too much: another one takes over")
        self._retire(host)

    def _died(self, host: Host, how: str, exit_code: int | None) -> None:
        """With all that it was at. Of a process that ended itself, the one call that it was at is the cause."""
        self._retired.discard(host)
        at = [id_ for id_, one in self._calls.items() if one.host is host]
        reason: CallReason = "Failed" if exit_code is not None and len(at) == 1 else "WorkerLost"
        for id_ in at:
            self._tell(id_, reason, message=how)
        host.close()
        if host is self._host:
            self._host = None
            age = asyncio.get_running_loop().time() - self._loaded_at
            self._replace(max(0.0, EARLY_DEATH_SECONDS - age))

    def _replace(self, pause_seconds: float = 0.0) -> None:
        if self._box is None or self._box.lost.is_set() or self._is_draining:
            self._changed()
            return
        if self._replacing is None or self._replacing.done():
            self._replacing = asyncio.create_task(self._take_over(pause_seconds), name="host")

    async def _take_over(self, pause_seconds: float) -> None:
        await asyncio.sleep(pause_seconds)
        try:
            self._host = await self._loaded()
        except Exception as error:
            log.warning("what answers calls cannot be started again: %s", error)
            for id_ in [id_ for id_, one in self._calls.items() if one.host is None]:
                self._tell(id_, "Refused")
            self._changed()
            return
        self._go_on()

    # The end.

    async def drain(self) -> None:
        """Take no more calls, and return when there are none: each of them has its time."""
        self._is_draining = True
        while self._calls:
            self._empty.clear()
            await self._empty.wait()

    async def finish(self) -> None:
        """As `drain`, for good."""
        self._is_ending = True
        await self.drain()

    def abandon(self) -> None:
        """Nobody waits for what is going on: it ends."""
        hosts = {one.host for one in self._calls.values() if one.host is not None}
        for id_ in list(self._calls):
            self._tell(id_, "Cancelled")
        for host in hosts:
            self._retire(host)

    def close(self) -> None:
        """The box is about to go, or another function comes."""
        if self._replacing is not None:
            self._replacing.cancel()
            self._replacing = None
        for id_ in list(self._calls):
            self._tell(id_, "WorkerLost", message="its worker was stopped")
        for host in (*self._retired, *([self._host] if self._host is not None else [])):
            host.close()
        self._retired.clear()
        self._host = self._box = None


def _can_be_sent(result: Raw) -> bool:
    """Report whether a result is nested so deeply that the server, which reads it within a message, could not."""
    if not bytes(result):
        return True
    try:
        _checked(b"[" * LEVELS_SPARE + bytes(result) + b"]" * LEVELS_SPARE)
    except NOT_JSON:
        return False
    return True
