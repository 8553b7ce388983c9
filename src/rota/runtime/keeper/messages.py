"""Messages of the keeper, typed."""

from __future__ import annotations

import msgspec

from rota.runtime.keeper import protocol


class ExitRecord(msgspec.Struct, frozen=True):
    """The end of a process: an exit code, a signal, or a reason if nobody observed the end."""

    time: float
    code: int | None = None
    signal: int | None = None
    reason: str | None = None
    oom: bool = False


class LogSpec(msgspec.Struct, frozen=True):
    """Files for output: `PREFIX.log`, then `PREFIX.log.1` and so on."""

    path_prefix: str
    bytes_max: int = protocol.LOG_BYTES_MAX
    files_max: int = protocol.LOG_FILES_MAX


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits in bytes, processes, cores and open files."""

    memory: int | None = None
    pids: int | None = None
    cpu: float | None = None
    nofile: int | None = None


class Record(msgspec.Struct, frozen=True):
    """The keeper's record of a key."""

    key: str
    run: str
    pid: int
    pid_start: int | None
    state: str
    started: float
    tree: str
    log: LogSpec
    exit: ExitRecord | None = None
    limits_unmet: list[str] = []
    closed: bool = False
    """True if the kernel blocks the addresses that were to be closed to the child."""
    log_bytes_lost: int = 0

    @property
    def is_running(self) -> bool:
        return self.state == "running"


class Hello(msgspec.Struct, frozen=True):
    version: int
    pid: int
    pid_start: int
    started: float
    tree: str
    set_aside: list[str] = []
    """Names of damaged records that the keeper moved to the folder SET_ASIDE when it started."""
    sets_leases: bool = False
    """True if the keeper sets, extends and lifts leases of any child. Earlier releases do not send this field."""


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot", tag_field="event"):
    """All records: sent when a watch begins, on each new connection."""

    records: list[Record]


class Started(msgspec.Struct, frozen=True, tag="started", tag_field="event"):
    record: Record


class Exited(msgspec.Struct, frozen=True, tag="exited", tag_field="event"):
    record: Record


class ExecExited(msgspec.Struct, frozen=True, tag="exec-exited", tag_field="event"):
    exec: str
    exit: ExitRecord


class Problem(msgspec.Struct, frozen=True):
    reason: str
    message: str


class Response(msgspec.Struct, frozen=True):
    id: int | None = None
    ok: msgspec.Raw = msgspec.Raw(b"")
    error: Problem | None = None
    event: str | None = None


class RecordList(msgspec.Struct, frozen=True):
    records: list[Record]


class ExecStarted(msgspec.Struct, frozen=True):
    exec: str
    pid: int


Event = Snapshot | Started | Exited
answers = msgspec.json.Decoder(Response)
all_events = msgspec.json.Decoder(Snapshot | Started | Exited | ExecExited)


class KeeperError(Exception):
    """A refused or failed request. `reason` is one word: AlreadyRuns, OtherRun, NotFound, StartFailed, TooMany, …"""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{message} ({reason})")
        self.reason = reason


class KeeperGone(KeeperError):  # noqa: N818 - an event, not a fault of the caller
    """The connection was lost before the answer. The request may have been carried out; a start can be repeated."""

    def __init__(self) -> None:
        super().__init__("Gone", "the connection to the keeper was lost")
