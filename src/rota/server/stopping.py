"""How everything that runs in a home is ended from outside: the server, what it runs, and what a crash has left.

A process is never taken by its number alone: the system says who holds the home's lock or listens on the keeper's
socket, and it is asked again once a descriptor of that process is there, which never becomes another's.
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
"""Ends a server, and leaves what it runs to the next one."""
GRACE_SECONDS = protocol.STOP_GRACE_SECONDS
"""What instances have to end by themselves, whatever they ask for themselves."""
STOP_SECONDS_MAX = 5.0
"""After this nothing is left, unless a longer grace was asked for."""
SERVER_SECONDS = 1.0
"""What a server needs to end, at least, beside that grace."""
KEEPER_SECONDS = 1.0
"""What is left for a keeper that a server has not ended: then that server has been killed."""
KILL_SECONDS = 0.5
"""What it may take until something that is killed is gone."""
ANSWER_SECONDS_MAX = 0.5
"""A keeper that does not say in this time what it runs is not waited for."""
_ATTEMPTS_MAX = 10


class OutOfReach(OSError):  # noqa: N818
    """A server runs, but not where a signal from here reaches it."""


@dataclass
class Ended:
    """What was there, and how it ended."""

    server: int | None = None
    """The process that it was."""
    server_killed: bool = False
    instances: set[tuple[str, str]] = field(default_factory=set)
    """What ran, by key and run."""
    killed: set[tuple[str, str]] = field(default_factory=set)
    """Those that had not ended by themselves within the grace."""
    left: bool = False
    """Whether something had been left behind, by a server or by a keeper."""


class Process:
    """A process of which a descriptor is held."""

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
    """End everything. When this returns, nothing of the home runs; what is there no more is no fault."""
    ended = Ended()
    deadline = time.monotonic() + max(STOP_SECONDS_MAX, grace_seconds + SERVER_SECONDS + KEEPER_SECONDS)
    async with _following(home.path, grace_seconds, ended):
        await _end_server(home, deadline - KEEPER_SECONDS, ended)
        await _end_keeper(home.path, grace_seconds, deadline, ended)
    if await asyncio.to_thread(has_leftovers, home.path):
        # What a killed keeper has left is ended by the next one, before that does anything else.
        ended.left = True
        async with Keeper.connect(home.path) as keeper:
            await keeper.shutdown(grace_seconds=0)
    # It has ended, or hangs: then it is killed.
    await background_image.remove(home.path)
    if home.server_pid() is None:
        # Else somebody has started one meanwhile, and it is that one's word.
        withdraw(home)
    # A container outlives a client that was killed.
    await Containers(Places(home.path)).sweep()
    return ended


async def _end_server(home: Home, deadline: float, ended: Ended) -> None:
    server = held(home.server_pid)
    if server is None:
        return
    with contextlib.closing(server):
        ended.server = server.pid
        server.send(signal.SIGTERM)
        if not await server.ends_within(deadline - time.monotonic()):
            ended.server_killed = True
            await kill(server)


async def _end_keeper(home: Path, grace_seconds: float, deadline: float, ended: Ended) -> None:
    """One that no server has ended: there was none, or it had to be killed."""
    stream = dial(home)
    if stream is None:
        return
    with contextlib.closing(stream):
        process = held(lambda: _peer(stream))
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


def held(who: Callable[[], int | None]) -> Process | None:
    """Whoever it is: asked again once it is held, for the number could have become another's in between."""
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
    """The process at the other end, if it is still there."""
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
    """Meanwhile see what ends under the keeper, and have it give this grace to a server that asks for none."""
    keeper = Keeper.existing(home)
    following: asyncio.Task[None] | None = None
    # There may be none, and one that hangs has nothing to tell.
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
