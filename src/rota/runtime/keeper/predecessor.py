"""What another keeper of this home left: its lock, its processes, its records."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

from rota.runtime.keeper import kernel
from rota.runtime.keeper.cgroup import Group, Groups
from rota.runtime.keeper.minder import kill_descendants_of
from rota.runtime.keeper.records import Record, Records

_END_SECONDS_MAX = 10.0
# The minders end their trees by themselves, and better than anybody could in their place.
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


def end_what_is_left(groups: Groups | None, records: Records, owner: str) -> None:
    """The next run of a key must not meet the one before."""
    running = [record for record in records.read() if record["state"] == "running" and record.get("owner") == owner]
    begun = time.monotonic()
    while True:
        left = [group for group in groups.left_over() if not _is_ended(group)] if groups else []
        alive = [record["pid"] for record in running if kernel.is_alive(record["pid"], record["pid_start"])]
        if not left and not alive and (groups is None or groups.remove()):
            return
        passed = time.monotonic() - begun
        if passed > _END_SECONDS_MAX:
            raise CannotStart(f"processes of an earlier keeper do not end: {alive or [str(g.path) for g in left]}")
        if passed > _MINDERS_SECONDS:
            for pid in alive:
                kill_descendants_of(pid)
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


def _is_ended(group: Group) -> bool:
    if group.is_populated():
        group.kill()
        return False
    return group.remove()


def adopt_records(records: Records) -> dict[str, Record]:
    """All there are. What ran under another keeper ended with it, nobody knows how."""
    found = {record["key"]: record for record in records.read()}
    for record in found.values():
        if record["state"] == "running":
            lost = {"code": None, "signal": None, "time": time.time(), "reason": "KeeperLost", "oom": False}
            record |= {"state": "exited", "exit": lost}
            records.put(record)
    return found
