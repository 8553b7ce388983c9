"""What the keeper says, typed."""

from __future__ import annotations

import msgspec

from rota.runtime.keeper import protocol


class Exit(msgspec.Struct, frozen=True):
    """How something ended: with a code, by a signal, or with the keeper that is gone (`reason`)."""

    time: float
    code: int | None = None
    signal: int | None = None
    reason: str | None = None
    oom: bool = False


class Log(msgspec.Struct, frozen=True):
    """Where output goes: `PREFIX.log`, then `PREFIX.log.1` and so on."""

    path_prefix: str
    bytes_max: int = protocol.LOG_BYTES_MAX
    files_max: int = protocol.LOG_FILES_MAX


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bytes, processes, cores, open files."""

    memory: int | None = None
    pids: int | None = None
    cpu: float | None = None
    nofile: int | None = None


class Record(msgspec.Struct, frozen=True):
    """What the keeper knows of a key."""

    key: str
    run: str
    pid: int
    pid_start: int | None
    state: str
    started: float
    tree: str
    log: Log
    exit: Exit | None = None
    limits_unmet: list[str] = []
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
    """Records that could not be read when it started, by their names in the folder for those."""
    sets_leases: bool = False
    """True if it sets, extends and lifts leases of anything that runs; False of earlier versions."""


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot", tag_field="event"):
    """Everything, at the beginning and after every loss of the connection."""

    records: list[Record]


class Started(msgspec.Struct, frozen=True, tag="started", tag_field="event"):
    record: Record


class Exited(msgspec.Struct, frozen=True, tag="exited", tag_field="event"):
    record: Record


class ExecExited(msgspec.Struct, frozen=True, tag="exec-exited", tag_field="event"):
    exec: str
    exit: Exit


class Problem(msgspec.Struct, frozen=True):
    reason: str
    message: str


class Answer(msgspec.Struct, frozen=True):
    id: int | None = None
    ok: msgspec.Raw = msgspec.Raw(b"")
    error: Problem | None = None
    event: str | None = None


class Records(msgspec.Struct, frozen=True):
    records: list[Record]


class ExecStarted(msgspec.Struct, frozen=True):
    exec: str
    pid: int


Event = Snapshot | Started | Exited
answers = msgspec.json.Decoder(Answer)
all_events = msgspec.json.Decoder(Snapshot | Started | Exited | ExecExited)


class KeeperError(Exception):
    """The keeper did not do it. `reason` is one word: AlreadyRuns, OtherRun, NotFound, StartFailed, TooMany, …"""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{message} ({reason})")
        self.reason = reason


class KeeperGone(KeeperError):  # noqa: N818 - what happened, not a fault of ours
    """The connection was lost before the answer: it may have been done or not. A start can be repeated."""

    def __init__(self) -> None:
        super().__init__("Gone", "the connection to the keeper was lost")
