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
"""The isolation that an instance demands; None: as the host can."""
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
    """The runtime's own id of it."""
    started: float
    exit: Exit | None = None
    limits_unmet: tuple[str, ...] = ()
    """Limits of the order that this host cannot hold, such as cpu and memory."""
    is_closed: bool = False
    """The kernel closes link-local and metadata addresses to it, on the network of the host."""


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
    """argv are arguments for the entrypoint of the image."""
    runtime: Literal["process", "container"] = "process"
    has_runner: bool = False
    """A runner is started; the other fields describe its box."""
    image: str = ""
    working_dir: str = ""
    storage_name: str = ""
    """The name of the storage, which outlives the instance; empty: none."""
    storage_path: str = ""
    storage_owner: Owner | None = None
    """The owner of the storage. A storage that another owner of the same name left is removed first."""
    storage_bytes: int | None = None
    """The size of the storage; None: the default bound of the watchdog."""
    volumes: Mapping[str, Mapping[str, bytes]] = {}
    """Folders of files that only the run can read, by their paths inside."""
    isolation: Wish = None
    network: Network = "host"
    egress: tuple[str, ...] = ()
    """The targets that can be reached with network egress, as written in a manifest."""
    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    code: str = ""
    """The name of a function's code in the cache of the home; empty: none."""
    packages: str = ""
    """The name of the packages that it requires, likewise."""
    lease_seconds: float | None = None
    """The lease: the run is ended after this time unless it is extended, server or no server. None: no lease."""


class Refusal(Struct, frozen=True):
    """A destination that the network of an instance refused, the reason, and how often."""

    host: str
    port: int
    why: str
    count: int


class BoxSpec(Struct, frozen=True):
    """The command of a runner's box, and its folders. It contains secrets."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: str
    """The storage, on the host."""
    inside: str
    """The path of the storage in the box."""
    record: str
    """A file of the host for the record of the prepared tree. It is removed with the storage."""
    uid: int | None = None
    """The owner of the storage; None: the user of Rota."""
    code: str = ""
    """The path of a function's code in the box; empty: there is none."""
    packages: str = ""
    """The path of its packages, likewise."""


class Refused(Exception):  # noqa: N818
    """A runtime cannot start an order. The same order is refused again until something changes."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotRunning(Exception):  # noqa: N818
    """The container does not run, so no command can run in it."""


class Reach(NamedTuple):
    """The way to the files of a container."""

    python: str
    """The Python inside, which all environments of Rota itself have; empty: there are only the tools of an image."""
    root: str = "/"
    """The folder where absolute paths begin, and which no path may leave."""
    start: str = ""
    """The folder where relative paths begin."""


class Execution(Protocol):
    """A command that runs beside an instance."""

    async def wait(self) -> int:
        """Wait for its exit code: 128 plus the signal, if one ended it."""
        ...

    async def signal(self, number: int) -> None: ...


class Runtime(Protocol):
    """Makes Instances real."""

    name: str
    policy: Policy
    """The default network of instances, and the most that those without admin rights may have."""

    @property
    def archive(self) -> Archive:
        """The archive of the logs of its instances, and of the results of tasks."""
        ...

    def runs(self, subject: Subject) -> Mapping[str, Run]:
        """Return the newest run of each container of an Instance."""
        ...

    def known(self, namespace: str, name: str) -> list[Subject]:
        """Return all Instances of this name that it knows, also earlier ones."""
        ...

    def isolates(self, wanted: Wish, runtime: str | None = None) -> tuple[bool, str]:
        """Return whether a run with this wish is isolated, and the way of it, or why not."""
        ...

    def overuse(self, subject: Subject) -> Overuse | None:
        """Return why an instance must end, if it has more on the disk than it may."""
        ...

    async def cpu_seconds(self, subjects: Collection[Subject]) -> Mapping[Subject, float]:
        """Return the CPU seconds of Instances since each began. Those whose CPU time is not known are left out."""
        ...

    def refused(self, subject: Subject) -> Sequence[Refusal]:
        """Return the last refusals of an Instance's network since the last call."""
        ...

    async def start(self, order: Order) -> Run:
        """Start a run, or return it if it was started before. Raises `Refused`."""
        ...

    async def extend(self, leases: Mapping[Subject, float | None], *, unleased: bool = False) -> None:
        """Set the leases of all runs of Instances, in seconds from now; None: no lease. Not of containers.

        `unleased`: only of runs without a lease.
        """
        ...

    async def update(self, order: Order) -> None:
        """Write the volumes of a run again."""
        ...

    async def box(self, order: Order, digest: str) -> BoxSpec:
        """Return the box for the runner of an instance. `digest` names it among later ones. Raises `Refused`."""
        ...

    async def stop(self, subject: Subject, grace_seconds: float) -> None:
        """End all runs of an Instance. When this returns, no process of them is alive, and they are forgotten."""
        ...

    async def end(self, subject: Subject, container: str, grace_seconds: float) -> None:
        """End one run. Its end is reported as any other."""
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
        """Return a number that changes as soon as `exec` is called. 0: this process has seen no call."""
        ...

    def storages(self) -> Iterable[tuple[str, Owner]]:
        """Return the owners of all storages, each with its namespace."""
        ...

    async def drop_storage(self, namespace: str, owner: Owner, name: str = "") -> None:
        """Remove all storages of an owner, or the one of this name. No process may run in them."""
        ...

    def listen(self, listener: Callable[[Subject], None]) -> Callable[[], None]:
        """Call `listener` for each Instance that has changed. Return a function that ends that."""
        ...


@runtime_checkable
class HasFiles(Protocol):
    """A runtime whose files can be accessed, by commands beside its runs."""

    def reach(self, subject: Subject, container: str) -> Reach:
        """Return the way to the files of a container. Raises `NotRunning`."""
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
        """Run a command where a container runs; see `Runtime.exec`."""
        ...
