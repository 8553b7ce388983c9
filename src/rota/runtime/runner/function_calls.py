"""The calls of a function's worker, and the process that answers them. It is replaced when it hangs, grows or dies.

- A call is begun at once or refused. A refused call can be made elsewhere; any other is never begun again.
- A call whose time is up has ended, even if its process still works on it. Such a process gets no more calls, is closed
  when its other calls have ended, and is replaced at once.
- A process that has grown too much is replaced in the same way. A process that dies ends its calls.
- When the stream breaks, all calls are cancelled: their answers could not be sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Raw

from rota.api.problems import NOT_JSON
from rota.runtime.runner.box import Box
from rota.runtime.runner.command_invoker import CommandInvoker
from rota.runtime.runner.invoker import TIMED_OUT, CallLog, Invoker, LoadFailure
from rota.runtime.runner.messages import NO_RESULT, Call, Called, CallReason, Handler
from rota.runtime.runner.python_invoker import PythonInvoker
from rota.runtime.workspace import WorkspaceError

log = logging.getLogger(__name__)

CALLS_MAX = 128
"""The most calls that a worker runs at once. Further calls are refused."""
CANCEL_SECONDS_MAX = 1.0
"""Seconds in which a cancelled call must end before its process is replaced."""
LOAD_SECONDS_MAX = 60.0
EARLY_DEATH_SECONDS = 1.0
"""The least seconds between two loads of the code if the process dies."""
LEVELS_SPARE = 64
"""Levels of JSON nesting that a result must leave free, for the message around it."""
TOO_DEEP = "the result is nested too deeply"

_checked = msgspec.json.Decoder(Raw).decode


class CannotLoad(WorkspaceError):  # noqa: N818 - named for what is so
    """A function's code cannot be loaded."""

    def __init__(self, why: LoadFailure) -> None:
        RuntimeError.__init__(self, why.message)
        self.reason = why.reason  # type: ignore[assignment]
        self.said = why.said


class RunningCall:
    """One call, until its end is reported."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.log = CallLog(call.log)
        self.invoker: Invoker | None = None
        self.timer: asyncio.TimerHandle | None = None


class FunctionCalls:
    """The calls of one worker."""

    def __init__(self, send: Callable[[Called], None], changed: Callable[[], None]) -> None:
        """`changed` is called when no process is left and none will be started, so that `start` has to be called."""
        self._send = send
        self._changed = changed
        self._box: Box | None = None
        self._handler: Handler | None = None
        self._tree = ""
        self._invoker: Invoker | None = None
        """The invoker that gets new calls; None while none is loaded."""
        self._calls: dict[str, RunningCall] = {}
        self._retired: set[Invoker] = set()
        """Invokers that get no more calls. Each is closed with its last call."""
        self._loaded_at = 0.0
        self._replacing: asyncio.Task[None] | None = None
        self._is_draining = self._is_ending = False
        self._empty = asyncio.Event()

    async def start(self, box: Box, handler: Handler, tree: str) -> None:
        """Load the code, unless it is loaded. Raises CannotLoad and BoxLost."""
        self._is_draining = False
        if self._replacing is not None:
            await asyncio.wait((self._replacing,))
        if self._invoker is not None and self._box is box and self._handler == handler:
            return
        await self.drain()
        self.close()
        self._is_draining = False
        self._box, self._handler, self._tree = box, handler, tree
        self._invoker = await self._loaded()
        self._begin_waiting()

    async def _loaded(self) -> Invoker:
        assert self._box is not None and self._handler is not None
        invoker = self._make_invoker(self._box, self._handler)
        try:
            async with asyncio.timeout(LOAD_SECONDS_MAX):
                failure = await invoker.load()
        except TimeoutError:
            invoker.close()
            why = f"the code was not loaded within {LOAD_SECONDS_MAX:.0f} s"
            raise CannotLoad(LoadFailure(TIMED_OUT, why)) from None
        except BaseException:
            invoker.close()
            raise
        if failure is not None:
            invoker.close()
            raise CannotLoad(failure)
        self._loaded_at = asyncio.get_running_loop().time()
        return invoker

    def _make_invoker(self, box: Box, handler: Handler) -> Invoker:
        code = handler.code or self._tree
        if handler.runtime == "command":
            return CommandInvoker(box, handler, code, self._on_end)
        return PythonInvoker(box, handler, code, self._on_end, self._on_worn, self._on_death)

    # Calls.

    def call(self, call: Call) -> None:
        has_invoker = self._invoker is not None or (self._replacing is not None and not self._replacing.done())
        is_open = has_invoker and not (self._is_draining or self._is_ending)
        if not is_open or len(self._calls) >= CALLS_MAX or call.id in self._calls:
            self._send(Called(call.id, "Refused"))
            return
        running = self._calls[call.id] = RunningCall(call)
        running.timer = asyncio.get_running_loop().call_later(call.seconds, self.end, call.id, "Timeout")
        if self._invoker is not None:
            self._begin(self._invoker, running)

    def _begin(self, invoker: Invoker, running: RunningCall) -> None:
        running.invoker = invoker
        invoker.call(running.call, running.log)

    def _begin_waiting(self) -> None:
        """Begin the calls that arrived while no process was loaded."""
        for running in [one for one in self._calls.values() if one.invoker is None]:
            assert self._invoker is not None
            self._begin(self._invoker, running)

    def cancel(self, id_: str) -> None:
        self.end(id_, "Cancelled")

    def end(self, id_: str, why: Literal["Timeout", "Cancelled"]) -> None:
        """End a call now, even if its process still works on it."""
        running = self._calls.get(id_)
        if running is None:
            return
        invoker = running.invoker
        message = f"it took longer than {running.call.seconds:g} s" if why == "Timeout" else ""
        if invoker is None:
            self._report_end(id_, why, message=message)
            return
        if invoker.cancels:
            invoker.lingering.add(id_)
            invoker.cancel(id_)
            asyncio.get_running_loop().call_later(CANCEL_SECONDS_MAX, self._retire_if_lingering, invoker, id_)
            self._report_end(id_, why, message=message)
        else:
            self._report_end(id_, why, message=message)
            self._retire(invoker)

    def _retire_if_lingering(self, invoker: Invoker, id_: str) -> None:
        if id_ in invoker.lingering:
            self._retire(invoker)

    def _on_end(
        self, invoker: Invoker, id_: str, reason: CallReason, result: Raw, message: str, exit_code: int | None
    ) -> None:
        """Report the answer of an invoker. An answer to a call that has ended is dropped."""
        invoker.lingering.discard(id_)
        if not _can_be_sent(result):
            reason, result, message = "Failed", NO_RESULT, TOO_DEEP
        if id_ in self._calls and self._calls[id_].invoker is invoker:
            self._report_end(id_, reason, result, message, exit_code)

    def _report_end(
        self, id_: str, reason: CallReason, result: Raw = NO_RESULT, message: str = "", exit_code: int | None = None
    ) -> None:
        running = self._calls.pop(id_)
        if running.timer is not None:
            running.timer.cancel()
        running.log.close()
        self._send(Called(id_, reason, result if bytes(result) else NO_RESULT, message, exit_code))
        if running.invoker is not None:
            self._close_if_idle(running.invoker)
        if not self._calls:
            self._empty.set()

    # Processes.

    def _retire(self, invoker: Invoker) -> None:
        """Give an invoker no more calls, and close it when it has none."""
        self._retired.add(invoker)
        if invoker is self._invoker:
            self._invoker = None
            self._replace()
        self._close_if_idle(invoker)

    def _close_if_idle(self, invoker: Invoker) -> None:
        if invoker in self._retired and not any(one.invoker is invoker for one in self._calls.values()):
            self._retired.discard(invoker)
            invoker.close()

    def _on_worn(self, invoker: Invoker) -> None:
        log.info("the process that answers calls has grown too much: another one takes over")
        self._retire(invoker)

    def _on_death(self, invoker: Invoker, how: str, exit_code: int | None) -> None:
        """End the calls of a dead process. If it exited by itself during a single call, that call has failed."""
        self._retired.discard(invoker)
        at = [id_ for id_, one in self._calls.items() if one.invoker is invoker]
        reason: CallReason = "Failed" if exit_code is not None and len(at) == 1 else "WorkerLost"
        for id_ in at:
            self._report_end(id_, reason, message=how)
        invoker.close()
        if invoker is self._invoker:
            self._invoker = None
            age = asyncio.get_running_loop().time() - self._loaded_at
            self._replace(max(0.0, EARLY_DEATH_SECONDS - age))

    def _replace(self, pause_seconds: float = 0.0) -> None:
        if self._box is None or self._box.lost.is_set() or self._is_draining:
            self._changed()
            return
        if self._replacing is None or self._replacing.done():
            self._replacing = asyncio.create_task(self._take_over(pause_seconds), name="invoker")

    async def _take_over(self, pause_seconds: float) -> None:
        await asyncio.sleep(pause_seconds)
        try:
            self._invoker = await self._loaded()
        except Exception as error:
            log.warning("the process that answers calls cannot be started again: %s", error)
            for id_ in [id_ for id_, one in self._calls.items() if one.invoker is None]:
                self._report_end(id_, "Refused")
            self._changed()
            return
        self._begin_waiting()

    # The end.

    async def drain(self) -> None:
        """Refuse new calls, and return when all running calls have ended, each within its timeout."""
        self._is_draining = True
        while self._calls:
            self._empty.clear()
            await self._empty.wait()

    async def finish(self) -> None:
        """Drain for good: all later calls are refused."""
        self._is_ending = True
        await self.drain()

    def abandon(self) -> None:
        """Cancel all calls, because nobody waits for their answers any more."""
        hosts = {one.invoker for one in self._calls.values() if one.invoker is not None}
        for id_ in list(self._calls):
            self._report_end(id_, "Cancelled")
        for invoker in hosts:
            self._retire(invoker)

    def close(self) -> None:
        """End all calls and processes. Call it before the box is stopped or another function is loaded."""
        if self._replacing is not None:
            self._replacing.cancel()
            self._replacing = None
        for id_ in list(self._calls):
            self._report_end(id_, "WorkerLost", message="its worker was stopped")
        for invoker in (*self._retired, *([self._invoker] if self._invoker is not None else [])):
            invoker.close()
        self._retired.clear()
        self._invoker = self._box = None


def _can_be_sent(result: Raw) -> bool:
    """Report whether the server can decode a result inside a message, which fails if it is nested too deeply."""
    if not bytes(result):
        return True
    try:
        _checked(b"[" * LEVELS_SPARE + bytes(result) + b"]" * LEVELS_SPARE)
    except NOT_JSON:
        return False
    return True
