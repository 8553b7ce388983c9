"""What Linux offers and Python 3.11 does not: prctl and namespaces; and what /proc says of a process."""

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
    """Get `signal` when the thread that forked this process ends. Lost when the user changes: ask again after that."""
    _prctl(_PR_SET_PDEATHSIG, signal, "PR_SET_PDEATHSIG")


def adopt_orphans() -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def no_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "PR_SET_NO_NEW_PRIVS")


def set_readable(readable: bool) -> None:
    """Whether others of the same user may trace this process and read its memory; forks inherit it, exec sets it."""
    _prctl(_PR_SET_DUMPABLE, int(readable), "PR_SET_DUMPABLE")


def set_name(name: str) -> None:
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _check(_libc.prctl(_PR_SET_NAME, buffer, 0, 0, 0), "PR_SET_NAME")


def set_arguments(words: Sequence[str]) -> None:
    """Show these words as this process's arguments, cut to the room that the old ones have."""
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
    """When the process began, in clock ticks since boot; with the pid, this names one process. None: there is none."""
    fields = _stat_of(pid)
    return None if fields is None else int(fields[19])


def thread_states(pid: int) -> list[bytes]:
    """The letters that stand for what the threads of a process do; none: it is gone."""
    return [fields[0] for fields in _stats_of_threads(pid)]


def threads_of(pid: int) -> list[str]:
    """The numbers of the threads of a process; none: it is gone."""
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _stats_of_threads(pid: int) -> list[list[bytes]]:
    found = (_stat_of(f"{pid}/task/{thread}") for thread in threads_of(pid))
    return [fields for fields in found if fields is not None]


def is_alive(pid: int, start_time: int) -> bool:
    """That very process, not another with its pid; a zombie is not alive, unless it has threads that are."""
    fields = _stat_of(pid)
    if fields is None or int(fields[19]) != start_time:
        return False
    return fields[0] not in _OVER or any(state not in _OVER for state in thread_states(pid))


def descendants_of(ancestor: int, but: Collection[int] = ()) -> list[int]:
    """All below it, parents first, zombies included; not those children of it, nor what is below them."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat_of(int(name))):
            below.setdefault(int(fields[1]), []).append(int(name))
    found = [pid for pid in below.get(ancestor, ()) if pid not in but]
    for pid in found:  # grows while it is walked
        found += below.get(pid, ())
    return found


class Size(NamedTuple):
    """What a process takes."""

    parent: int
    threads: int
    pages: int


def sizes() -> dict[int, Size]:
    """What all processes take that are not over, by pid."""
    found = {}
    for name in os.listdir("/proc"):
        if not (name.isdigit() and (fields := _stat_of(int(name)))):
            continue
        if fields[0] in _OVER:
            # A process whose first thread has ended looks like one that is over.
            alive = [one for one in _stats_of_threads(int(name)) if one[0] not in _OVER]
            if not alive:
                continue
            fields = [*fields[:21], alive[0][21]]
        found[int(name)] = Size(int(fields[1]), int(fields[17]), int(fields[21]))
    return found


class Own(NamedTuple):
    """The memory of a process, without its share of what it has from files of a disk."""

    private: int
    shared: int

    @property
    def bytes(self) -> int:
        return self.private + self.shared


def own_memory(pid: int) -> Own:
    # The first thread may have ended, and then knows nothing of what the others have.
    threads = (f"/proc/{pid}/task/{thread}/status" for thread in threads_of(pid))
    found = (Own(*_kibibytes(path, "RssAnon:", "RssShmem:")) for path in (f"/proc/{pid}/status", *threads))
    return next((own for own in found if own.bytes), Own(0, 0))


def shared_bytes() -> int:
    """What of the host's memory is shared: files in memory, segments, and what processes map together."""
    return _kibibytes("/proc/meminfo", "Shmem:")[0]


def _kibibytes(path: str, *names: str) -> list[int]:
    """Lines of a file, in bytes; nothing where they are not there."""
    try:
        lines = [line.split() for line in Path(path).read_text(errors="replace").splitlines()]
    except OSError:
        lines = []
    found = {words[0]: int(words[1]) * 1024 for words in lines if words and words[0] in names}
    return [found.get(name, 0) for name in names]


def below(ancestor: int, found: Mapping[int, Size]) -> list[int]:
    """Itself and all below it."""
    children: dict[int, list[int]] = {}
    for pid, size in found.items():
        children.setdefault(size.parent, []).append(pid)
    tree = [ancestor]
    for pid in tree:
        tree += children.get(pid, ())
    return tree


def first_below(pid: int, levels: int) -> int | None:
    """The first child of its first child, and so on. None: it is not so deep, or not yet."""
    for _ in range(levels):
        # By when they began: orphans of the tree may have come to it, and numbers begin anew at some time.
        found = ((each, _stat_of(each)) for each in descendants_of(pid))
        children = [(int(fields[19]), each) for each, fields in found if fields and int(fields[1]) == pid]
        if not children:
            return None
        pid = min(children)[1]
    return pid


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
