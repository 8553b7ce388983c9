"""The journal of a runner: its outcomes, on disk until the server has stored them.

One file of lines, each a checksum and a record. Lines are only appended; now and then the file is rewritten without the
records that are not needed any more. A line that was not written to its end is ignored.

- A begin is written before the job starts, and is not synced: it has to survive this process, not the machine.
- An outcome is synced before it is sent; several outcomes can share one sync. A failure to sync is the end of the
  journal, and of its runner.
- The file owns some disk space in advance, since others may fill the disk. Where that is not enough, NoSpace is raised:
  nothing was written, and the write can be tried again.
- A job that has begun and not ended when a journal is opened was lost with the runner that ran it.
- A job in the journal is never run again, also after the server has acknowledged it: the last acknowledged ids are
  remembered.

The journal holds ids, times and outcomes, and nothing else of a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import time
import zlib
from pathlib import Path

import msgspec
from msgspec import Struct

from rota.room import keep_room
from rota.runtime.runner.jobs import Outcome

PENDING_MAX = 1024
"""The most outcomes that are not acknowledged. With so many, a runner begins no more jobs."""
REMEMBERED_MAX = 256
"""The most acknowledged outcomes that are remembered, in short form."""
GROWTH_BYTES_MAX = 1024 * 1024
"""The bytes appended after which the file is rewritten."""
ROOM_BYTES = 64 * 1024
"""Disk space to reserve beyond the end of the file; at least half as much is always left. Most outcomes are small."""
LOST = "the runner ended while it ran"
FILE, NEW = "log", "log.new"


class JournalFull(Exception):  # noqa: N818
    """The server has not acknowledged PENDING_MAX outcomes."""


class NoSpace(OSError):  # noqa: N818
    """The disk is full. Nothing was written."""


class BeginRecord(Struct, tag="begun", frozen=True):
    id: str
    at: float


class EndRecord(Struct, tag="ended", frozen=True):
    outcome: Outcome


class AcknowledgedRecord(Struct, tag="acknowledged", frozen=True):
    id: str


Record = BeginRecord | EndRecord | AcknowledgedRecord
_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


class Journal:
    """The journal in a folder. While it is open, it is locked against being opened a second time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._begun: dict[str, float] = {}
        self._unsynced: dict[str, Outcome] = {}
        """Outcomes that are written but perhaps not on disk: they survive this process, but not the machine."""
        self._pending: dict[str, Outcome] = {}
        self._remembered: dict[str, Outcome] = {}
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._file = -1
        self._size = self._grown = self._room_end = 0
        self._acknowledgements = b""
        """Encoded acknowledgements that are not written yet."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._recover()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._file >= 0 and self._acknowledgements:
            with contextlib.suppress(OSError):  # Without them the outcomes are sent again, which has no effect.
                self._append(b"")
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def begun(self, id_: str) -> float:
        """Record that a job begins. Return the time. Raises JournalFull and NoSpace."""
        assert not self.is_known(id_), f"{id_} was begun before"
        if len(self._pending) + len(self._unsynced) + len(self._begun) >= PENDING_MAX:
            raise JournalFull(f"the server has not acknowledged {PENDING_MAX} outcomes")
        at = time.time()
        self._append(_encoded(BeginRecord(id_, at)))
        self._begun[id_] = at
        return at

    @property
    def unsynced(self) -> int:
        """The number of outcomes that are written but not synced."""
        return len(self._unsynced)

    def write_end(self, outcome: Outcome) -> None:
        """Write an outcome. The next `sync` makes it pending. A second outcome of the same job is ignored."""
        if outcome.id in self._unsynced or self.outcome(outcome.id) is not None:
            return
        self._append(_encoded(EndRecord(outcome)))
        self._begun.pop(outcome.id, None)
        self._unsynced[outcome.id] = outcome

    def sync(self) -> list[Outcome]:
        """Sync the file. Return the outcomes that this makes pending, in their order."""
        if not self._unsynced:
            return []
        os.fdatasync(self._file)
        return self._synced(list(self._unsynced))

    async def sync_aside(self) -> list[Outcome]:
        """Sync the file in a thread. Outcomes written meanwhile wait for the next sync."""
        ids = list(self._unsynced)
        # The file may be replaced meanwhile, by one that is synced with the same records.
        await asyncio.get_running_loop().run_in_executor(None, _sync_and_close, os.dup(self._file))
        return self._synced(ids)

    def _synced(self, ids: list[str]) -> list[Outcome]:
        outcomes = [self._unsynced.pop(id_) for id_ in ids if id_ in self._unsynced]
        self._pending.update((outcome.id, outcome) for outcome in outcomes)
        return outcomes

    def ended(self, outcome: Outcome) -> None:
        """Write an outcome, and sync it."""
        self.write_end(outcome)
        self.sync()

    def lost(self, id_: str) -> Outcome:
        """Write and return the outcome of a job that was begun and whose end is unknown."""
        started = self._begun[id_]
        outcome = Outcome(id_, "WorkerLost", started, max(started, time.time()), message=LOST)
        self.ended(outcome)
        return outcome

    def acknowledged(self, id_: str) -> None:
        """Record that the server has stored an outcome. This is not synced: at worst the outcome is sent again."""
        outcome = self._pending.pop(id_, None)
        if outcome is not None:
            self._remember(outcome)
            self._acknowledgements += _encoded(AcknowledgedRecord(id_))
            if not self._begun:  # Else it is written with the next outcome, as it is if there is no space now.
                with contextlib.suppress(NoSpace):
                    self._append(b"")

    def pending(self) -> list[Outcome]:
        """Return the outcomes that are on disk and not acknowledged, in the order in which they were written."""
        return list(self._pending.values())

    def oldest_pending(self) -> str:
        """Return the job id of the oldest pending outcome; empty if there is none."""
        return next(iter(self._pending), "")

    def outcome(self, id_: str) -> Outcome | None:
        """Return the outcome of a job if it is on disk, else None."""
        return self._pending.get(id_) or self._remembered.get(id_)

    def is_known(self, id_: str) -> bool:
        return id_ in self._begun or id_ in self._unsynced or self.outcome(id_) is not None

    def _remember(self, outcome: Outcome) -> None:
        # The server has stored the other fields.
        slim = Outcome(outcome.id, outcome.reason, outcome.started, outcome.ended, outcome.exit_code)
        self._remembered[outcome.id] = slim
        if len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]

    def _append(self, line: bytes) -> None:
        if self._grown + len(self._acknowledgements) + len(line) > GROWTH_BYTES_MAX:
            with contextlib.suppress(NoSpace):  # It goes on growing in the space that it owns.
                self._rewrite()
        content = self._acknowledgements + line
        _write(self._file, content, self._size)
        self._acknowledgements = b""
        self._grown += len(content)
        self._size += len(content)
        self._keep_room()

    def _keep_room(self) -> None:
        if self._size + ROOM_BYTES // 2 > self._room_end and keep_room(self.folder / FILE, self._size + ROOM_BYTES):
            self._room_end = self._size + ROOM_BYTES

    def _recover(self) -> None:
        try:
            with open(self.folder / FILE, "rb", opener=_unlinked) as file:
                content = file.read()
        except FileNotFoundError:
            content = b""
        for line in content.split(b"\n"):
            match _record(line):
                case BeginRecord(id_, at) if not self.is_known(id_):
                    self._begun[id_] = at
                case EndRecord(outcome) if self.outcome(outcome.id) is None:
                    self._begun.pop(outcome.id, None)
                    self._pending[outcome.id] = outcome
                case AcknowledgedRecord(id_) if id_ in self._pending:
                    self._remember(self._pending.pop(id_))
        now = time.time()
        for id_, started in self._begun.items():
            self._pending[id_] = Outcome(id_, "WorkerLost", started, max(started, now), message=LOST)
        self._begun.clear()
        self._rewrite()

    def _rewrite(self) -> None:
        """Replace the file by one without obsolete records. The old file stays until the new one is synced."""
        records: list[Record] = []
        for outcome in self._remembered.values():
            records += (EndRecord(outcome), AcknowledgedRecord(outcome.id))
        records += map(EndRecord, self._pending.values())
        records += map(EndRecord, self._unsynced.values())
        records += (BeginRecord(id_, at) for id_, at in self._begun.items())
        content = b"".join(map(_encoded, records))
        new = self.folder / NEW
        new.unlink(missing_ok=True)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _write(file, content, 0)
            os.fdatasync(file)
            new.replace(self.folder / FILE)
            os.fsync(self._lock)
        except BaseException as error:
            os.close(file)
            if isinstance(error, NoSpace):
                new.unlink()
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file, self._grown, self._size, self._room_end = file, 0, len(content), 0
        self._acknowledgements = b""
        self._keep_room()


def _unlinked(path: str, flags: int) -> int:
    """Open a file without following a link or waiting for a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _sync_and_close(file: int) -> None:
    try:
        os.fdatasync(file)
    finally:
        os.close(file)


def _encoded(record: Record) -> bytes:
    content = _encode(record)
    return b"%08x %s\n" % (zlib.crc32(content), content)


def _record(line: bytes) -> Record | None:
    """Decode a line. Returns None if it was not written to its end, or another version wrote it."""
    checksum, _, content = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(content):
        return None
    try:
        return _decoder.decode(content)
    except msgspec.MsgspecError:
        return None


def _write(file: int, content: bytes, before: int) -> None:
    """Append to a file whose size is `before`. On a full disk nothing is appended, and NoSpace is raised."""
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError as error:
        os.ftruncate(file, before)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(error.errno, error.strerror) from None
        raise
