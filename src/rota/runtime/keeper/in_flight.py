"""Files in flight: descriptors sent through a Unix socket and not yet received. Standard library only.

No process has these files open. They are inspected in place: the socket is copied from the process that has it, and
read with MSG_PEEK.

Closing the last copy of a socket can block for as long as its owner likes (SO_LINGER); a process that ends does not
wait for it. So no copy is closed in this process: `release` starts a process that ends with the copies.
"""

from __future__ import annotations

import _thread
import array
import contextlib
import ctypes
import math
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MESSAGES_MAX = 4096
"""The most messages inspected in one socket. Its buffer has room for some hundreds."""
NESTED_MAX = 16
"""The greatest depth of sockets in flight that hold files in flight themselves."""
HELD_MAX = 512
"""The most copies of sockets that wait for `release`."""
_FILES_OF_A_MESSAGE = 253
_READ_BYTES = 65536
_SO_PEEK_OFF = 42
_PIDFD_GETFD = 438
_libc = ctypes.CDLL(None, use_errno=True)


class _Held(_thread._local):
    """Copies of sockets that this thread has yet to release."""

    def __init__(self) -> None:
        self.numbers: list[int] = []


_held = _Held()


class InFlight(NamedTuple):
    """Files in flight in one socket."""

    files: list[os.stat_result]
    unseen: int = 0
    """Files that cannot be inspected, as in a connection that nobody has accepted."""


def copy_descriptor(process: int, number: int) -> int:
    """Copy a descriptor of another process, given by its pidfd. Raises OSError."""
    copy = int(_libc.syscall(_PIDFD_GETFD, process, number, 0))
    if copy < 0:
        raise OSError(ctypes.get_errno(), "it is not open, or cannot be copied")
    return copy


def release_later(copy: int) -> None:
    """Take over a copy of a socket, which `release` closes later. Whoever makes copies calls `release` at the end."""
    _held.numbers.append(copy)
    if len(_held.numbers) >= HELD_MAX:
        release()


def release() -> None:
    """Close the socket copies that this thread has taken over, without waiting for data that is still to be sent."""
    numbers, _held.numbers = _held.numbers, []
    if not numbers:
        return
    import subprocess  # Seldom needed, and the keeper is small.

    last = None
    with contextlib.suppress(OSError):
        last = subprocess.Popen(["/bin/sh", "-c", "read _"], stdin=subprocess.PIPE, pass_fds=numbers)
    for number in numbers:
        os.close(number)
    if last is not None:
        last.kill()
        last.communicate()


def in_flight(pid: int, number: int, known: set[int], until: float = math.inf) -> InFlight:
    """Inspect the files in flight in a socket of a process, until a moment of the monotonic clock.

    `known`: inodes of sockets already inspected. Each is inspected once, however often it is open or in flight.
    Call `release` afterwards.
    """
    count = _pending_count(f"/proc/{pid}/fdinfo/{number}")
    if count == 0:
        return InFlight([])
    try:
        process = os.pidfd_open(pid)
        try:
            copy = copy_descriptor(process, number)
        finally:
            os.close(process)
    except OSError:
        return InFlight([], count or 0)
    return _peek(copy, known, NESTED_MAX, until)


def _pending_count(path: str) -> int | None:
    """Return the number of descriptors in flight in a socket, or None if it is unknown."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(path).read_text().splitlines():
            if line.startswith("scm_fds:"):
                return int(line.split()[1])
        return 0
    return None


def _peek(copy: int, known: set[int], nested: int, until: float) -> InFlight:
    """Inspect a socket, and pass its descriptor to `release_later`."""
    try:
        one = socket.socket(fileno=copy)
    except OSError:
        release_later(copy)
        return InFlight([])
    try:
        inode, count = os.fstat(copy).st_ino, _pending_count(f"/proc/self/fdinfo/{copy}") or 0
        if not count or one.family != socket.AF_UNIX or inode in known:
            return InFlight([])
        if not nested or time.monotonic() > until:
            return InFlight([], count)
        known.add(inode)
        files: list[os.stat_result] = []
        unseen, shown = 0, 0
        with contextlib.suppress(OSError):
            before = one.getsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF)
            one.setsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF, 0)
            try:
                for descriptor in _waiting(one, until):
                    shown += 1
                    files.append(found := os.fstat(descriptor))
                    if stat.S_ISSOCK(found.st_mode):
                        below = _peek(descriptor, known, nested - 1, until)
                        files += below.files
                        unseen += below.unseen
                    else:
                        os.close(descriptor)
            finally:
                one.setsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF, before)
        return InFlight(files, unseen + max(0, count - shown))
    finally:
        release_later(one.detach())


def _waiting(one: socket.socket, until: float) -> Iterator[int]:
    """Yield copies of the descriptors in flight in a socket; the caller closes them."""
    flags = socket.MSG_PEEK | socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    room = socket.CMSG_SPACE(_FILES_OF_A_MESSAGE * array.array("i").itemsize)
    for _ in range(MESSAGES_MAX):
        if time.monotonic() > until:
            return
        try:
            content, more, _, _ = one.recvmsg(_READ_BYTES, room, flags)
        except OSError:
            return
        numbers = array.array("i")
        for level, kind, data in more:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
        left = list(numbers)
        try:
            while left:
                yield left.pop()
        finally:
            for number in left:
                release_later(number)
        if not content and not numbers:
            return
