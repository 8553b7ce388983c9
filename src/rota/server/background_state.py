"""What a server says of itself in its home, and whether that is still so.

The system's own lock says who serves here. What is written beside it is believed only of the very process that holds
that lock: by its number, and by when it began.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from rota.runtime.keeper import kernel
from rota.server.auth import write_private
from rota.server.home import Home

STATE = "server.json"
IMAGE_VARIABLE = "ROTA_SERVER_IMAGE"
"""Tells a server that it runs in a container, and of which image."""
STATE_BYTES_MAX = 64 * 1024
Condition = Literal["stopped", "starting", "running", "crashed"]


class Options(msgspec.Struct, frozen=True):
    """What a server was started with, so that the next one can be started alike."""

    host: str
    port: int
    edge_port: int | None
    allow_api: tuple[str, ...] = ()
    controllers: bool = True

    def arguments(self) -> list[str]:
        """As `rota up` takes them."""
        edge = [] if self.edge_port is None else [f"--edge-port={self.edge_port}"]
        apis = [f"--allow-api={url}" for url in self.allow_api]
        without = [] if self.controllers else ["--no-controllers"]
        return [f"--host={self.host}", f"--port={self.port}", *edge, *apis, *without]


class State(msgspec.Struct, frozen=True):
    """A server that is ready."""

    pid_start: int
    """When its process began, in the kernel's ticks."""
    started: float
    version: str
    url: str
    edge: str
    options: Options
    image: str = ""
    """Of its container; empty: it runs natively."""
    no_sandbox: str = ""
    """Why there can be no sandbox in that container."""


class Found(NamedTuple):
    """How the server of a home is."""

    condition: Condition
    pid: int | None = None
    """The process; 0 when it cannot be seen from here."""
    state: State | None = None
    """What it says; of one that crashed, what it last said."""


def announce(home: Home, state: State) -> None:
    write_private(home.path / STATE, msgspec.json.encode(state))


def withdraw(home: Home, state: State | None = None) -> None:
    """A server that ends in good order leaves no word; one that is killed does. `state`: only if it says this."""
    path = home.path / STATE
    if state is None or _read(path) == state:
        path.unlink(missing_ok=True)


def own_state(version: str, url: str, edge: str, options: Options, why_no_sandbox: Callable[[], str]) -> State:
    """What this process has to say. What is so on this host anyone can see; in a container only who is in it."""
    began = kernel.start_time_of(os.getpid()) or 0
    image = os.environ.get(IMAGE_VARIABLE, "")
    return State(began, time.time(), version, url, edge, options, image, why_no_sandbox() if image else "")


def find(home: Home) -> Found:
    """How the server of a home is, now."""
    pid, state = home.server_pid(), _read(home.path / STATE)
    if pid is None:
        return Found("stopped" if state is None else "crashed", None, state)
    if state is None or (pid > 0 and kernel.start_time_of(pid) != state.pid_start):
        return Found("starting", pid)
    return Found("running", pid, state)


def _read(path: Path) -> State | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError), path.open("rb") as file:
        return msgspec.json.decode(file.read(STATE_BYTES_MAX), type=State)
    return None
