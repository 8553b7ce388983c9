"""Files in flight: descriptors sent through a Unix socket that nobody has received. Standard library only.

No process has them open. They are inspected and stay in place: the socket is copied from the process that has it, and
read with MSG_PEEK.
"""

from __future__ import annotations

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
"""Messages inspected in one socket; its buffer has room for some hundreds."""
NESTED_MAX = 16
"""Depth of sockets that are themselves in flight, with others in them."""
_FILES_OF_A_MESSAGE = 253
_READ_BYTES = 65536
_SO_PEEK_OFF = 42
_PIDFD_GETFD = 438
_libc = ctypes.CDLL(None, use_errno=True)


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


def in_flight(pid: int, number: int, known: set[int], until: float = math.inf) -> InFlight:
    """Inspect the files in flight in a socket of a process, until a moment of the monotonic clock.

    `known`: inodes of sockets already inspected. Each is inspected once, however often it is open or in flight.
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
    """Return the number of descriptors in flight in a socket; None if it is unknown."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(path).read_text().splitlines():
            if line.startswith("scm_fds:"):
                return int(line.split()[1])
        return 0
    return None


def _peek(copy: int, known: set[int], nested: int, until: float) -> InFlight:
    """Inspect a socket, and close its descriptor."""
    try:
        opened = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return InFlight([])
    with opened as one:
        inode, count = os.fstat(copy).st_ino, _pending_count(f"/proc/self/fdinfo/{copy}") or 0
        if not count or one.family != socket.AF_UNIX or inode in known:
            return InFlight([])
        if not nested or time.monotonic() > until:
            return InFlight([], count)
        known.add(inode)
        files: list[os.stat_result] = []
        unseen, seen = 0, 0
        with contextlib.suppress(OSError):
            before = one.getsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF)
            one.setsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF, 0)
            try:
                for descriptor in _waiting(one, until):
                    seen += 1
                    files.append(found := os.fstat(descriptor))
                    if stat.S_ISSOCK(found.st_mode):
                        below = _peek(descriptor, known, nested - 1, until)
                        files += below.files
                        unseen += below.unseen
                    else:
                        os.close(descriptor)
            finally:
                one.setsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF, before)
        return InFlight(files, unseen + max(0, count - seen))


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
                os.close(number)
        if not content and not numbers:
            return
