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
from typing import Literal, NamedTuple, TypeVar

import msgspec

from rota.api.egress import Network, Policy, written
from rota.runtime.keeper import kernel
from rota.server.auth import rewrite_private
from rota.server.home import Home

STATE = "server.json"
LAST_START = "last-start.json"
"""Stays when the server ends, so that the next one is started alike."""
IMAGE_VARIABLE = "ROTA_SERVER_IMAGE"
"""Tells a server that it runs in a container, and of which image."""
STATE_BYTES_MAX = 64 * 1024
S = TypeVar("S", bound=msgspec.Struct)
Condition = Literal["stopped", "starting", "running", "crashed"]


class Options(msgspec.Struct, frozen=True):
    """The options that a server was started with."""

    host: str
    port: int
    """0: a free one, the one before if it is still free."""
    edge_port: int | None
    allow_api: tuple[str, ...] = ()
    controllers: bool = True
    key_file: str = ""
    """What Secrets are encrypted with; empty: they are not."""
    audit_required: bool = False
    edge_host: tuple[str, ...] = ()
    network: Network = "host"
    egress: tuple[str, ...] = ()
    no_cell: bool = False

    def arguments(self) -> list[str]:
        """As `rota up` takes them."""
        edge = [] if self.edge_port is None else [f"--edge-port={self.edge_port}"]
        apis = [f"--allow-api={url}" for url in self.allow_api]
        without = [] if self.controllers else ["--no-controllers"]
        key = [f"--key-file={self.key_file}"] if self.key_file else []
        hosts = [f"--edge-host={name}" for name in self.edge_host]
        audit = ["--audit-required"] if self.audit_required else []
        reach = [f"--network={self.network}", *(f"--egress={one}" for one in self.egress)]
        where = [f"--host={self.host}", f"--port={self.port}", *edge]
        cell = ["--no-cell"] if self.no_cell else []
        return [*where, *apis, *reach, *without, *key, *audit, *hosts, *cell]

    def policy(self) -> Policy:
        return Policy(self.network, tuple(written(one) for one in self.egress))


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


class LastStart(msgspec.Struct, frozen=True):
    """How the server of a home was started last, and where it was then."""

    options: Options
    url: str
    edge: str
    image: str = ""


class Found(NamedTuple):
    """How the server of a home is."""

    condition: Condition
    pid: int | None = None
    """The process; 0 when it cannot be seen from here."""
    state: State | None = None
    """What it says; of one that crashed, what it last said."""


def announce(home: Home, state: State) -> None:
    """Say in the home that the server is ready, and remember how it was started."""
    last = LastStart(state.options, state.url, state.edge, state.image)
    rewrite_private(home.path / LAST_START, msgspec.json.encode(last))
    rewrite_private(home.path / STATE, msgspec.json.encode(state))


def last_start(home: Home) -> LastStart | None:
    """Return how the server of a home was started last; None if never, or if that cannot be read."""
    return _decoded(home.path / LAST_START, LastStart)


def withdraw(home: Home, state: State | None = None) -> None:
    """A server that ends in good order leaves no word; one that is killed does. `state`: only if it says this."""
    path = home.path / STATE
    if state is None or _decoded(path, State) == state:
        path.unlink(missing_ok=True)


def own_state(version: str, url: str, edge: str, options: Options, why_no_sandbox: Callable[[], str]) -> State:
    """What this process has to say. What is so on this host anyone can see; in a container only who is in it."""
    began = kernel.start_time_of(os.getpid()) or 0
    image = os.environ.get(IMAGE_VARIABLE, "")
    return State(began, time.time(), version, url, edge, options, image, why_no_sandbox() if image else "")


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def find(home: Home) -> Found:
    """How the server of a home is, now."""
    pid, state = home.server_pid(), _decoded(home.path / STATE, State)
    if pid is None:
        return Found("stopped" if state is None else "crashed", None, state)
    if state is None or (pid > 0 and kernel.start_time_of(pid) != state.pid_start):
        return Found("starting", pid)
    return Found("running", pid, state)


def _decoded(path: Path, type_: type[S]) -> S | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError), path.open("rb") as file:
        return msgspec.json.decode(file.read(STATE_BYTES_MAX), type=type_)
    return None
