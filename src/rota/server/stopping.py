"""Stop everything that runs in a home from outside: the server, its instances, and what a crash has left.

A process is not identified by its number alone: the kernel names the holder of the home's lock or of the keeper's
socket, and is asked again once there is a descriptor of that process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from rota.runtime.containers import Containers
from rota.runtime.keeper import protocol
from rota.runtime.keeper.client import Exited, Keeper, KeeperError, Snapshot, dial
from rota.runtime.keeper.leftovers import has_leftovers
from rota.runtime.places import Places
from rota.server import background_image
from rota.server.background_state import withdraw
from rota.server.home import Home

HAND_OVER = signal.SIGUSR1
"""Ends a server without its instances, which the next server adopts."""
GRACE_SECONDS = protocol.STOP_GRACE_SECONDS
"""The default grace of instances that are stopped with the server. It overrides their own."""
STOP_SECONDS_MAX = 5.0
"""Time after which nothing is left, unless a longer grace is given."""
SERVER_SECONDS = 1.0
"""Time for a server to end, in addition to that grace."""
KEEPER_SECONDS = 1.0
"""Time for a keeper whose server had to be killed."""
KILL_SECONDS = 0.5
"""Time for a killed process to be gone."""
ANSWER_SECONDS_MAX = 0.5
"""Time for a keeper to report what it runs."""
_ATTEMPTS_MAX = 10


class OutOfReach(OSError):  # noqa: N818
    """The server runs, but a signal from here does not reach it."""


@dataclass
class Ended:
    """The result of a stop."""

    server: int | None = None
    """The process of the server; None if there was none."""
    server_killed: bool = False
    instances: set[tuple[str, str]] = field(default_factory=set)
    """The instances that ran, by key and run."""
    killed: set[tuple[str, str]] = field(default_factory=set)
    """Instances among these that did not end within the grace."""
    left: bool = False
    """True if an earlier server or keeper had left something behind."""


class Process:
    """A process with an open descriptor."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    async def ends_within(self, seconds: float) -> bool:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._descriptor, ended.set)
        try:
            await asyncio.wait_for(ended.wait(), seconds)
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(self._descriptor)
        return True

    def close(self) -> None:
        os.close(self._descriptor)


async def stop(home: Home, grace_seconds: float = GRACE_SECONDS) -> Ended:
    """Stop everything. When this returns, nothing of the home runs."""
    ended = Ended()
    deadline = time.monotonic() + max(STOP_SECONDS_MAX, grace_seconds + SERVER_SECONDS + KEEPER_SECONDS)
    async with _following(home.path, grace_seconds, ended):
        await _end_server(home, deadline - KEEPER_SECONDS, ended)
        await _end_keeper(home.path, grace_seconds, deadline, ended)
    if await asyncio.to_thread(has_leftovers, home.path):
        # A new keeper first ends what a killed one has left.
        ended.left = True
        async with Keeper.connect(home.path) as keeper:
            await keeper.shutdown(grace_seconds=0)
    # The container has ended, or hangs and is killed.
    await background_image.remove(home.path)
    if home.server_pid() is None:
        # Otherwise a new server has started, and the state file is its own.
        withdraw(home)
    # Containers outlive a killed client of the engine.
    await Containers(Places(home.path)).sweep()
    return ended


async def _end_server(home: Home, deadline: float, ended: Ended) -> None:
    server = open_process(home.server_pid)
    if server is None:
        return
    with contextlib.closing(server):
        ended.server = server.pid
        server.send(signal.SIGTERM)
        if not await server.ends_within(deadline - time.monotonic()):
            ended.server_killed = True
            await kill(server)


async def _end_keeper(home: Path, grace_seconds: float, deadline: float, ended: Ended) -> None:
    """End a keeper that has no server: none was there, or it had to be killed."""
    stream = dial(home)
    if stream is None:
        return
    with contextlib.closing(stream):
        process = open_process(lambda: _peer(stream))
        if process is None:
            return
        with contextlib.closing(process):
            ended.left = True
            grace_seconds = max(0.0, min(grace_seconds, deadline - KILL_SECONDS - time.monotonic()))
            with contextlib.suppress(KeeperError, TimeoutError):
                async with asyncio.timeout(grace_seconds + KILL_SECONDS), Keeper.existing(home) as keeper:
                    await keeper.shutdown(grace_seconds)
            if not await process.ends_within(KILL_SECONDS):
                await kill(process)


async def kill(process: Process) -> None:
    process.send(signal.SIGKILL)
    await process.ends_within(KILL_SECONDS)


def open_process(who: Callable[[], int | None]) -> Process | None:
    """Return an open process for the number that `who` returns. It asks again afterwards: a number can be reused."""
    for _ in range(_ATTEMPTS_MAX):
        pid = who()
        if pid is None:
            return None
        if pid <= 0:
            raise OutOfReach("the server of this home is in another PID namespace, a container perhaps: stop it there")
        try:
            process = Process(pid)
        except ProcessLookupError:
            continue
        if who() == pid:
            return process
        process.close()
    return None


def _peer(stream: socket.socket) -> int | None:
    """Return the process at the other end, if it still exists."""
    try:
        if not stream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            return None
    except BlockingIOError:
        pass
    except OSError:
        return None
    pid, _, _ = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(pid)


@contextlib.asynccontextmanager
async def _following(home: Path, grace_seconds: float, ended: Ended) -> AsyncIterator[None]:
    """Record the instances that end in the block. A server that sets no grace of its own uses this one."""
    keeper = Keeper.existing(home)
    following: asyncio.Task[None] | None = None
    # There may be no keeper, or one that hangs.
    with contextlib.suppress(KeeperError, TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await keeper.set_shutdown_grace(grace_seconds)
            known = asyncio.Event()
            following = asyncio.create_task(_follow(keeper, ended, known))
            await known.wait()
    try:
        yield
        if following is not None:
            await asyncio.wait((following,), timeout=ANSWER_SECONDS_MAX)
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await keeper.__aexit__(None, None, None)


async def _follow(keeper: Keeper, ended: Ended, known: asyncio.Event) -> None:
    async for event in keeper.events():
        if isinstance(event, Snapshot):
            if known.is_set():
                return  # of another keeper
            ended.instances = {(record.key, record.run) for record in event.records if record.is_running}
            known.set()
        elif isinstance(event, Exited):
            run = (event.record.key, event.record.run)
            if event.record.exit is not None and event.record.exit.signal == signal.SIGKILL and run in ended.instances:
                ended.killed.add(run)
