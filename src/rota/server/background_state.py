"""The state of a server, as its home stores it, and whether it is still true.

A file lock shows which process serves here. The state file counts only for the process that holds the lock, which is
recognised by its number and its start time.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec

from rota.api.egress import Network, Policy, written
from rota.runtime.keeper import kernel
from rota.server.auth import rewrite_private
from rota.server.home import Home

STATE = "server.json"
LAST_START = "last-start.json"
"""File with the options of the last start. It outlives the server, so that the next one gets the same options."""
IMAGE_VARIABLE = "ROTA_SERVER_IMAGE"
"""Set in a container, to its image."""
STATE_BYTES_MAX = 64 * 1024
S = TypeVar("S", bound=msgspec.Struct)
Condition = Literal["stopped", "starting", "running", "crashed"]


class Options(msgspec.Struct, frozen=True):
    """The options of a server's start."""

    host: str
    port: int
    """0 for a free port, preferably the one before."""
    edge_port: int | None
    allow_api: tuple[str, ...] = ()
    controllers: bool = True
    key_file: str = ""
    """The file of the key that encrypts Secrets; empty if there is none."""
    audit_required: bool = False
    edge_host: tuple[str, ...] = ()
    network: Network = "host"
    egress: tuple[str, ...] = ()
    no_cell: bool = False

    def arguments(self) -> list[str]:
        """Return the options as arguments of `rota up`."""
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
    """The start time of its process, in the kernel's ticks."""
    started: float
    version: str
    url: str
    edge: str
    options: Options
    image: str = ""
    """The image of its container; empty if it runs natively."""
    no_sandbox: str = ""
    """The reason why there is no sandbox where it runs; empty if there is one."""


class LastStart(msgspec.Struct, frozen=True):
    """The options and addresses of the last start of a home's server."""

    options: Options
    url: str
    edge: str
    image: str = ""


class Found(NamedTuple):
    """The state of a home's server."""

    condition: Condition
    pid: int | None = None
    """The process; 0 if it cannot be seen from here."""
    state: State | None = None
    """The stored state. After a crash, it is that of the crashed server."""


def announce(home: Home, state: State) -> None:
    """Write to the home that the server is ready, and store its options."""
    last = LastStart(state.options, state.url, state.edge, state.image)
    rewrite_private(home.path / LAST_START, msgspec.json.encode(last))
    rewrite_private(home.path / STATE, msgspec.json.encode(state))


def last_start(home: Home) -> LastStart | None:
    """Return the last start of a home's server; None if there was none, or it cannot be read."""
    return _decoded(home.path / LAST_START, LastStart)


def withdraw(home: Home, state: State | None = None) -> None:
    """Remove the state file, because the server ends in good order. With `state`, only if the file has that state."""
    path = home.path / STATE
    if state is None or _decoded(path, State) == state:
        path.unlink(missing_ok=True)


def own_state(version: str, url: str, edge: str, options: Options, no_sandbox: str) -> State:
    """Return the state of this process. `no_sandbox`: the reason why there is no sandbox; empty if there is one."""
    began = kernel.start_time_of(os.getpid()) or 0
    image = os.environ.get(IMAGE_VARIABLE, "")
    return State(began, time.time(), version, url, edge, options, image, no_sandbox)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def find(home: Home) -> Found:
    """Return the state of a home's server now."""
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
