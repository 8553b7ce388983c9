"""The interface of runtimes, which make Instances real and report what becomes of them.

A run is named by its instance, its container and a number. A second start of a run has no effect. A runtime reports
only what it has observed, at once; one that was away reports what happened meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from rota.api.egress import Network, Policy
from rota.runtime.archive import Archive

Wish = Literal["none", "sandbox", "gvisor"] | None
"""The isolation that an instance demands. None: the strongest that the host can make without gVisor."""
Reason = Literal[
    "ImageUnavailable", "ConfigurationError", "Provisioning", "NotIsolated", "HubUnreachable", "KeeperTooOld"
]


class Subject(NamedTuple):
    """The identity of an Instance: a later one of the same name has another uid."""

    namespace: str
    name: str
    uid: str


class Owner(NamedTuple):
    """The owner of a storage."""

    name: str
    uid: str


class Exit(Struct, frozen=True):
    """The end of a run."""

    time: float
    code: int | None = None
    signal: int | None = None
    reason: str = ""
    """One word, if neither code nor signal is the reason: OutOfMemory, KeeperLost."""
    lines: str = ""
    """The end of its output."""

    @property
    def failed(self) -> bool:
        return self.code != 0


class Run(Struct, frozen=True):
    """One run of one container."""

    number: int
    id: str
    """The id that the runtime gives the run."""
    started: float
    exit: Exit | None = None
    limits_unmet: tuple[str, ...] = ()
    """Limits of the order that this host cannot hold, such as cpu and memory."""
    is_closed: bool = False
    """The kernel blocks link-local and metadata addresses for this run, which is on the host's network."""


class Overuse(NamedTuple):
    """The reason why an instance must end: it uses too much of the disk."""

    reason: Literal["StorageExceeded", "DiskPressure"]
    message: str


class Order(Struct, frozen=True):
    """A run to start, with all references resolved. It holds secrets, and must never be shown or logged."""

    subject: Subject
    container: str
    number: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    keeps_entrypoint: bool = False
    """The argv is passed as arguments to the entrypoint of the image."""
    runtime: Literal["process", "container"] = "process"
    has_runner: bool = False
    """A runner is started, and the other fields describe its box."""
    image: str = ""
    working_dir: str = ""
    storage_name: str = ""
    """The name of the storage, which outlives the instance; empty without storage."""
    storage_path: str = ""
    storage_owner: Owner | None = None
    """The owner of the storage. A storage of the same name that belongs to another owner is removed first."""
    storage_bytes: int | None = None
    """The size of the storage. None: the watchdog's default bound."""
    volumes: Mapping[str, Mapping[str, bytes]] = {}
    """Folders of files that only the run can read, by their paths inside."""
    isolation: Wish = None
    network: Network = "host"
    egress: tuple[str, ...] = ()
    """The targets that the network `egress` lets through, as written in a manifest."""
    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    code: str = ""
    """The name of a function's code in the cache of the home; empty for other instances."""
    packages: str = ""
    """The name of the function's packages in the cache of the home; empty if it requires none."""
    lease_seconds: float | None = None
    """The keeper ends the run after this time unless the lease is extended, server or no server. None: no lease."""


class Refusal(Struct, frozen=True):
    """A destination that the network of an instance refused, the reason, and how often."""

    host: str
    port: int
    why: str
    count: int


class BoxSpec(Struct, frozen=True):
    """The command of a runner's box, and its folders. It holds secrets."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: str
    """The storage, on the host."""
    inside: str
    """The path of the storage in the box."""
    record: str
    """A file of the host that records the prepared tree. It is removed with the storage."""
    uid: int | None = None
    """The uid that owns the storage. None: Rota's own uid."""
    code: str = ""
    """The path of a function's code in the box; empty for other workers."""
    packages: str = ""
    """The path of the function's packages in the box; empty if it requires none."""


class Refused(Exception):  # noqa: N818
    """The runtime cannot start an order. A repeated start is refused again until something changes."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotRunning(Exception):  # noqa: N818
    """The container does not run, so no command can run in it."""


class Reach(NamedTuple):
    """Access to the files of a container."""

    python: str
    """The path of Python in the container, in Rota's own environments. Empty: there are only the tools of an image."""
    root: str = "/"
    """The folder where absolute paths begin. No path may leave it."""
    start: str = ""
    """The folder where relative paths begin."""


class Execution(Protocol):
    """A command that runs beside an instance."""

    async def wait(self) -> int:
        """Wait for the exit code of the command: 128 plus the signal if a signal ended it."""
        ...

    async def signal(self, number: int) -> None: ...


class Runtime(Protocol):
    """Makes Instances real."""

    name: str
    policy: Policy
    """The default network of instances, and the largest network access without admin rights."""

    @property
    def archive(self) -> Archive:
        """The archive that keeps the logs of the runtime's instances and the results of tasks."""
        ...

    def runs(self, subject: Subject) -> Mapping[str, Run]:
        """Return the newest run of each container of an Instance."""
        ...

    def known(self, namespace: str, name: str) -> list[Subject]:
        """Return all Instances of this name that have runs, including deleted ones that are not forgotten yet."""
        ...

    def isolates(self, wanted: Wish, runtime: str | None = None) -> tuple[bool, str]:
        """Return whether a run that demands `wanted` is isolated, with the kind of isolation or the reason why not."""
        ...

    def overuse(self, subject: Subject) -> Overuse | None:
        """Return why an instance must end if it uses more of the disk than it may, else None."""
        ...

    async def cpu_seconds(self, subjects: Collection[Subject]) -> Mapping[Subject, float]:
        """Return the CPU seconds of Instances since each began, without those whose CPU time is not known."""
        ...

    def refused(self, subject: Subject) -> Sequence[Refusal]:
        """Return the connections that an Instance's network has refused since the last call; only the last of many."""
        ...

    async def start(self, order: Order) -> Run:
        """Start a run. A run that was started before is returned as it is. Raises `Refused`."""
        ...

    async def extend(self, leases: Mapping[Subject, float | None], *, unleased: bool = False) -> None:
        """Set the leases of all runs of Instances, in seconds from now. None lifts a lease. Not for runtime container.

        `unleased`: leave runs alone that have a lease.
        """
        ...

    async def update(self, order: Order) -> None:
        """Write the current files of a run's volumes."""
        ...

    async def box(self, order: Order, digest: str) -> BoxSpec:
        """Return the box for the runner of an instance. Raises `Refused`.

        `digest` tells this box from earlier and later ones of the instance.
        """
        ...

    async def stop(self, subject: Subject, grace_seconds: float) -> None:
        """End all runs of an Instance, and forget them. When this returns, none of their processes is alive."""
        ...

    async def end(self, subject: Subject, container: str, grace_seconds: float) -> None:
        """End one run. Its exit is reported like that of any other run."""
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
        """Run a command in a running container, with these descriptors as its streams. Raises `NotRunning`."""
        ...

    def entries(self, subject: Subject) -> int:
        """Return a number that every call of `exec` for an Instance changes at once; 0 before the first call."""
        ...

    def storages(self) -> Iterable[tuple[str, Owner]]:
        """Return the owners of all storages, each with its namespace."""
        ...

    async def drop_storage(self, namespace: str, owner: Owner, name: str = "") -> None:
        """Remove all storages of an owner, or only that of this name. No process may run in them."""
        ...

    def listen(self, listener: Callable[[Subject], None]) -> Callable[[], None]:
        """Call `listener` with each Instance that changes. Return a function that removes the listener."""
        ...


@runtime_checkable
class HasFiles(Protocol):
    """A runtime that gives access to the files of its instances, through commands that run beside them."""

    def reach(self, subject: Subject, container: str) -> Reach:
        """Return the access to the files of a container. Raises `NotRunning`."""
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
        """Run a command in a running container. See `Runtime.exec`."""
        ...
