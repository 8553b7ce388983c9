"""Linux calls that Python 3.11 lacks (prctl, namespaces), and process data from /proc."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_OVER = (b"Z", b"X")
"""States of a thread that has ended."""

# Loaded before any fork: a child between fork and exec should load nothing.
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _prctl(option: int, value: int, what: str) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)), what)


def die_with_parent(signal: int) -> None:
    """Make the kernel send `signal` to this process when its parent thread ends. A change of user resets it."""
    _prctl(_PR_SET_PDEATHSIG, signal, "PR_SET_PDEATHSIG")


def adopt_orphans() -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def no_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "PR_SET_NO_NEW_PRIVS")


def set_readable(readable: bool) -> None:
    """Allow or forbid processes of this user to trace this one. Forks inherit the setting, exec resets it."""
    _prctl(_PR_SET_DUMPABLE, int(readable), "PR_SET_DUMPABLE")


def set_name(name: str) -> None:
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _check(_libc.prctl(_PR_SET_NAME, buffer, 0, 0, 0), "PR_SET_NAME")


def set_arguments(words: Sequence[str]) -> None:
    """Replace this process's arguments as `ps` shows them, cut to the length of the old ones."""
    fields = _stat_of("self")
    assert fields is not None
    start, end = int(fields[45]), int(fields[46])
    # The last byte stays NUL, or the kernel would go on to read the environment.
    shown = b"\0".join(os.fsencode(word) for word in words)[: end - start - 1]
    ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def _stat_of(pid: int | str) -> list[bytes] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the name in brackets, which may hold anything; the third comes after the last bracket.
    return stat[stat.rindex(b")") + 2 :].split()


def start_time_of(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it is gone. Pid and start identify it."""
    fields = _stat_of(pid)
    return None if fields is None else int(fields[19])


def thread_states(pid: int) -> list[bytes]:
    """Return the state letters of a process's threads; none if it is gone."""
    return [fields[0] for fields in _stats_of_threads(pid)]


def threads_of(pid: int) -> list[str]:
    """Return the thread ids of a process; none if it is gone."""
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _stats_of_threads(pid: int) -> list[list[bytes]]:
    found = (_stat_of(f"{pid}/task/{thread}") for thread in threads_of(pid))
    return [fields for fields in found if fields is not None]


def is_alive(pid: int, start_time: int) -> bool:
    """Report whether the process with this pid and start time is alive. A zombie with live threads is alive."""
    fields = _stat_of(pid)
    if fields is None or int(fields[19]) != start_time:
        return False
    return fields[0] not in _OVER or any(state not in _OVER for state in thread_states(pid))


def descendants_of(ancestor: int, but: Collection[int] = ()) -> list[int]:
    """Return all descendants, parents first, including zombies. Leaves out `but` and all descendants of `but`."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat_of(int(name))):
            below.setdefault(int(fields[1]), []).append(int(name))
    found = [pid for pid in below.get(ancestor, ()) if pid not in but]
    for pid in found:  # the list grows during the loop
        found += below.get(pid, ())
    return found


class Size(NamedTuple):
    """Threads and resident pages of a process."""

    parent: int
    threads: int
    pages: int


def sizes() -> dict[int, Size]:
    """Return the sizes of all live processes, by pid."""
    found = {}
    for name in os.listdir("/proc"):
        if not (name.isdigit() and (fields := _stat_of(int(name)))):
            continue
        if fields[0] in _OVER:
            # A process whose first thread has ended looks like a zombie.
            alive = [one for one in _stats_of_threads(int(name)) if one[0] not in _OVER]
            if not alive:
                continue
            fields = [*fields[:21], alive[0][21]]
        found[int(name)] = Size(int(fields[1]), int(fields[17]), int(fields[21]))
    return found


class Own(NamedTuple):
    """Memory of a process in bytes, without pages backed by files on disk."""

    private: int
    shared: int

    @property
    def bytes(self) -> int:
        return self.private + self.shared


def own_memory(pid: int) -> Own:
    # The first thread may have ended: its status then shows nothing of what the others have.
    threads = (f"/proc/{pid}/task/{thread}/status" for thread in threads_of(pid))
    found = (Own(*_kibibytes(path, "RssAnon:", "RssShmem:")) for path in (f"/proc/{pid}/status", *threads))
    return next((own for own in found if own.bytes), Own(0, 0))


def shared_bytes() -> int:
    """Return the host's shared memory in bytes: memory files, segments, and shared anonymous mappings."""
    return _kibibytes("/proc/meminfo", "Shmem:")[0]


def _kibibytes(path: str, *names: str) -> list[int]:
    """Return values of a /proc file in bytes, 0 for a missing one."""
    try:
        lines = [line.split() for line in Path(path).read_text(errors="replace").splitlines()]
    except OSError:
        lines = []
    found = {words[0]: int(words[1]) * 1024 for words in lines if words and words[0] in names}
    return [found.get(name, 0) for name in names]


def below(ancestor: int, found: Mapping[int, Size]) -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for pid, size in found.items():
        children.setdefault(size.parent, []).append(pid)
    tree = [ancestor]
    for pid in tree:
        tree += children.get(pid, ())
    return tree


def first_below(pid: int, levels: int) -> int | None:
    """Follow the first child `levels` times. Returns None if the tree is not that deep (yet)."""
    for _ in range(levels):
        # Ordered by start time: orphans of the tree may have been reparented here, and pids are reused.
        found = ((each, _stat_of(each)) for each in descendants_of(pid))
        children = [(int(fields[19]), each) for each, fields in found if fields and int(fields[1]) == pid]
        if not children:
            return None
        pid = min(children)[1]
    return pid


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
