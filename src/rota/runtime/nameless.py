"""Measures open, mapped or in-flight files that have no name any more: they take space that no folder shows."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rota.runtime.interface import Subject
from rota.runtime.keeper.open_files import BLOCK_BYTES, mapped, tables

DESCRIPTORS_MAX = 200_000
"""The most descriptors of one instance that are inspected. With more, it cannot be measured in time."""
MAPPED_SECONDS_MAX = 10.0
"""The most seconds spent on one instance's mapped files."""
_PARENT = 1
"""The index of the parent among the fields after the name in /proc/PID/stat."""


def nameless_bytes(
    running: Mapping[Subject, Sequence[int]], device: int, unseen: set[Subject] | None = None
) -> dict[Subject, int | None]:
    """Return the bytes of nameless files on a device, by instance; None for one with too many open or mapped files.

    `running`: the processes that were started for each instance. Commands that entered an instance later are recognised
    by its PID namespace. Instances with files that could not be inspected are added to `unseen`.
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
    known: dict[Subject, set[int]] = defaultdict(set)
    looked_at: Counter[Subject] = Counter()
    took: dict[Subject, float] = defaultdict(float)
    for pid in parents:
        subject = whose.get(pid) or spaces.get(_space(pid))
        if subject is None:
            continue
        for table in tables(pid) if looked_at[subject] <= DESCRIPTORS_MAX else ():
            looked_at[subject] += len(table.numbers)
            if looked_at[subject] <= DESCRIPTORS_MAX:
                for one in table.files(table.numbers, known[subject]):
                    if one is None and unseen is not None:
                        unseen.add(subject)
                    files.setdefault(subject, {}).update(_nameless((one,), device))
        began = time.monotonic()
        if took[subject] <= MAPPED_SECONDS_MAX:
            files.setdefault(subject, {}).update(_nameless(mapped(pid, device), device))
            took[subject] += time.monotonic() - began
    sums = {subject: sum(found.values()) for subject, found in files.items()}
    too_many = [subject for subject, count in looked_at.items() if count > DESCRIPTORS_MAX]
    too_many += [subject for subject, seconds in took.items() if seconds > MAPPED_SECONDS_MAX]
    return sums | dict.fromkeys(too_many)


def _above(pid: int, parents: Mapping[int, int], whose: Mapping[int, Subject]) -> Subject | None:
    steps = 0
    while pid > 1 and steps < len(parents):
        if pid in whose:
            return whose[pid]
        pid, steps = parents.get(pid, 0), steps + 1
    return None


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            # The process is gone, or may not be read.
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                yield int(name), int(file.read().rpartition(b")")[2].split()[_PARENT])


def _space(pid: int | str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _nameless(files: Iterable[os.stat_result | None], device: int) -> Iterator[tuple[tuple[int, int], int]]:
    for one in files:
        if one is not None and one.st_nlink == 0 and one.st_dev == device and stat.S_ISREG(one.st_mode):
            yield (one.st_dev, one.st_ino), one.st_blocks * BLOCK_BYTES
