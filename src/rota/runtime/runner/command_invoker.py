"""Answers calls by a command: one process for each, with the event on its input and the result on its output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from rota.api.problems import NOT_JSON
from rota.runtime.runner.box import SIGNALLED, Box, BoxLost, signal_name
from rota.runtime.runner.handler_program import RESULT_BYTES_MAX
from rota.runtime.runner.invoker import COMMAND_NOT_FOUND, CallLog, LoadFailure
from rota.runtime.runner.messages import Call, CallReason, Handler
from rota.runtime.runner.standard_streams import Capture

ENV_CALL, ENV_FUNCTION, ENV_SECONDS = "ROTA_CALL_ID", "ROTA_FUNCTION", "ROTA_TIMEOUT_SECONDS"
"""Variables that tell a command which call it answers."""

LOOK = """
import os, shutil, sys
name = sys.argv[1]
if shutil.which(name) is None:
    if os.path.isfile(name):
        sys.exit(f"command: {name} may not be executed; chmod +x it, or name the program that runs it")
    where = "its code" if "/" in name else "the PATH of its sandbox"
    sys.exit(f"command: there is no program {name} in {where}")
"""
"""A program that exits with a sentence if a command cannot be run, and with 0 if it can."""

_encode = msgspec.json.Encoder().encode
_checked = msgspec.json.Decoder().decode


class CommandInvoker:
    """Starts a command for each call."""

    cancels = True

    def __init__(
        self,
        box: Box,
        handler: Handler,
        code: str,
        ended: Callable[[Any, str, CallReason, Raw, str, int | None], None],
    ) -> None:
        self.lingering: set[str] = set()
        self._box = box
        self._handler = handler
        self._code = code
        self._on_end = ended
        self._running: dict[str, tuple[asyncio.Task[None], list[str]]] = {}

    async def load(self) -> LoadFailure | None:
        """Check that the box has the program of the command, without running it."""
        said = bytearray()
        output = Capture(lambda data: _keep(said, data), self._box.uid)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            argv = [sys.executable, "-I", "-S", "-c", LOOK, self._handler.command[0]]
            streams = (nothing, output.writing, output.writing)
            _, command = await self._box.run(argv, env={}, cwd=self._code, streams=streams)
            output.started()
            code = await command.ended
            output.drain()
        finally:
            os.close(nothing)
            output.close()
        if code == 0:
            return None
        return LoadFailure(COMMAND_NOT_FOUND, command.error or said.decode(errors="replace").strip())

    def call(self, call: Call, log: CallLog) -> None:
        command: list[str] = []
        task = asyncio.create_task(self._run(call, log, command), name=f"call {call.id}")
        self._running[call.id] = task, command

    def cancel(self, id_: str) -> None:
        running = self._running.get(id_)
        if running is not None and running[1]:
            killing = asyncio.create_task(self._kill(running[1][0]))
            killing.add_done_callback(lambda done: done.cancelled() or done.exception())

    def close(self) -> None:
        for id_, (task, _) in list(self._running.items()):
            self.cancel(id_)
            task.cancel()

    async def _kill(self, command: str) -> None:
        with contextlib.suppress(BoxLost):
            await self._box.signal(command, signal.SIGKILL)

    async def _run(self, call: Call, log: CallLog, started: list[str]) -> None:
        said = bytearray()
        output = Capture(lambda data: _keep(said, data), self._box.uid)
        errors = Capture(log.write, self._box.uid)
        given = os.memfd_create("event", os.MFD_CLOEXEC)
        try:
            _write_all(given, bytes(call.event))
            about = {ENV_CALL: call.name or call.id, ENV_FUNCTION: self._handler.function}
            env = {**about, ENV_SECONDS: f"{call.seconds:g}"}
            streams = (given, output.writing, errors.writing)
            id_, command = await self._box.run(self._handler.command, env=env, cwd=self._code, streams=streams)
            started.append(id_)
            if call.id in self.lingering:
                await self._kill(id_)  # It was cancelled before it began.
            output.started()
            errors.started()
            code = await command.ended
            # A few bytes may still be in the pipes.
            output.drain()
            errors.drain()
            if command.error:
                log.write(f"{command.error}\n".encode())
            self._report_end(call.id, code, command.error, said)
        except BoxLost as error:
            self._on_end(self, call.id, "WorkerLost", Raw(), str(error), None)
        finally:
            os.close(given)
            output.close()
            errors.close()
            self._running.pop(call.id, None)
        await self._clear()

    def _report_end(self, id_: str, code: int, error: str, said: bytearray) -> None:
        exit_code = code if code >= 0 else SIGNALLED - code
        if code != 0:
            how = f"it ended by {signal_name(-code)}" if code < 0 else f"it ended with exit code {code}"
            self._on_end(self, id_, "Failed", Raw(), error or how, exit_code)
        elif len(said) > RESULT_BYTES_MAX:
            why = f"its output has more than {RESULT_BYTES_MAX} bytes"
            self._on_end(self, id_, "Failed", Raw(), why, exit_code)
        else:
            self._on_end(self, id_, "Succeeded", _result(bytes(said)), "", exit_code)

    async def _clear(self) -> None:
        """Kill the processes that calls left, if no call runs: else they cannot be told from the running call's."""
        with contextlib.suppress(BoxLost):
            if not self._running and not self._box.is_clear():
                await self._box.clear()


def _keep(said: bytearray, data: bytes) -> None:
    if len(said) <= RESULT_BYTES_MAX:
        said += data


def _result(said: bytes) -> Raw:
    """Return output that is JSON as it is, other output as a JSON string."""
    text = said.strip()
    if not text:
        return Raw()
    try:
        _checked(text)
    except NOT_JSON:
        return Raw(_encode(said.decode(errors="replace")))
    return Raw(text)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
