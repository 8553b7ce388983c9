"""Leftovers of an earlier keeper of this home: its lock, its processes, its records."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

from rota.runtime.keeper import kernel, protocol
from rota.runtime.keeper.cgroup import Cgroup, Cgroups
from rota.runtime.keeper.minder import kill_descendants_of
from rota.runtime.keeper.records import Record, RecordStore, read_records

_END_SECONDS_MAX = 10.0
# Minders end their trees themselves, and more reliably than this process can.
_MINDERS_SECONDS = 5.0
_PAUSE_SECONDS = 0.002


class CannotStart(Exception):  # noqa: N818
    pass


class AlreadyRuns(CannotStart):
    pass


def take_lock(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 32).decode().strip()
        os.close(lock)
        raise AlreadyRuns(f"a keeper of this home runs already, as process {holder}") from None
    os.truncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def owner_of(home: Path) -> str:
    """Return the owner named in the records of a home. Records of a copied home are of the original's processes."""
    return f"{protocol.name_of(home)} {kernel.boot_id()}"


def has_leftovers(home: Path) -> bool:
    """Report whether a dead keeper left processes. The next keeper ends them."""
    folder = home / "keeper"
    with contextlib.suppress(FileNotFoundError):
        group = Path((folder / "cgroup").read_text(errors="replace").replace("\0", ""))
        # A copy of a home holds a note of the original's cgroups.
        if group.name == protocol.name_of(home) and group.is_dir():
            return True
    return bool(_alive(read_records(folder / "records"), owner_of(home)))


def end_leftovers(groups: Cgroups | None, records: RecordStore, owner: str) -> None:
    """End all processes of an earlier keeper, so that no two runs of a key overlap. Raises CannotStart."""
    stored = records.read()
    for pid in _alive(stored, owner):
        # A stopped minder cannot end its tree.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    begun = time.monotonic()
    while True:
        left = [group for group in groups.leftovers() if not _is_ended(group)] if groups else []
        alive = _alive(stored, owner)
        if not left and not alive and (groups is None or groups.remove()):
            return
        passed = time.monotonic() - begun
        if passed > _END_SECONDS_MAX:
            raise CannotStart(f"processes of an earlier keeper do not end: {alive or [str(g.path) for g in left]}")
        if passed > _MINDERS_SECONDS:
            for pid in alive:
                kill_descendants_of(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


def _alive(stored: list[Record], owner: str) -> list[int]:
    running = [record for record in stored if record["state"] == "running" and record.get("owner") == owner]
    return [record["pid"] for record in running if kernel.is_alive(record["pid"], record["pid_start"])]


def _is_ended(group: Cgroup) -> bool:
    if group.is_populated():
        group.kill()
        return False
    return group.remove()


def adopt_records(records: RecordStore) -> dict[str, Record]:
    """Return all records. Runs of an earlier keeper that had not exited are recorded as ended: KeeperLost."""
    found = {record["key"]: record for record in records.read()}
    for record in found.values():
        if record["state"] == "running":
            lost = {"code": None, "signal": None, "time": time.time(), "reason": "KeeperLost", "oom": False}
            record |= {"state": "exited", "exit": lost}
            records.put(record)
    return found
