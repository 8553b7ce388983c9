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
from rota.runtime.private import write_private
from rota.runtime.runner.agent import CLEAR_PAUSE_SECONDS, LENGTH_BYTES, MESSAGE_BYTES_MAX, READ_BYTES, descendants
from rota.runtime.runner.box_processes import BoxProcesses

START_SECONDS_MAX = 30.0
CLEAR_SECONDS_MAX = 15.0
LOOK_SECONDS, STOPPED_LOOKS = 0.5, 3
"""Seconds between two looks at an agent that clears its box, and how many in a row may find it stopped."""
ANSWER_SECONDS_MAX = 60.0
"""The most seconds that an agent may take to read a message, to start a command, or to report the end of a killed one.

A box may be frozen for less than this while its storage is measured.
"""
VERIFY_SECONDS_MAX = 1.0
"""Seconds within which a box must look clear from outside, after its agent has answered that it is."""
STOP_SECONDS_MAX = 5.0
CODE_MAX, SIGNAL_MAX = 255, 64

SIGNALLED = 128
"""A signal's number plus this is the exit code that a shell reports for it."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class BoxNote(msgspec.Struct, frozen=True):
    """The box that a runner has running. Written to a file, for those who start further commands in the box."""

    process: str
    """The first process of the box, as PID@START_TIME."""
    env: Mapping[str, str]
    """The environment that the box was started with."""


def write_note(path: Path, note: BoxNote | None) -> None:
    """Write which box runs. None: no box runs, and commands that want to enter have to wait."""
    write_private(path, msgspec.json.encode(note) if note is not None else b"")


def read_note(path: Path) -> BoxNote | None:
    """Return the running box, or None if none runs. Raises FileNotFoundError if the instance has no runner."""
    content = path.read_bytes()
    try:
        return msgspec.json.decode(content, type=BoxNote) if content else None
    except msgspec.MsgspecError:
        return None


class BoxLost(Exception):  # noqa: N818
    """The box is of no use any more: it has ended, its agent does not answer, or it cannot be cleared."""


class BoxCommand:
    """A command in a box, from its start to its exit."""

    def __init__(self) -> None:
        self.started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The pid of the command in the PID namespace of the box."""
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The exit code of the command, or the negative number of the signal that ended it. Raises BoxLost."""
        self.error = ""
        """The reason why the command could not be started; empty if it was started."""


class Box:
    """A sandbox (or none) with an agent that runs commands in it. All of it ends with `stop`, or when its runner dies.

    `lost` is set when the box has ended by itself, or does not answer any more.
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
        self._commands: dict[str, BoxCommand] = {}
        self._ready: asyncio.Future[int] | None = None
        self._cleared: asyncio.Future[int] | None = None
        self.lost = asyncio.Event()
        self._processes: BoxProcesses | None = None
        self.uid: int | None = None
        """The uid of the box's commands, as they see it; None if the agent did not report it."""

    async def start(self) -> None:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        mine.setblocking(False)
        self._control = mine
        self._ready = asyncio.get_running_loop().create_future()
        try:
            # In a session of its own: a signal to the runner's process group must not reach it.
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
        self._processes = BoxProcesses(pid, self._ready.result())
        self._update_note(BoxNote(f"{pid}@{start_time_of(pid)}", self._env))

    async def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, streams: tuple[int, int, int]
    ) -> tuple[str, BoxCommand]:
        """Start a command on these descriptors. The caller closes its own copies of them.

        `env` is added to the environment of the box.
        """
        id_ = str(next(self._numbers))
        command = self._commands[id_] = BoxCommand()
        await self._send({"do": "run", "id": id_, "argv": argv, "env": env, "cwd": cwd}, streams)
        self._expect(command.started)
        return id_, command

    async def signal(self, id_: str, number: int) -> None:
        await self._send({"do": "signal", "id": id_, "signal": int(number)})
        if number == signal.SIGKILL and id_ in self._commands:
            self._expect(self._commands[id_].ended)

    def is_clear(self, but: Sequence[str] = (), *, alone: bool = False) -> bool:
        """Report whether only the agent and these commands run in the box. If False, this is not certain: call `clear`.

        `alone`: also require that no process that entered the box from outside runs.
        """
        kept = [self._commands[id_].started for id_ in but if id_ in self._commands]
        if self._processes is None or not all(started.done() for started in kept):
            return False
        numbers = [started.result() for started in kept]
        return self._processes.is_clear(numbers) and (not alone or self._processes.is_alone(numbers))

    def is_as_started(self) -> bool:
        """Report whether a new command would get the same limits and priority as the first command of the box."""
        return self._processes is not None and self._processes.is_as_started()

    async def clear(self, but: Sequence[str] = (), *, alone: bool = False) -> None:
        """Kill everything in the box except the agent and these commands. Raises BoxLost when something is left.

        `alone`: also kill processes that entered the box from outside.
        """
        self._cleared = asyncio.get_running_loop().create_future()
        is_apart = self._processes is not None and self._processes.is_apart
        await self._send({"do": "clear", "but": but, "alone": alone and is_apart})
        left = await self._until_cleared(self._cleared)
        if left:
            raise BoxLost(f"{left} processes cannot be ended")
        # The agent is in the box and not trusted: its answer is checked from outside. A kept command may have ended
        # meanwhile, without its exit being reported yet.
        deadline = time.monotonic() + VERIFY_SECONDS_MAX
        while not self.is_clear(but, alone=alone):
            if time.monotonic() > deadline:
                raise BoxLost("processes run on in it that its agent does not report")
            await asyncio.sleep(CLEAR_PAUSE_SECONDS)

    async def _until_cleared(self, cleared: asyncio.Future[int]) -> int:
        """Return how many processes are left. Raises BoxLost if the agent does not answer or was stopped."""
        deadline, stopped = time.monotonic() + CLEAR_SECONDS_MAX, 0
        while not (await asyncio.wait((cleared,), timeout=LOOK_SECONDS))[0]:
            if time.monotonic() > deadline:
                raise BoxLost("the agent does not answer")
            is_stopped = self._processes is not None and self._processes.is_stopped()
            stopped = stopped + 1 if is_stopped else 0
            if stopped == STOPPED_LOOKS:
                raise BoxLost("the agent was stopped by what runs in the box")
        return cleared.result()

    async def stop(self) -> None:
        """End the box and everything in it. Raises BoxLost if something cannot be ended."""
        self._update_note(None)
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
        if self._processes is not None:
            self._processes.close()
            self._processes = None
        self._fail()
        await asyncio.to_thread(_sweep)

    def _update_note(self, box: BoxNote | None) -> None:
        """Write the note of the running box. It is emptied, not removed: without it, commands would join the runner."""
        with contextlib.suppress(FileNotFoundError):  # The folder of the instance may be gone.
            write_note(self._note, box)

    async def _send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        assert self._control is not None
        content = _encode(message)
        whole = len(content).to_bytes(LENGTH_BYTES, "big") + content
        loop = asyncio.get_running_loop()
        async with self._sending:
            try:
                if descriptors:
                    # The first byte carries them. A buffer without room for one byte means that nobody reads.
                    socket.send_fds(self._control, [whole[:1]], list(descriptors))
                    whole = whole[1:]
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    await loop.sock_sendall(self._control, whole)
            except TimeoutError:
                # Part of a message may be sent, after which no other can follow.
                self._fail()
                raise BoxLost("the agent does not read") from None
            except OSError as error:
                raise BoxLost(str(error)) from None

    def _expect(self, answer: asyncio.Future[int]) -> None:
        """Treat the box as lost if its agent does not answer in time."""
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
                    self._handle(_decode(arrived[LENGTH_BYTES : LENGTH_BYTES + length]))
                    del arrived[: LENGTH_BYTES + length]
        except (OSError, *NOT_JSON, KeyError, TypeError, ValueError):
            return  # The agent is not trusted: one that sends rubbish is given up.
        finally:
            self._fail()

    def _handle(self, message: Any) -> None:
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
    """Check the exit code that an agent reports. Raises TypeError for a code that no command can have."""
    if not isinstance(value, int) or not -SIGNAL_MAX <= value <= CODE_MAX:
        raise TypeError(value)
    return value


def _settle(future: asyncio.Future[int] | None, result: int | BoxLost) -> None:
    if future is None or future.done():
        return
    if isinstance(result, BoxLost):
        future.set_exception(result)
        future.exception()  # Mark as retrieved: nobody has to wait for it.
    else:
        future.set_result(result)


def _sweep() -> None:
    """Kill orphans of a box without a sandbox: they were reparented to this process, which has no other descendants."""
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


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
