"""The box of a runner: a sandbox (or none) with an agent in it that runs commands."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rota.api.problems import NOT_JSON
from rota.runtime.keeper.kernel import start_time_of
from rota.runtime.runner import note
from rota.runtime.runner.agent import CLEAR_PAUSE_SECONDS, LENGTH_BYTES, MESSAGE_BYTES_MAX, READ_BYTES, descendants
from rota.runtime.runner.outside import Outside

START_SECONDS_MAX = 30.0
CLEAR_SECONDS_MAX = 15.0
LOOK_SECONDS, STOPPED_LOOKS = 0.5, 3
"""How often an agent that is asked to clear its box is looked at, and how often in a row it may be stopped then."""
ANSWER_SECONDS_MAX = 60.0
"""For an agent to read a message, to start a command, and to tell the end of one that was killed.

Longer than a box may be stopped while its storage is measured.
"""
VERIFY_SECONDS_MAX = 1.0
"""For how long what runs in a box may be more than its agent says."""
STOP_SECONDS_MAX = 5.0
CODE_MAX, SIGNAL_MAX = 255, 64

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class BoxLost(Exception):  # noqa: N818
    """The box has ended, and all in it."""


class Command:
    """One command in a box."""

    def __init__(self) -> None:
        self.started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Its process, as the box numbers it."""
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Its exit code, or the signal that ended it as a negative number. Raises BoxLost."""
        self.error = ""
        """Why it could not be started, if so."""


class Box:
    """Starts an agent, and has it run things. Everything in it ends when this does, or when its runner dies.

    `lost` is set when it has ended by itself.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], noted_in: Path) -> None:
        self._argv = argv
        self._env = env
        self._note = noted_in
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._reading: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._commands: dict[str, Command] = {}
        self._ready: asyncio.Future[int] | None = None
        self._cleared: asyncio.Future[int] | None = None
        self.lost = asyncio.Event()
        self._outside: Outside | None = None
        self.uid: int | None = None
        """Whose commands run in it, as they see it; None: it did not say."""

    async def start(self) -> None:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        mine.setblocking(False)
        self._control = mine
        self._ready = asyncio.get_running_loop().create_future()
        try:
            # In a session of its own: a signal to the runner's group is for the runner to pass on.
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=its.fileno(),
                stdout=None,
                stderr=None,
                env=dict(self._env),
                cwd="/",
                start_new_session=True,
            )
        finally:
            its.close()
        self._reading = asyncio.create_task(self._read(), name="agent")
        async with asyncio.timeout(START_SECONDS_MAX):
            await asyncio.shield(self._ready)
        pid = self._process.pid
        self._outside = Outside(pid, self._ready.result())
        self._write_down(note.Note(f"{pid}@{start_time_of(pid)}", self._env))

    async def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, streams: tuple[int, int, int]
    ) -> tuple[str, Command]:
        """Start a command on these descriptors, of which the caller keeps its own copies to close.

        The environment is on top of the box's own.
        """
        id_ = str(next(self._numbers))
        command = self._commands[id_] = Command()
        await self._send({"do": "run", "id": id_, "argv": argv, "env": env, "cwd": cwd}, streams)
        self._expect(command.started)
        return id_, command

    async def signal(self, id_: str, number: int) -> None:
        await self._send({"do": "signal", "id": id_, "signal": int(number)})
        if number == signal.SIGKILL and id_ in self._commands:
            self._expect(self._commands[id_].ended)

    def is_clear(self, but: Sequence[str] = (), *, alone: bool = False) -> bool:
        """Whether nothing runs in it but the agent and some commands. False: it is not certain, and `clear` it is.

        `alone`: nothing that has entered it either.
        """
        kept = [self._commands[id_].started for id_ in but if id_ in self._commands]
        if self._outside is None or not all(started.done() for started in kept):
            return False
        numbers = [started.result() for started in kept]
        return self._outside.is_clear(numbers) and (not alone or self._outside.is_alone(numbers))

    def is_as_started(self) -> bool:
        """Report whether a command that is started now has the limits and the priority that the first one had."""
        return self._outside is not None and self._outside.is_as_started()

    async def clear(self, but: Sequence[str] = (), *, alone: bool = False) -> None:
        """End everything in the box but the agent and some commands. Raises BoxLost when that cannot be had.

        `alone`: also what has entered it.
        """
        self._cleared = asyncio.get_running_loop().create_future()
        is_apart = self._outside is not None and self._outside.is_apart
        await self._send({"do": "clear", "but": but, "alone": alone and is_apart})
        left = await self._until_cleared(self._cleared)
        if left:
            raise BoxLost(f"{left} processes cannot be ended")
        # The agent is in the box: what it says of the box is looked at from outside. A command that is kept may have
        # ended meanwhile, and that may not have been heard yet.
        deadline = time.monotonic() + VERIFY_SECONDS_MAX
        while not self.is_clear(but, alone=alone):
            if time.monotonic() > deadline:
                raise BoxLost("something runs on in it that its agent does not tell of")
            await asyncio.sleep(CLEAR_PAUSE_SECONDS)

    async def _until_cleared(self, cleared: asyncio.Future[int]) -> int:
        """Return how many processes are left. Raises BoxLost when the agent does not say, or cannot."""
        deadline, stopped = time.monotonic() + CLEAR_SECONDS_MAX, 0
        while not (await asyncio.wait((cleared,), timeout=LOOK_SECONDS))[0]:
            if time.monotonic() > deadline:
                raise BoxLost("the agent does not answer")
            is_stopped = self._outside is not None and self._outside.is_stopped()
            stopped = stopped + 1 if is_stopped else 0
            if stopped == STOPPED_LOOKS:
                raise BoxLost("the agent was stopped by what runs in the box")
        return cleared.result()

    async def stop(self) -> None:
        """End it and everything in it. Raises BoxLost when something cannot be ended."""
        self._write_down(None)
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            # Not `wait_for`, which loses a cancel that comes at the moment of the end.
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._process.wait()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._control is not None:
            self._control.close()
        if self._outside is not None:
            self._outside.close()
            self._outside = None
        self._fail()
        await asyncio.to_thread(_sweep)

    def _write_down(self, box: note.Note | None) -> None:
        """Never removed: without a note, commands would join the runner."""
        with contextlib.suppress(FileNotFoundError):  # All of the instance may be gone.
            note.write(self._note, box)

    async def _send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        assert self._control is not None
        content = _encode(message)
        whole = len(content).to_bytes(LENGTH_BYTES, "big") + content
        loop = asyncio.get_running_loop()
        async with self._sending:
            try:
                if descriptors:
                    # The first byte carries them; a buffer that is full for the first byte is one that nobody reads.
                    socket.send_fds(self._control, [whole[:1]], list(descriptors))
                    whole = whole[1:]
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    await loop.sock_sendall(self._control, whole)
            except TimeoutError:
                # What was sent of it is no message.
                self._fail()
                raise BoxLost("the agent does not read") from None
            except OSError as error:
                raise BoxLost(str(error)) from None

    def _expect(self, answer: asyncio.Future[int]) -> None:
        """Give the box up as lost if its agent does not answer in time."""
        timer = asyncio.get_running_loop().call_later(ANSWER_SECONDS_MAX, self._miss, answer)
        answer.add_done_callback(lambda _: timer.cancel())

    def _miss(self, answer: asyncio.Future[int]) -> None:
        if not answer.done():
            self._fail()

    async def _read(self) -> None:
        assert self._control is not None
        loop = asyncio.get_running_loop()
        arrived = bytearray()
        try:
            while data := await loop.sock_recv(self._control, READ_BYTES):
                arrived += data
                while len(arrived) >= LENGTH_BYTES:
                    length = int.from_bytes(arrived[:LENGTH_BYTES], "big")
                    if length > MESSAGE_BYTES_MAX:
                        return
                    if len(arrived) < LENGTH_BYTES + length:
                        break
                    self._take(_decode(arrived[LENGTH_BYTES : LENGTH_BYTES + length]))
                    del arrived[: LENGTH_BYTES + length]
        except (OSError, *NOT_JSON, KeyError, TypeError, ValueError):
            return  # What is in the box may say anything: whoever talks rubbish is as good as gone.
        finally:
            self._fail()

    def _take(self, message: Any) -> None:
        if "ready" in message:
            if "uid" in message:
                self.uid = int(message["uid"])
            _settle(self._ready, int(message["ready"]))
        elif "cleared" in message:
            _settle(self._cleared, int(message["cleared"]))
        elif (command := self._commands.get(message["id"])) is not None:
            if "pid" in message:
                _settle(command.started, int(message["pid"]))
            else:
                code = _code(message["code"])
                del self._commands[message["id"]]
                command.error = str(message.get("error", ""))
                _settle(command.started, 0)
                _settle(command.ended, code)

    def _fail(self) -> None:
        lost = BoxLost("what ran in it is gone")
        for future in (self._ready, self._cleared):
            _settle(future, lost)
        for command in self._commands.values():
            _settle(command.started, lost)
            _settle(command.ended, lost)
        self._commands.clear()
        self.lost.set()


def _code(value: Any) -> int:
    """How a command ended, as its agent says. Raises TypeError for what no command can end with."""
    if not isinstance(value, int) or not -SIGNAL_MAX <= value <= CODE_MAX:
        raise TypeError(value)
    return value


def _settle(future: asyncio.Future[int] | None, result: int | BoxLost) -> None:
    if future is None or future.done():
        return
    if isinstance(result, BoxLost):
        future.set_exception(result)
        future.exception()  # Whoever waits sees it; nobody has to.
    else:
        future.set_result(result)


def _sweep() -> None:
    """End what a box without a sandbox leaves: it has come to this process, which has nothing else below it now."""
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while left := descendants(os.getpid()):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        if time.monotonic() > deadline:
            raise BoxLost(f"{len(left)} processes cannot be ended")
        time.sleep(CLEAR_PAUSE_SECONDS)
    _reap()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
