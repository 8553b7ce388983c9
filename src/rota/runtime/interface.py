"""What a runtime is: how an Instance becomes real, and how that is seen.

A run is named by its instance, its container and a number. To start a run twice has one effect. What is seen is told at
once and is never made up: a runtime that was away tells everything that happened meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from rota.api.egress import Network, Policy
from rota.runtime.archive import Archive

Wish = Literal["none", "sandbox", "gvisor"] | None
"""How an instance is to be kept apart; None: as the host can."""
Reason = Literal[
    "ImageUnavailable", "ConfigurationError", "Provisioning", "NotIsolated", "HubUnreachable", "KeeperTooOld"
]


class Subject(NamedTuple):
    """Which Instance: a namesake that is made later is another one."""

    namespace: str
    name: str
    uid: str


class Owner(NamedTuple):
    """Whose storage it is."""

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
    limits_unmet: tuple[str, ...] = ()
    """Limits of the order that this host cannot hold: cpu, memory."""


class Overuse(NamedTuple):
    """Why an instance must end: what it has on the disk."""

    reason: Literal["StorageExceeded", "DiskPressure"]
    message: str


class Order(Struct, frozen=True):
    """What is to run. Everything that it refers to is filled in: it holds secrets, and is shown to nobody."""

    subject: Subject
    container: str
    number: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    keeps_entrypoint: bool = False
    """argv is arguments for what an image runs by itself."""
    runtime: Literal["process", "container"] = "process"
    has_runner: bool = False
    """What is started is a runner; the rest says what it keeps its box in."""
    image: str = ""
    working_dir: str = ""
    storage_name: str = ""
    """The directory that survives, by its name in the namespace; empty: none."""
    storage_path: str = ""
    storage_owner: Owner | None = None
    """Whose it is: what another one of the same name left is not for it."""
    storage_bytes: int | None = None
    """How much it may hold; None: what anybody may have."""
    volumes: Mapping[str, Mapping[str, bytes]] = {}
    """Folders of files that only the run can read, by the place that each has inside."""
    isolation: Wish = None
    network: Network = "host"
    egress: tuple[str, ...] = ()
    """What can be reached with network egress, each as a person writes it."""
    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    code: str = ""
    """The code of a function, by the name that it has in the cache of the home; empty: none."""
    packages: str = ""
    """The packages that it requires, likewise."""
    lease_seconds: float | None = None
    """After which it is ended unless that is extended, whoever is there; None: it has no lease."""


class Refusal(Struct, frozen=True):
    """A destination that was asked for in vain, why, and how often."""

    host: str
    port: int
    why: str
    count: int


class Box(Struct, frozen=True):
    """What a runner keeps its commands in, and where it puts what they work on. It holds secrets, as an order does."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: str
    """The storage, on the host."""
    inside: str
    """The place that it has in the box."""
    record: str
    """A file of the host for what was prepared in the storage; it goes with the storage."""
    uid: int | None = None
    """Whose the storage is; None: Rota's own."""
    code: str = ""
    """Where the code of a function is in the box; empty: there is none."""
    packages: str = ""
    """Where the packages are that it requires, likewise."""


class Refused(Exception):  # noqa: N818
    """A runtime cannot start what was ordered. To order the same again is no use until something changes."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotRunning(Exception):  # noqa: N818
    """There is nothing to run a command in."""


class Reach(NamedTuple):
    """How the files of a container are got at."""

    python: str
    """The interpreter that is there, as in all that Rota makes itself; empty: only what an image has."""
    root: str = "/"
    """Where absolute paths begin, and what nothing may leave."""
    start: str = ""
    """Where relative ones begin."""


class Execution(Protocol):
    """A command that runs beside what an instance runs."""

    async def wait(self) -> int:
        """Its exit code; of one that a signal ended, 128 more than the signal."""
        ...

    async def signal(self, number: int) -> None: ...


class Runtime(Protocol):
    """Makes Instances real."""

    name: str
    policy: Policy
    """Which network it gives to what does not say, and to those who are no admins at most."""

    @property
    def archive(self) -> Archive:
        """Keeps what its instances write, and what comes of tasks."""
        ...

    def runs(self, subject: Subject) -> Mapping[str, Run]:
        """The newest run of each container of an Instance that the runtime knows of."""
        ...

    def known(self, namespace: str, name: str) -> list[Subject]:
        """Everything of this name that it knows of: also what was made under it earlier."""
        ...

    def isolates(self, wanted: Wish, runtime: str | None = None) -> tuple[bool, str]:
        """Whether what is started with this wish is kept apart; and how, or why not."""
        ...

    def overuse(self, subject: Subject) -> Overuse | None:
        """Why an instance must end, if it has more on the disk than it may."""
        ...

    async def cpu_seconds(self, subjects: Collection[Subject]) -> Mapping[Subject, float]:
        """Return the CPU time of Instances since each began. Those of which it is not known are left out."""
        ...

    def refused(self, subject: Subject) -> Sequence[Refusal]:
        """What an Instance asked its network for in vain since this was last asked; the last of it."""
        ...

    async def start(self, order: Order) -> Run:
        """Start a run, unless it was started: then what became of it. Raises `Refused`."""
        ...

    async def extend(self, leases: Mapping[Subject, float | None], *, unleased: bool = False) -> None:
        """Let what runs go on for so many seconds from now, whatever lease it had; None: for ever. Not of containers.

        `unleased`: only what has no lease.
        """
        ...

    async def update(self, order: Order) -> None:
        """Renew the files of a run."""
        ...

    async def box(self, order: Order, digest: str) -> Box:
        """What the runner of an instance is to keep its commands in, under this name. Raises `Refused`."""
        ...

    async def stop(self, subject: Subject, grace_seconds: float) -> None:
        """End all runs of an Instance. When this returns nothing of them is alive, and they are forgotten."""
        ...

    async def end(self, subject: Subject, container: str, grace_seconds: float) -> None:
        """End one run, whose end is then seen as any other."""
        ...

    async def exec(
        self,
        subject: Subject,
        container: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        tty: bool,
    ) -> Execution:
        """Run a command where a container runs, on these descriptors. Raises `NotRunning`."""
        ...

    def entries(self, subject: Subject) -> int:
        """Return a number that is another one as soon as `exec` is called. 0: no call that this process knows of."""
        ...

    def storages(self) -> Iterable[tuple[str, Owner]]:
        """The owners of all storage there is, each with its namespace."""
        ...

    async def drop_storage(self, namespace: str, owner: Owner, name: str = "") -> None:
        """Remove all storage of an owner, or one of it. Nothing runs in it."""
        ...

    def listen(self, heard: Callable[[Subject], None]) -> Callable[[], None]:
        """Be told of every Instance of which something has changed. Returns how to end that."""
        ...


@runtime_checkable
class HasFiles(Protocol):
    """A runtime that can be asked for the files of what it runs: by a command beside them."""

    def reach(self, subject: Subject, container: str) -> Reach:
        """How the files of a container that runs are got at. Raises `NotRunning`."""
        ...

    async def exec(
        self,
        subject: Subject,
        container: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        tty: bool,
    ) -> Execution:
        """As of any runtime."""
        ...
