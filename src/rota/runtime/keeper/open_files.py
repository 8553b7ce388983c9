"""Files that a process has open, mapped or in flight, for measuring their size. Standard library only.

Each thread may have a table of its own, and a process whose first thread has ended has only those. A process that
cannot be traced hides its files from all but root; the owner of its user namespace can still copy them.
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

from rota.runtime.keeper.in_flight import copy_descriptor, in_flight, release, release_later
from rota.runtime.keeper.kernel import threads_of

BLOCK_BYTES = 512
MEMORY_FILES_MAX = 20_000
"""The most files of one tree inspected for memory in one check, chosen at random. The next check follows soon."""
_NO_NAME = b" (deleted)\n"
"""The end of a line of /proc/PID/maps for an unlinked file. A linked file whose name ends so is not counted."""
_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_FILES = 2
_libc = ctypes.CDLL(None, use_errno=True)


class Table(NamedTuple):
    """The open files of a process or of one of its threads."""

    pid: int
    """The process or the thread."""
    numbers: Sequence[int]
    """Descriptors; some may not be open, and they come and go."""
    stat: Callable[[int], os.stat_result]
    """Stats a descriptor. Raises OSError if it is not open."""

    def files(
        self, numbers: Iterable[int], known: set[int], until: float = math.inf
    ) -> Iterator[os.stat_result | None]:
        """Yield these files, and files in flight in sockets among them; None for a file that cannot be inspected.

        `known`: sockets already inspected, which are skipped. `until`: the monotonic time after which no socket is
        inspected. A socket may be open thousands of times, here and in other processes, with thousands of files in it.
        """
        try:
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
        finally:
            release()


def tables(pid: int) -> Iterator[Table]:
    """Yield the tables of open files of a process and its threads, each once; nothing if it is gone."""
    for owner, place in _fd_folders(pid):
        try:
            numbers = [int(name) for name in os.listdir(place)]
        except PermissionError:
            if owner == pid:
                yield from _copied_table(pid)
        except OSError:
            continue
        else:
            yield Table(owner, numbers, functools.partial(_stat, place))


def mapped(pid: int, device: int) -> Iterator[os.stat_result]:
    """Yield unlinked files of a device that a process has mapped or executes.

    They need not be open. Root sees all of them, others those of processes that they may trace.
    """
    for place in (f"/proc/{pid}", *(f"/proc/{thread}" for thread in threads_of(pid))):
        try:
            lines = Path(f"{place}/maps").read_bytes()
        except OSError:
            return
        # If the first thread has ended, its maps are empty.
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
                # The name there has no leading zeros.
                begin, end = (int(each, 16) for each in where.split(b"-"))
                with contextlib.suppress(OSError):
                    yield os.stat(f"{place}/map_files/{begin:x}-{end:x}")


def memory_bytes(pids: Iterable[int], until: float = math.inf) -> int:
    """Return the size of memory files (memfd) that processes have open or execute, in bytes.

    Stops at a moment of the monotonic clock or after MEMORY_FILES_MAX files; each call begins at random.
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
    if not hasattr(os, "memfd_create"):  # Python was built with an old C library; other programs may have memfd.
        return -1
    descriptor = os.memfd_create("device")
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _fd_folders(pid: int) -> Iterator[tuple[int, str]]:
    yield pid, f"/proc/{pid}/fd"
    number = _KCMP.get(platform.machine())
    for thread in threads_of(pid):
        # A thread without a table of its own shares the first one's. Where that is unknown, it is inspected.
        is_shared = number is not None and _libc.syscall(number, pid, int(thread), _KCMP_FILES, 0, 0) == 0
        if int(thread) != pid and not is_shared:
            yield int(thread), f"/proc/{pid}/task/{thread}/fd"


def _stat(place: str, number: int) -> os.stat_result:
    return os.stat(f"{place}/{number}")


def _copied_table(pid: int) -> Iterator[Table]:
    with contextlib.suppress(OSError, ValueError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        size = next(int(line.split()[1]) for line in lines if line.startswith("FDSize:"))
        process = os.pidfd_open(pid)
        try:
            yield Table(pid, range(size), functools.partial(_stat_of_copy, process))
        finally:
            os.close(process)


def _stat_of_copy(process: int, number: int) -> os.stat_result:
    copy = copy_descriptor(process, number)
    found = os.fstat(copy)
    if stat.S_ISSOCK(found.st_mode):
        release_later(copy)
    else:
        os.close(copy)
    return found
