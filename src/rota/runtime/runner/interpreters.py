"""The warm Python interpreters of a box: the runner's side of `interpreter_program`.

One interpreter answers call after call. The next one is started before it is needed, and imports the libraries that the
first has imported. An interpreter is given up when it is worn (a call left threads, an open output, too much memory or
too many descriptors), after `CALLS_MAX` calls, when its call was stopped, when it dies, and when it sends a message
that is not understood.

When the box is cleared, the interpreters in `kept` run on.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from rota.api.problems import NOT_JSON
from rota.runtime.runner import interpreter_program
from rota.runtime.runner.box import SIGNALLED, Box, BoxCommand, signal_name
from rota.runtime.runner.interpreter_program import LENGTH_BYTES, LIBRARIES_MAX, NO_CALL, READ_BYTES, RESULT_BYTES_MAX

CALLS_MAX = 2000
READY = 2
"""The number of interpreters of a box: the one in use and the next."""
SEND_SECONDS_MAX = 30.0
"""The most seconds that an interpreter may take to read a message: a function may keep it from reading."""
WARM_SECONDS_MAX = 60.0
"""The most that the next interpreter may take to import its libraries."""
REPLY_BYTES_MAX = 8 * RESULT_BYTES_MAX
FAILED = 1
CODE_MAX = 255
# As a module, whose compiled form is cached; under a name that no code imports; and not as the main module, which
# `multiprocessing` would run again.
PROGRAM = (
    "import importlib.util as util; "
    f"spec = util.spec_from_file_location('rota interpreter', {str(Path(interpreter_program.__file__).absolute())!r}); "
    "module = util.module_from_spec(spec); spec.loader.exec_module(module); module.main()"
)

_encode = msgspec.json.Encoder().encode


class InterpreterReply(Struct, frozen=True):
    """A message of an interpreter: it has started, it is warm, or a call has ended."""

    call: int
    code: Annotated[int, Meta(ge=0, le=CODE_MAX)] = FAILED
    """The exit code. Checked here, because a function can write to the socket and the journal refuses other codes."""
    result: str | None = None
    error: str = ""
    worn: str = ""
    up: bool = False
    """True for the first message: the interpreter has started, and nothing was called in it yet."""
    stale: bool = False
    """True if nothing was called: a loaded module differs from the tree, or the interpreter was killed at its start."""
    libraries: list[str] | None = None


_decode = msgspec.json.Decoder(InterpreterReply).decode
_numbers = itertools.count(1)


class Interpreter:
    """One interpreter process of the box."""

    def __init__(self, control: socket.socket, id_: str, command: BoxCommand) -> None:
        self.id = id_
        self.calls = 0
        self.is_usable = True
        self.is_up = False
        self.is_warm = True
        """True once its libraries are imported."""
        self.began = asyncio.get_running_loop().time()
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._command = command
        self._arrived = bytearray()
        self._number = 0
        self._reply: asyncio.Future[InterpreterReply] | None = None
        self._loop.add_reader(control, self._read)
        command.ended.add_done_callback(self._ended)

    async def warm(self, libraries: list[str]) -> None:
        """Make the interpreter import libraries. An import may hang."""
        self.is_warm = False
        await self.send({"warm": libraries})

    async def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> bool:
        """Send a message. Returns False if it could not be sent completely; then it has no effect."""
        content = _encode(message)
        whole = memoryview(len(content).to_bytes(LENGTH_BYTES, "big") + content)
        try:
            if descriptors:
                whole = whole[socket.send_fds(self._control, [whole], list(descriptors)) :]
            if whole:
                async with asyncio.timeout(SEND_SECONDS_MAX):
                    await self._loop.sock_sendall(self._control, whole)
        except OSError:  # TimeoutError among them.
            self.give_up()
            return False
        return True

    async def call(
        self, message: Mapping[str, Any], descriptors: Sequence[int]
    ) -> asyncio.Future[InterpreterReply] | None:
        """Start a call. The returned future gets its reply, or BoxLost. Returns None if the interpreter is gone."""
        self._number = next(_numbers)
        self._reply = self._loop.create_future()
        self.calls += 1
        return self._reply if await self.send({"call": self._number, **message}, descriptors) else None

    def give_up(self) -> None:
        """Close the connection of the interpreter. It exits then, or is killed when the box is cleared."""
        self.is_usable = False
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control)
            self._control.close()

    def _read(self) -> None:
        try:
            data = self._control.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._arrived += data
        if not data:
            # The process may run on without its connection: the call is over when it has exited.
            self.give_up()
            return
        while len(self._arrived) >= LENGTH_BYTES:
            length = int.from_bytes(self._arrived[:LENGTH_BYTES], "big")
            if length > REPLY_BYTES_MAX:
                self._misunderstood()
                return
            if len(self._arrived) < LENGTH_BYTES + length:
                return
            content = bytes(self._arrived[LENGTH_BYTES : LENGTH_BYTES + length])
            del self._arrived[: LENGTH_BYTES + length]
            try:
                reply = _decode(content)
            except NOT_JSON:
                self._misunderstood()
                return
            if reply.call == NO_CALL and reply.up:
                self.is_up = True
            elif reply.call == NO_CALL:
                self.is_warm = True
            elif reply.call == self._number:
                self._settle(reply)

    def _misunderstood(self) -> None:
        # The function can write to the socket, too.
        self.give_up()
        self._settle(InterpreterReply(self._number, error="the interpreter sent a message that is not understood"))

    def _ended(self, ended: asyncio.Future[int]) -> None:
        self.give_up()
        error = ended.exception()
        if error is not None:
            if self._reply is not None and not self._reply.done():
                self._reply.set_exception(error)
            return
        code = ended.result()
        how = f"ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        message = self._command.error or f"the interpreter {how} before the call returned"
        code, is_killed = (code, False) if code >= 0 else (SIGNALLED - code, True)
        self._settle(InterpreterReply(self._number, code, error=message, stale=is_killed and not self.is_up))

    def _settle(self, reply: InterpreterReply) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)


class Interpreters:
    """The interpreters of one box."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self._all: list[Interpreter] = []
        """The first is the one in use."""
        self._libraries: list[str] = []

    def kept(self) -> list[str]:
        """Return the interpreters' commands, which run on when a job ends."""
        return [one.id for one in self._all if one.is_usable]

    def is_prepared(self) -> bool:
        """Report whether all interpreters are started and warm."""
        return len(self._all) == READY and all(one.is_usable and one.is_warm for one in self._all)

    def is_in_use(self, id_: str) -> bool:
        """Report whether the interpreter that ran a call will also run the next one."""
        return bool(self._all) and self._all[0].id == id_ and self._all[0].is_usable

    async def prepare(self) -> None:
        """Start the interpreters that are missing."""
        now = asyncio.get_running_loop().time()
        for one in self._all:
            if not one.is_warm and now - one.began > WARM_SECONDS_MAX:
                # An import can hang outside of a job.
                one.give_up()
                self._libraries = []
        usable = [one for one in self._all if one.is_usable]
        for extra in usable[READY:]:
            extra.give_up()
        self._all = usable[:READY]
        while len(self._all) < READY:
            self._all.append(await self._start(self._libraries))

    async def call(
        self, target: str, args: Sequence[str], *, env: Mapping[str, str], cwd: str, streams: tuple[int, int]
    ) -> tuple[str, asyncio.Future[InterpreterReply]]:
        """Start a call. Return its command, for signals, and the future of its reply. Call `done` when it is over.

        `streams`: input and output. The caller closes its own copies of them.
        """
        message = {"target": target, "args": args, "env": env, "cwd": cwd}
        while True:
            one = next((one for one in self._all if one.is_usable and one.is_warm), None)
            if one is None:
                # Without libraries: the call itself imports them as fast.
                one = await self._start([])
            self._all = [one, *(other for other in self._all if other is not one and other.is_usable)]
            reply = await one.call(message, streams)
            if reply is not None:
                return one.id, reply

    def done(self, reply: InterpreterReply | None) -> None:
        """Note the end of the last call. None: the call was stopped, so its interpreter is given up."""
        one = self._all[0]
        if reply is not None and reply.libraries is not None:
            self._libraries = reply.libraries[:LIBRARIES_MAX]
        if reply is None or reply.stale or reply.worn or one.calls >= CALLS_MAX:
            one.give_up()

    async def _start(self, libraries: list[str]) -> Interpreter:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        mine.setblocking(False)
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            id_, command = await self.box.run(
                [sys.executable, "-I", "-c", PROGRAM], env={}, cwd="/", streams=(its.fileno(), nothing, nothing)
            )
        except BaseException:
            mine.close()
            raise
        finally:
            its.close()
            os.close(nothing)
        started = Interpreter(mine, id_, command)
        if libraries:
            await started.warm(libraries)
        return started

    def close(self) -> None:
        for one in self._all:
            one.give_up()
        self._all = []
