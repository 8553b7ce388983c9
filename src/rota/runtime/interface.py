"""What a runtime is: how an Instance becomes real, and how that is seen.

A run is named by its instance, its container and a number. To start a run twice has one effect. What is seen is told at
once and is never made up: a runtime that was away tells everything that happened meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

Reason = Literal["ImageUnavailable", "ConfigurationError", "Provisioning", "NotIsolated"]


class Subject(NamedTuple):
    """Which Instance: a namesake that is made later is another one."""

    namespace: str
    name: str
    uid: str


class Exit(Struct, frozen=True):
    """How a run ended."""

    time: float
    code: int | None = None
    signal: int | None = None
    reason: str = ""
    """As one word, where neither code nor signal says it: OutOfMemory, KeeperLost."""
    lines: str = ""
    """The last of its output."""

    @property
    def failed(self) -> bool:
        return self.code != 0


class Run(Struct, frozen=True):
    """One run of one container."""

    number: int
    id: str
    """The runtime's own name for it."""
    started: float
    exit: Exit | None = None


class Order(Struct, frozen=True):
    """What is to run. Everything that it refers to is filled in: it holds secrets, and is shown to nobody."""

    subject: Subject
    container: str
    number: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    image: str = ""
    working_dir: str = ""
    storage_name: str = ""
    """The directory that survives, by its name in the namespace; empty: none."""
    storage_path: str = ""
    files: Mapping[str, bytes] = {}
    """Files that only the run can read, by the place they have inside."""
    isolation: Literal["none", "sandbox"] | None = None
    """None: as the host can."""
    network: Literal["none", "host"] = "host"
    memory_bytes: int | None = None
    cpus: float | None = None


class Refused(Exception):  # noqa: N818
    """A runtime cannot start what was ordered. To order the same again is no use until something changes."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Runtime(Protocol):
    """Makes Instances real."""

    name: str

    def runs(self, subject: Subject) -> Mapping[str, Run]:
        """The newest run of each container of an Instance that the runtime knows of."""
        ...

    def known(self, namespace: str, name: str) -> list[Subject]:
        """Everything of this name that it knows of: also what was made under it earlier."""
        ...

    def isolates(self, wanted: Literal["none", "sandbox"] | None) -> tuple[bool, str]:
        """Whether what is started with this wish is kept apart, and why not if it is not."""
        ...

    async def start(self, order: Order) -> Run:
        """Start a run, unless it was started: then what became of it. Raises `Refused`."""
        ...

    async def stop(self, subject: Subject, grace_seconds: float) -> None:
        """End all runs of an Instance. When this returns nothing of them is alive, and they are forgotten."""
        ...

    def log_file(self, subject: Subject, container: str) -> Path:
        """Where the output of a container goes. It is put aside when it is full."""
        ...

    def listen(self, heard: Callable[[Subject], None]) -> Callable[[], None]:
        """Be told of every Instance of which something has changed. Returns how to end that."""
        ...
