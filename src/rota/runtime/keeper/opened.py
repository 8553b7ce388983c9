"""The files that a process has open or mapped, or has sent to nobody yet, for whoever counts what they take.

Standard library only.

Each thread may have files of its own, and a process whose first thread has ended has none but those. A process that
cannot be traced hides its files from all but root. Whoever made its user namespace gets copies of them all the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import platform
import random
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rota.runtime.keeper.inflight import copied, in_flight
from rota.runtime.keeper.kernel import threads_of

BLOCK_BYTES = 512
MEMORY_FILES_MAX = 20_000
"""Of one tree that are looked at for memory at a time, by chance: it is looked at again soon."""
_NO_NAME = b" (deleted)\n"
"""At the end of a line of /proc/PID/maps. A file may be called so itself: it has a name then, and is not counted."""
_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_FILES = 2
_libc = ctypes.CDLL(None, use_errno=True)


class Table(NamedTuple):
    """Open files of one process, or of one of its threads."""

    pid: int
    """The process, or the thread."""
    numbers: Sequence[int]
    """Of which some may be none, and others come and go."""
    stat: Callable[[int], os.stat_result]
    """Raises OSError for one that is none."""

    def files(
        self, numbers: Iterable[int], known: set[int], until: float = math.inf
    ) -> Iterator[os.stat_result | None]:
        """Some of them, and what is under way in those that are sockets. None: something there cannot be looked at.

        `known`: sockets that were looked into before, and are not again; `until`: none is after this moment. A socket
        may be open, here and in other processes, thousands of times, with thousands of files in it.
        """
        for number in numbers:
            with contextlib.suppress(OSError):
                found = self.stat(number)
                yield found
                if stat.S_ISSOCK(found.st_mode) and found.st_ino not in known and time.monotonic() <= until:
                    under_way = in_flight(self.pid, number, known, until)
                    known.add(found.st_ino)
                    yield from under_way.files
                    if under_way.unseen:
                        yield None


def tables(pid: int) -> Iterator[Table]:
    """The open files of a process and of its threads, each table once. None where it is gone."""
    for owner, place in _places(pid):
        try:
            numbers = [int(name) for name in os.listdir(place)]
        except PermissionError:
            if owner == pid:
                yield from _copied(pid)
        except OSError:
            continue
        else:
            yield Table(owner, numbers, functools.partial(_stat, place))


def mapped(pid: int, device: int) -> Iterator[os.stat_result]:
    """Files of a device that a process has mapped, or is run from, and that have no name any more.

    They need not be open. Root sees all of them; others those of processes that they may trace.
    """
    for place in (f"/proc/{pid}", *(f"/proc/{thread}" for thread in threads_of(pid))):
        try:
            lines = Path(f"{place}/maps").read_bytes()
        except OSError:
            return
        # The first thread may have ended, and then has nothing mapped.
        if lines:
            break
    else:
        return
    with contextlib.suppress(OSError):
        yield os.stat(f"{place}/exe")
    if _NO_NAME not in lines:
        return
    wanted, known = f"{os.major(device):02x}:{os.minor(device):02x}".encode(), set[bytes]()
    for line in lines.splitlines(keepends=True):
        if line.endswith(_NO_NAME):
            where, _, _, its_device, inode, _ = line.split(None, 5)
            if its_device == wanted and inode not in known:
                known.add(inode)
                # There without the zeros that it has here at its beginning.
                begin, end = (int(each, 16) for each in where.split(b"-"))
                with contextlib.suppress(OSError):
                    yield os.stat(f"{place}/map_files/{begin:x}-{end:x}")


def memory_bytes(pids: Iterable[int], until: float = math.inf) -> int:
    """Return the bytes of files in memory alone (memfd) that some processes have open or run, mapped or not.

    Nothing more is looked at after a moment of the monotonic clock, or after so many files: others wait for whoever
    looks. Each look begins somewhere else.
    """
    device, found, looked_at, known = _memory_device(), dict[int, int](), 0, set[int]()
    mixed = [*pids]
    random.shuffle(mixed)
    for pid in mixed:
        if looked_at >= MEMORY_FILES_MAX or time.monotonic() > until:
            break
        with contextlib.suppress(OSError):
            program = os.stat(f"/proc/{pid}/exe")
            if program.st_dev == device:
                found[program.st_ino] = program.st_blocks * BLOCK_BYTES
        for table in tables(pid):
            left = MEMORY_FILES_MAX - looked_at
            if left <= 0 or time.monotonic() > until:
                break
            looked_at += len(table.numbers)
            numbers = random.sample(table.numbers, min(left, len(table.numbers)))
            for file in table.files(numbers, known, until):
                if file is not None and file.st_dev == device:
                    found[file.st_ino] = file.st_blocks * BLOCK_BYTES
    return sum(found.values())


@functools.cache
def _memory_device() -> int:
    if not hasattr(os, "memfd_create"):  # As with an old C library, which tells nothing of other programs.
        return -1
    descriptor = os.memfd_create("device")
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _places(pid: int) -> Iterator[tuple[int, str]]:
    yield pid, f"/proc/{pid}/fd"
    number = _KCMP.get(platform.machine())
    for thread in threads_of(pid):
        # With none of its own it has those of the first one. Where that cannot be told, they are looked at.
        is_shared = number is not None and _libc.syscall(number, pid, int(thread), _KCMP_FILES, 0, 0) == 0
        if int(thread) != pid and not is_shared:
            yield int(thread), f"/proc/{pid}/task/{thread}/fd"


def _stat(place: str, number: int) -> os.stat_result:
    return os.stat(f"{place}/{number}")


def _copied(pid: int) -> Iterator[Table]:
    with contextlib.suppress(OSError, ValueError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        size = next(int(line.split()[1]) for line in lines if line.startswith("FDSize:"))
        process = os.pidfd_open(pid)
        try:
            yield Table(pid, range(size), functools.partial(_stat_of_copy, process))
        finally:
            os.close(process)


def _stat_of_copy(process: int, number: int) -> os.stat_result:
    copy = copied(process, number)
    try:
        return os.fstat(copy)
    finally:
        os.close(copy)
