"""The warm interpreters of a box, as its runner has them.

One is used for call after call; the next one is started before it is needed, and loads what the other has loaded from
outside the tree. An interpreter is given up when it is worn (a call left threads, its output held open, too much memory
or too many descriptors), after `CALLS_MAX` calls, when it was asked to end, when it dies, and when it says what it
should not. Whoever clears the box keeps `kept`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from rota.api.problems import NOT_JSON
from rota.runtime.runner import interpreter
from rota.runtime.runner.box import Box, Command
from rota.runtime.runner.interpreter import LENGTH_BYTES, LIBRARIES_MAX, NO_CALL, READ_BYTES, RESULT_BYTES_MAX

CALLS_MAX = 2000
READY = 2
"""How many there are: the one in use, and the next."""
SEND_SECONDS_MAX = 30.0
"""For an interpreter to read what it is sent. What was called in it may have made it deaf."""
WARM_SECONDS_MAX = 60.0
"""For the next one to load what it is to load."""
REPLY_BYTES_MAX = 8 * RESULT_BYTES_MAX
FAILED = 1
CODE_MAX = 255
SIGNALLED = 128
# As a module, which is read as it was compiled; under a name that nobody imports; and not as the main one, which would
# be run again in processes that are started with `multiprocessing`.
PROGRAM = (
    "import importlib.util as util; "
    f"spec = util.spec_from_file_location('rota interpreter', {str(Path(interpreter.__file__).absolute())!r}); "
    "module = util.module_from_spec(spec); spec.loader.exec_module(module); module.main()"
)

_encode = msgspec.json.Encoder().encode


class Reply(Struct, frozen=True):
    """How a call ended."""

    call: int
    code: Annotated[int, Meta(ge=0, le=CODE_MAX)] = FAILED
    """What is called may write one itself: what is none could not be written down."""
    result: str | None = None
    error: str = ""
    worn: str = ""
    up: bool = False
    """The interpreter has started. Nothing was called in it before that."""
    stale: bool = False
    """Nothing was called: what is loaded is not what is in the tree, or the interpreter was killed as it started."""
    libraries: list[str] | None = None


_decode = msgspec.json.Decoder(Reply).decode
_numbers = itertools.count(1)


class Interpreter:
    """One process, and what is told to it."""

    def __init__(self, control: socket.socket, id_: str, command: Command) -> None:
        self.id = id_
        self.calls = 0
        self.is_usable = True
        self.is_up = False
        self.is_warm = True
        """Whether it has loaded what it was told to."""
        self.began = asyncio.get_running_loop().time()
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._command = command
        self._arrived = bytearray()
        self._number = 0
        self._reply: asyncio.Future[Reply] | None = None
        self._loop.add_reader(control, self._read)
        command.ended.add_done_callback(self._ended)

    async def warm(self, libraries: list[str]) -> None:
        """Have it load something. It may never come back from that."""
        self.is_warm = False
        await self.send({"warm": libraries})

    async def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> bool:
        """Whether it is told. What it is not told whole, it does not do."""
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

    async def call(self, message: Mapping[str, Any], descriptors: Sequence[int]) -> asyncio.Future[Reply] | None:
        """Start a call; the future is how it ends, or BoxLost. None: it cannot be called any more."""
        self._number = next(_numbers)
        self._reply = self._loop.create_future()
        self.calls += 1
        return self._reply if await self.send({"call": self._number, **message}, descriptors) else None

    def give_up(self) -> None:
        """It ends by itself when it sees that, or is ended when the box is cleared."""
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
            # Its process may go on without it: it is over when that has ended.
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
        # What is called may write there, too.
        self.give_up()
        self._settle(Reply(self._number, error="what the interpreter said is not understood"))

    def _ended(self, ended: asyncio.Future[int]) -> None:
        self.give_up()
        error = ended.exception()
        if error is not None:
            if self._reply is not None and not self._reply.done():
                self._reply.set_exception(error)
            return
        code = ended.result()
        how = f"ended by {name_of(-code)}" if code < 0 else f"ended with exit code {code}"
        message = self._command.error or f"the interpreter {how} before the call returned"
        code, is_killed = (code, False) if code >= 0 else (SIGNALLED - code, True)
        self._settle(Reply(self._number, code, error=message, stale=is_killed and not self.is_up))

    def _settle(self, reply: Reply) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)


class Interpreters:
    """The one in use and the next one, of one box."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self._all: list[Interpreter] = []
        """The one in use is the first."""
        self._libraries: list[str] = []

    def kept(self) -> list[str]:
        """The commands of the box that go on when a job ends."""
        return [one.id for one in self._all if one.is_usable]

    def is_prepared(self) -> bool:
        """Report whether `prepare` has nothing to do."""
        return len(self._all) == READY and all(one.is_usable and one.is_warm for one in self._all)

    def is_in_use(self, id_: str) -> bool:
        """Report whether the interpreter that ran a call takes the next one."""
        return bool(self._all) and self._all[0].id == id_ and self._all[0].is_usable

    async def prepare(self) -> None:
        """Have one ready, and the next one too."""
        now = asyncio.get_running_loop().time()
        for one in self._all:
            if not one.is_warm and now - one.began > WARM_SECONDS_MAX:
                # To load something can take for ever, when it is not a job that loads it.
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
    ) -> tuple[str, asyncio.Future[Reply]]:
        """Start a call: the command to signal, and how it ends; then it is to be said that this is `done`.

        The caller keeps its own copies of the descriptors, which are input and output.
        """
        message = {"target": target, "args": args, "env": env, "cwd": cwd}
        while True:
            one = next((one for one in self._all if one.is_usable and one.is_warm), None)
            if one is None:
                # What is loaded is loaded by the call itself as fast.
                one = await self._start([])
            self._all = [one, *(other for other in self._all if other is not one and other.is_usable)]
            reply = await one.call(message, streams)
            if reply is not None:
                return one.id, reply

    def done(self, reply: Reply | None) -> None:
        """How the last call ended; None: it was made to end."""
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


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
