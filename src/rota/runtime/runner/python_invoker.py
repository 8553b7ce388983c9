"""Answers calls by a Python handler: the runner's side of `handler_program`, which runs in the box."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rota.api.problems import NOT_JSON
from rota.runtime.runner import handler_program
from rota.runtime.runner.box import Box, BoxCommand, BoxLost, signal_name
from rota.runtime.runner.handler_program import LENGTH_BYTES, READ_BYTES, RESULT_BYTES_MAX, SAID_CHARACTERS_MAX
from rota.runtime.runner.invoker import IMPORT_FAILED, CallLog, LoadFailure
from rota.runtime.runner.messages import Call, CallReason, Handler

END_SECONDS_MAX = 1.0
"""Seconds within which a process must exit after it has closed its connection."""
REPLY_BYTES_MAX = RESULT_BYTES_MAX + 64 * 1024
# Under a name that no code imports, and not as the main module, which `multiprocessing` would run again.
PROGRAM = (
    "import importlib.util as util; "
    f"spec = util.spec_from_file_location('rota handler', {str(Path(handler_program.__file__).absolute())!r}); "
    "module = util.module_from_spec(spec); spec.loader.exec_module(module); module.main()"
)
# Without the packages of Rota's own Python: a function has only those that it requires.
PYTHON = ("-I", "-S", "-c", PROGRAM)

_encode = msgspec.json.Encoder().encode


class HandlerReply(Struct, frozen=True):
    """A message of the handler program: the code is loaded, or failed to load; a piece of a log; or a result."""

    loaded: bool = False
    cancels: bool = False
    failed: str = ""
    said: str = ""
    """The output while the code was loaded, if loading failed."""
    call: str = ""
    log: str = ""
    result: Raw = Raw()
    error: str = ""
    worn: bool = False


class CallRequest(Struct, frozen=True):
    """A call as the handler program gets it."""

    call: str
    event: Raw
    seconds: float
    name: str
    """The id of the call that the handler's context shows."""


_decode = msgspec.json.Decoder(HandlerReply).decode
OnEnd = Callable[[Any, str, CallReason, Raw, str, int | None], None]


class PythonInvoker:
    """Answers calls in one process of the box."""

    def __init__(
        self,
        box: Box,
        handler: Handler,
        code: str,
        ended: OnEnd,
        worn: Callable[[Any], None],
        died: Callable[[Any, str, int | None], None],
    ) -> None:
        """`died` is called with a message, and with the exit code if the process exited by itself."""
        self.cancels = False
        self.lingering: set[str] = set()
        self._box = box
        self._handler = handler
        self._code = code
        self._on_end = ended
        self._on_worn = worn
        self._on_death = died
        self._loop = asyncio.get_running_loop()
        self._control: socket.socket | None = None
        self._id = ""
        self._logs: dict[str, CallLog] = {}
        self._arrived = bytearray()
        self._unsent = bytearray()
        self._is_writing = False
        self._loaded: asyncio.Future[LoadFailure | None] = self._loop.create_future()

    async def load(self) -> LoadFailure | None:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        mine.setblocking(False)
        self._control = mine
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Output that is of no call goes to the log of the instance.
            self._id, command = await self._box.run(
                [sys.executable, *PYTHON], env={}, cwd=self._code, streams=(its.fileno(), 1, 2)
            )
        finally:
            its.close()
            os.close(nothing)
        self._loop.add_reader(mine, self._read)
        command.ended.add_done_callback(lambda ended: self._on_exit(command, ended))
        handler = self._handler
        self._send(
            {
                "function": handler.function,
                "entrypoint": handler.entrypoint,
                "concurrency": handler.concurrency,
                "code": self._code,
                "packages": handler.packages,
            }
        )
        return await asyncio.shield(self._loaded)

    def call(self, call: Call, log: CallLog) -> None:
        self._logs[call.id] = log
        self._send(CallRequest(call.id, call.event, call.seconds, call.name or call.id))

    def cancel(self, id_: str) -> None:
        self._send({"cancel": id_})

    def close(self) -> None:
        control, self._control = self._control, None
        if control is None:
            return
        self._loop.remove_reader(control)
        self._loop.remove_writer(control)
        control.close()
        if not self._loaded.done():
            self._loaded.cancel()
        if self._id:
            # A handler may keep the process from exiting when its connection is closed.
            killing = self._loop.create_task(self._kill(self._id))
            killing.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _kill(self, id_: str) -> None:
        await self._box.signal(id_, signal.SIGKILL)

    # Sending.

    def _send(self, message: Mapping[str, Any] | Struct) -> None:
        if self._control is None:
            return
        content = _encode(message)
        if not self._unsent:
            # After this iteration of the loop, so that its messages are sent together.
            self._loop.call_soon(self._write)
        self._unsent += len(content).to_bytes(LENGTH_BYTES, "big") + content

    def _write(self) -> None:
        if self._control is None:
            return
        try:
            sent = self._control.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # `_on_exit` reports it when the process has ended.
        del self._unsent[:sent]
        if bool(self._unsent) != self._is_writing:
            self._is_writing = bool(self._unsent)
            if self._is_writing:
                self._loop.add_writer(self._control, self._write)
            else:
                self._loop.remove_writer(self._control)

    # Receiving.

    def _read(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # `_on_exit` comes soon, if the process has ended.
            self._loop.remove_reader(self._control)
            self._loop.call_later(END_SECONDS_MAX, self._left)
            return
        arrived = self._arrived
        arrived += data
        while self._control is not None and len(arrived) >= LENGTH_BYTES:
            length = int.from_bytes(arrived[:LENGTH_BYTES], "big")
            if length > REPLY_BYTES_MAX:
                self._fail("the process of the function sent a message that is too long")
                return
            if len(arrived) < LENGTH_BYTES + length:
                return
            content = bytes(arrived[LENGTH_BYTES : LENGTH_BYTES + length])
            del arrived[: LENGTH_BYTES + length]
            try:
                # A result is passed on as it is, so it must be valid UTF-8.
                self._handle(_decode(content.decode()))
            except NOT_JSON:
                # The handler can write to the socket, too.
                self._fail("the process of the function sent a message that is not understood")
                return

    def _handle(self, reply: HandlerReply) -> None:
        if reply.loaded or reply.failed:
            self.cancels = reply.cancels
            if not self._loaded.done():
                failed = LoadFailure(IMPORT_FAILED, reply.failed, reply.said[-SAID_CHARACTERS_MAX:])
                self._loaded.set_result(failed if reply.failed else None)
        elif reply.log:
            if reply.call in self._logs:
                self._logs[reply.call].write(reply.log.encode())
        else:
            self._logs.pop(reply.call, None)
            reason: CallReason = "Failed" if reply.error else "Succeeded"
            self._on_end(self, reply.call, reason, reply.result, reply.error, None)
            if reply.worn:
                self._on_worn(self)

    def _left(self) -> None:
        if self._control is not None:
            self._fail("the process of the function closed its connection")

    def _on_exit(self, command: BoxCommand, ended: asyncio.Future[int]) -> None:
        if self._control is None:
            return
        error = ended.exception()
        if error is not None:
            self._fail(str(error), error)
            return
        code = ended.result()
        how = f"by {signal_name(-code)}" if code < 0 else f"with exit code {code}"
        by_itself = code >= 0 and not command.error
        self._fail(command.error or f"the process of the function ended {how}", exit_code=code if by_itself else None)

    def _fail(self, how: str, error: BaseException | None = None, exit_code: int | None = None) -> None:
        """Report that the process is of no use any more, as a failed load or as its death."""
        if not self._loaded.done():
            if isinstance(error, BoxLost):
                self._loaded.set_exception(error)
            else:
                self._loaded.set_result(LoadFailure(IMPORT_FAILED, how))
            return
        self._on_death(self, how, exit_code)
