"""Files that are open and have no name any more: they take space, and no folder shows them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rota.runtime.interface import Subject
from rota.runtime.keeper.opened import BLOCK_BYTES, Table, tables

DESCRIPTORS_MAX = 200_000
"""Of one instance that are looked at. Who has more keeps everybody from being measured."""
_PARENT = 1
"""Of what follows the name in /proc/PID/stat: the state, then the parent."""


def nameless_bytes(running: Mapping[Subject, Sequence[int]], device: int) -> dict[Subject, int | None]:
    """What the processes of each instance hold of such files on a device, by the processes that each was started as.

    None: it has too many open to be looked at.

    Those that came in later, by a command beside it, are known by their PID namespace.
    """
    parents = dict(_parents())
    whose = {pid: subject for subject, pids in running.items() for pid in pids}
    spaces: dict[str, Subject] = {}
    host = _space("self")
    for pid in parents:
        subject = _above(pid, parents, whose)
        if subject is not None:
            whose[pid] = subject
            if (space := _space(pid)) not in ("", host):
                spaces[space] = subject
    files: dict[Subject, dict[tuple[int, int], int]] = {}
    looked_at: Counter[Subject] = Counter()
    for pid in parents:
        subject = whose.get(pid) or spaces.get(_space(pid))
        if subject is None:
            continue
        for table in tables(pid) if looked_at[subject] <= DESCRIPTORS_MAX else ():
            looked_at[subject] += len(table.numbers)
            if looked_at[subject] <= DESCRIPTORS_MAX:
                files.setdefault(subject, {}).update(_nameless(table, device))
    sums = {subject: sum(found.values()) for subject, found in files.items()}
    return sums | {subject: None for subject, count in looked_at.items() if count > DESCRIPTORS_MAX}


def _above(pid: int, parents: Mapping[int, int], whose: Mapping[int, Subject]) -> Subject | None:
    seen = 0
    while pid > 1 and seen < len(parents):
        if pid in whose:
            return whose[pid]
        pid, seen = parents.get(pid, 0), seen + 1
    return None


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            # Gone, or not ours to see.
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                yield int(name), int(file.read().rpartition(b")")[2].split()[_PARENT])


def _space(pid: int | str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _nameless(table: Table, device: int) -> Iterator[tuple[tuple[int, int], int]]:
    for number in table.numbers:
        with contextlib.suppress(OSError):
            found = table.stat(number)
            if found.st_nlink == 0 and found.st_dev == device and stat.S_ISREG(found.st_mode):
                yield (found.st_dev, found.st_ino), found.st_blocks * BLOCK_BYTES
