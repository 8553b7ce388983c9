"""The server of a home in the background: start it, and replace it while its work goes on.

- There is one server per home, however many commands start it at once.
- `start` returns when the server is ready, or raises an error with the reason, and then leaves nothing behind.
- The instances of a native server go on while the next one takes its place, even if that fails.
- `background_image.checked` checks an image before any function of this module is called.

Never: identifies a process by its number alone, ends work that the next server could adopt.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rota.runtime.keeper.client import dial
from rota.server import background_image
from rota.server.background_image import Container
from rota.server.background_log import end_of, log_of, opened, size_of
from rota.server.background_state import Found, Options, State, find
from rota.server.home import Home, usable
from rota.server.stopping import HAND_OVER, Ended, kill, open_process, stop

READY_SECONDS_MAX = 60.0
"""Time for a server to become ready: it reads all objects first."""
LOOK_SECONDS = 0.02
CONTAINER_LOOK_SECONDS = 0.3
"""Time between two requests to a container engine, which is slow to answer."""
HAND_OVER_SECONDS_MAX = 10.0
"""Time after which a server that does not end is killed. Its instances go on running."""
KILLED_SECONDS_MAX = 5.0
"""Time for the system to end a killed process."""
START_LOCK = "start.lock"
PROGRAM = "import sys; from rota.cli import main; sys.exit(main())"


class NotReady(Exception):  # noqa: N818 - says what became of it
    """A started server did not become ready, and was removed. `end` is the end of its log."""

    def __init__(self, message: str, end: list[bytes]) -> None:
        super().__init__(message)
        self.end = end


class Started(NamedTuple):
    """The server that runs now."""

    pid: int
    state: State
    is_new: bool
    """True if it was started now, False if it ran before."""
    ended: Ended | None = None
    """The result of a stop before the start; None if nothing had to be stopped."""


class Restarted(NamedTuple):
    """The new server, and the previous one."""

    started: Started
    before: State | None
    """None if no server ran."""
    killed: bool
    """True if the previous server had to be killed."""


async def start(home: Home, options: Options, container: Container | None) -> Started:
    """Start a server unless one runs. Raises `NotReady` and `CannotRun`."""
    async with _alone(home):
        found = await _found_after_start(home)
        if found.condition == "running":
            assert found.pid is not None and found.state is not None
            return Started(found.pid, found.state, is_new=False)
        # Instances of a crashed native server cannot be reached from a container.
        ended = await stop(home) if container is not None else None
        return (await _launch(home, options, container))._replace(ended=ended)


async def restart(home: Home, options: Options, container: Container | None) -> Restarted:
    """Replace the running server by a new one.

    Native instances go on if the new server is native, too. Instances in a container end with it, and native ones
    cannot be reached from a container: they are ended in good order, and started again by the new server.
    """
    async with _alone(home):
        found = await _found_after_start(home)
        before = found.state if found.condition == "running" else None
        ended, killed = None, False
        if before is not None and container is None and not before.image:
            killed = await _hand_over(home)
        elif container is not None or (before is not None and before.image):
            ended = await stop(home)
        started = (await _launch(home, options, container))._replace(ended=ended)
        return Restarted(started, before, killed)


@contextlib.asynccontextmanager
async def _alone(home: Home) -> AsyncIterator[None]:
    """Hold a lock, so that nobody else starts a server here."""
    with usable(home.path):
        home.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(home.path / START_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + READY_SECONDS_MAX + HAND_OVER_SECONDS_MAX
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise NotReady("somebody else has been starting a server here for too long", []) from None
                await asyncio.sleep(LOOK_SECONDS)
        yield
    finally:
        os.close(descriptor)


async def _found_after_start(home: Home) -> Found:
    """Return the state of the server once it is not starting any more: `rota up` may have begun just now."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while (found := find(home)).condition == "starting":
        if time.monotonic() > deadline:
            raise NotReady(f"process {found.pid} holds {home.path}, and is not ready; `rota stop` ends it", [])
        await asyncio.sleep(LOOK_SECONDS)
    return found


async def _hand_over(home: Home) -> bool:
    """End the server but not its instances. Returns whether it had to be killed."""
    server = open_process(home.server_pid)
    if server is None:
        return False
    with contextlib.closing(server):
        server.send(HAND_OVER)
        if await server.ends_within(HAND_OVER_SECONDS_MAX):
            return False
        await kill(server)
        return True


async def _launch(home: Home, options: Options, container: Container | None) -> Started:
    path = home.path.resolve()
    log = log_of(path)
    arguments = ["up", f"--home={path}", f"--log-file={log}", *options.arguments()]
    await background_image.remove(path)
    found_keeper = _has_keeper(path)
    with opened(log) as file:
        since, began = size_of(log), time.time()
        if container is not None:
            await background_image.run(path, container, arguments)
            return await _ready_in_container(home, log, since, began)
        process = _spawned(path, file, arguments)
    try:
        return await _ready(home, process, log, since)
    except BaseException:
        # On a cancellation, too, no server may be left that is not ready.
        process.kill()
        process.wait(KILLED_SECONDS_MAX)
        if not found_keeper and _has_keeper(path):
            # The keeper and its instances are this server's. Those of an earlier keeper go on.
            await stop(home, grace_seconds=0)
        raise


def _has_keeper(home: Path) -> bool:
    stream = dial(home)
    if stream is None:
        return False
    stream.close()
    return True


def _spawned(home: Path, log: BinaryIO, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=home,
        # Ctrl-C in this terminal must not reach it.
        start_new_session=True,
    )


async def _ready(home: Home, process: subprocess.Popen[bytes], log: Path, since: int) -> Started:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        found = find(home)
        if found.condition == "running" and found.pid == process.pid and found.state is not None:
            return Started(process.pid, found.state, is_new=True)
        if process.poll() is not None:
            raise NotReady(
                f"the server ended with exit code {process.returncode} before it was ready", end_of(log, since=since)
            )
        await asyncio.sleep(LOOK_SECONDS)
    raise NotReady(f"the server was not ready within {READY_SECONDS_MAX:g} s", end_of(log, since=since))


async def _ready_in_container(home: Home, log: Path, since: int, began: float) -> Started:
    deadline = time.monotonic() + READY_SECONDS_MAX
    look = 0.0
    try:
        while time.monotonic() < deadline:
            found = find(home)
            state = found.state
            if found.condition == "running" and found.pid is not None and state is not None and state.started > began:
                return Started(found.pid, state, is_new=True)
            if time.monotonic() > look:
                if not await background_image.is_running(home.path):
                    words = end_of(log, since=since) or await background_image.words_of(home.path)
                    raise NotReady("the server's container ended before it was ready", words)
                look = time.monotonic() + CONTAINER_LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
        raise NotReady(f"the server was not ready within {READY_SECONDS_MAX:g} s", end_of(log, since=since))
    except BaseException:
        await background_image.remove(home.path)
        raise
