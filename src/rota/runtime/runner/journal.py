"""What became of jobs, kept until the server has it; through kill -9 of the runner, and what has ended through more.

One file of lines, each a checksum and a record, which is only ever appended to; now and then it is written anew with
what still counts. A line that was not written to its end is as if it had never been begun.

- A begin is written before the job starts, and not synced: it has to outlive this process, not the machine.
- An end is synced before it is sent to anybody; several ends can share one sync. A failure to sync is the end of the
  journal, and of its runner.
- It owns some space of the disk, which others may fill. Where that is not enough, NoSpace says so: nothing was written,
  and it can be tried again.
- What had begun and has no end when a journal is opened was lost with the runner that ran it.
- A job that is in it is never to be run again, not even when the server has acknowledged it: the last ones are
  remembered, should they be asked for once more.

It keeps ids, times and outcomes: nothing of what a job was given.
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
"""Outcomes that nobody has acknowledged. A runner that has so many takes no more jobs."""
REMEMBERED_MAX = 256
"""Of those that were acknowledged: that they were run, and how they ended."""
GROWTH_BYTES_MAX = 1024 * 1024
"""How much is appended before the file is written anew."""
ROOM_BYTES = 64 * 1024
"""Space that the file owns for lines to come, at least half of it. Most ends have some hundred bytes."""
LOST = "the runner ended while it ran"
FILE, NEW = "log", "log.new"


class JournalFull(Exception):  # noqa: N818
    """Too many outcomes wait for the server."""


class NoSpace(OSError):  # noqa: N818
    """The disk is full. Nothing was written."""


class Begun(Struct, tag="begun", frozen=True):
    id: str
    at: float


class Ended(Struct, tag="ended", frozen=True):
    outcome: Outcome


class Acknowledged(Struct, tag="acknowledged", frozen=True):
    id: str


Record = Begun | Ended | Acknowledged
_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


class Journal:
    """The journal in a folder, which is this process's alone as long as it is open."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._begun: dict[str, float] = {}
        self._unsynced: dict[str, Outcome] = {}
        """Outcomes that are written and may not be on disk. They outlive this process, not the machine."""
        self._pending: dict[str, Outcome] = {}
        self._remembered: dict[str, Outcome] = {}
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._file = -1
        self._size = self._grown = self._room_end = 0
        self._acknowledgements = b""
        """Those that are not written yet."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._recover()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._file >= 0 and self._acknowledgements:
            with contextlib.suppress(OSError):  # They are asked for again.
                self._append(b"")
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def begun(self, id_: str) -> float:
        """It is about to be started; returns the time of that."""
        assert not self.is_known(id_), f"{id_} was begun before"
        if len(self._pending) + len(self._unsynced) + len(self._begun) >= PENDING_MAX:
            raise JournalFull(f"the server has not acknowledged {PENDING_MAX} outcomes")
        at = time.time()
        self._append(_line(Begun(id_, at)))
        self._begun[id_] = at
        return at

    @property
    def unsynced(self) -> int:
        """How many outcomes are written and not synced."""
        return len(self._unsynced)

    def write_end(self, outcome: Outcome) -> None:
        """Write an outcome. It is pending after the next `sync`. The first outcome of a job counts."""
        if outcome.id in self._unsynced or self.outcome(outcome.id) is not None:
            return
        self._append(_line(Ended(outcome)))
        self._begun.pop(outcome.id, None)
        self._unsynced[outcome.id] = outcome

    def sync(self) -> list[Outcome]:
        """Have all that is written on disk. Returns the outcomes that are pending since then, in their order."""
        if not self._unsynced:
            return []
        os.fdatasync(self._file)
        return self._synced(list(self._unsynced))

    async def sync_aside(self) -> list[Outcome]:
        """As `sync`, in a thread: what is written meanwhile waits for the next one."""
        ids = list(self._unsynced)
        # The file may be replaced meanwhile, by one that has all of it on disk.
        await asyncio.get_running_loop().run_in_executor(None, _sync_and_close, os.dup(self._file))
        return self._synced(ids)

    def _synced(self, ids: list[str]) -> list[Outcome]:
        outcomes = [self._unsynced.pop(id_) for id_ in ids if id_ in self._unsynced]
        self._pending.update((outcome.id, outcome) for outcome in outcomes)
        return outcomes

    def ended(self, outcome: Outcome) -> None:
        """Write an outcome, and have it on disk."""
        self.write_end(outcome)
        self.sync()

    def lost(self, id_: str) -> Outcome:
        """Nobody will ever know how one that was begun has ended."""
        started = self._begun[id_]
        outcome = Outcome(id_, "WorkerLost", started, max(started, time.time()), message=LOST)
        self.ended(outcome)
        return outcome

    def acknowledged(self, id_: str) -> None:
        """The server has it. Not synced: at worst it is told again."""
        outcome = self._pending.pop(id_, None)
        if outcome is not None:
            self._remember(outcome)
            self._acknowledgements += _line(Acknowledged(id_))
            if not self._begun:  # Else it is written with the end of what runs, as it is if there is no space now.
                with contextlib.suppress(NoSpace):
                    self._append(b"")

    def pending(self) -> list[Outcome]:
        """The outcomes that are on disk and not acknowledged, in the order in which they were written."""
        return list(self._pending.values())

    def oldest_pending(self) -> str:
        """The id of the first of them; empty: there is none."""
        return next(iter(self._pending), "")

    def outcome(self, id_: str) -> Outcome | None:
        """The outcome of a job, if it is on disk."""
        return self._pending.get(id_) or self._remembered.get(id_)

    def is_known(self, id_: str) -> bool:
        return id_ in self._begun or id_ in self._unsynced or self.outcome(id_) is not None

    def _remember(self, outcome: Outcome) -> None:
        # The server has the rest of it.
        slim = Outcome(outcome.id, outcome.reason, outcome.started, outcome.ended, outcome.exit_code)
        self._remembered[outcome.id] = slim
        if len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]

    def _append(self, line: bytes) -> None:
        if self._grown + len(self._acknowledgements) + len(line) > GROWTH_BYTES_MAX:
            with contextlib.suppress(NoSpace):  # It grows on, in the space that it has.
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
                case Begun(id_, at) if not self.is_known(id_):
                    self._begun[id_] = at
                case Ended(outcome) if self.outcome(outcome.id) is None:
                    self._begun.pop(outcome.id, None)
                    self._pending[outcome.id] = outcome
                case Acknowledged(id_) if id_ in self._pending:
                    self._remember(self._pending.pop(id_))
        now = time.time()
        for id_, started in self._begun.items():
            self._pending[id_] = Outcome(id_, "WorkerLost", started, max(started, now), message=LOST)
        self._begun.clear()
        self._rewrite()

    def _rewrite(self) -> None:
        """Whole or not at all: the old one is there until the new one is on disk."""
        records: list[Record] = []
        for outcome in self._remembered.values():
            records += (Ended(outcome), Acknowledged(outcome.id))
        records += map(Ended, self._pending.values())
        records += map(Ended, self._unsynced.values())
        records += (Begun(id_, at) for id_, at in self._begun.items())
        content = b"".join(map(_line, records))
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
    """Open what a journal makes, which is no link, and wait for nobody who would write into a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _sync_and_close(file: int) -> None:
    try:
        os.fdatasync(file)
    finally:
        os.close(file)


def _line(record: Record) -> bytes:
    content = _encode(record)
    return b"%08x %s\n" % (zlib.crc32(content), content)


def _record(line: bytes) -> Record | None:
    """What a line says; None: it was not written to its end."""
    checksum, _, content = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(content):
        return None
    try:
        return _decoder.decode(content)
    except msgspec.MsgspecError:
        return None  # Of another version.


def _write(file: int, content: bytes, before: int) -> None:
    """Append to a file of this size. On a full disk, nothing of it."""
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError as error:
        os.ftruncate(file, before)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(error.errno, error.strerror) from None
        raise
