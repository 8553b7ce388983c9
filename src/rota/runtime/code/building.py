"""Runs the command of a build within bounds of time, processes, memory and disk.

A cgroup limits processes and memory where one can be made. All bounds are also checked periodically, and a build that
exceeds one is killed: it may exceed them until the next check. A build ends with its first process, the sandbox's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rota.runtime.freezing import RESTLESS_MAX, RESTLESS_WHY, frozen
from rota.runtime.interface import Subject
from rota.runtime.keeper import cgroup, kernel, protocol
from rota.runtime.keeper.cgroup_v1 import Controllers
from rota.runtime.keeper.closed_addresses import Nets, close
from rota.runtime.keeper.limit_watch import too_much_memory
from rota.runtime.measuring import FILE_BYTES_MIN, NotMeasurable, Used, used
from rota.runtime.nameless import nameless_bytes
from rota.runtime.sandbox import Command
from rota.runtime.space import Shortage

BUILD_SECONDS_MAX = 600.0
PIDS_MAX = 1024
"""The most processes and threads of one build."""
PIDS_SPARE = 64
"""The cgroup allows this many processes beyond PIDS_MAX. A build whose fork fails may hang; so it is killed before."""
DISK_BYTES_MAX = 10 * 1024 * 1024 * 1024
FILES_OPEN_MAX = 4096
"""The most descriptors of one process."""
OUTPUT_BYTES_MAX = 256 * 1024
"""The most bytes of a build's output that are kept, from its end: they show the cause of a failure."""
LOOK_SECONDS = 0.25
DISK_SECONDS, DISK_SHARE = 1.0, 0.2
"""The least seconds between two measurements of the disk, and the largest share of the time that they may take."""
GROUP_SECONDS_MAX, PAUSE_SECONDS = 2.0, 0.01
_BUILD = Subject("", "build", "")
_SHELL = """\
limit=$1; files=$2; shift 2
ulimit -n "$files" 2>/dev/null
ulimit -d "$limit" 2>/dev/null
while [ "$1" != -- ]; do echo 0 > "$1"; shift; done 2>/dev/null
shift
exec "$@"
"""


class Exceeded(Exception):  # noqa: N818 - says what became of it
    """A build exceeded a bound, and was killed. The reason is one word for a condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Building:
    """Runs builds of one home."""

    def __init__(self, home: Path, *, memory_bytes_max: int, nets: Nets = ()) -> None:
        """`memory_bytes_max`: the bound for all processes of one build together.

        `nets`: addresses that are closed to builds, where the kernel can do that.
        """
        self._home = home
        self._name = f"{protocol.name_of(home)}-build"
        self._limits: dict[str, float] = {"memory": memory_bytes_max, "pids": PIDS_MAX + PIDS_SPARE}
        self._nets = nets
        self._count = 0

    async def run(
        self, made: Command, folders: Sequence[Path], write: Callable[[bytes], None] = lambda data: None
    ) -> tuple[int, str]:
        """Run a build that fills `folders`. Return its exit code and the end of its output. Raises Exceeded."""
        self._count += 1
        name = f"{self._name}-{os.getpid()}-{self._count}"
        group = await asyncio.to_thread(_Group, name, self._limits, self._nets)
        try:
            code, said = await self._run(made, folders, write, group)
            if group.was_out_of_memory():
                raise self._too_much_memory()
            return code, said
        finally:
            await asyncio.shield(asyncio.to_thread(group.remove))

    async def _run(
        self, made: Command, folders: Sequence[Path], write: Callable[[bytes], None], group: _Group
    ) -> tuple[int, str]:
        limit = "unlimited" if "memory" in group.held else str(int(self._limits["memory"]) // 1024)
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _SHELL, "build", limit, str(FILES_OPEN_MAX), *group.files, "--", *made.argv),
            env=made.env,
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        said = bytearray()
        watching = asyncio.create_task(self._watch(process, folders, group), name="build")
        try:
            async with asyncio.timeout(BUILD_SECONDS_MAX):
                while piece := await process.stdout.read(OUTPUT_BYTES_MAX):
                    write(piece)
                    said += piece
                    del said[:-OUTPUT_BYTES_MAX]
                code = await process.wait()
        except TimeoutError:
            raise Exceeded("RequirementsFailed", f"pip took longer than {BUILD_SECONDS_MAX:.0f} s") from None
        finally:
            watching.cancel()
            _kill(process)
            await process.wait()
            [failed] = await asyncio.gather(watching, return_exceptions=True)
        if isinstance(failed, Exception):
            raise failed
        # Files that it wrote after the last look.
        await asyncio.to_thread(_check_disk, process.pid, folders)
        return code, said.decode(errors="replace")

    async def _watch(self, process: asyncio.subprocess.Process, folders: Sequence[Path], group: _Group) -> None:
        """Check the bounds until cancelled. Kills the build and raises Exceeded when it exceeds one."""
        pid, shortage, disk_due, restless = process.pid, Shortage(str(self._home)), 0.0, 0
        try:
            while True:
                await asyncio.to_thread(self._check_tree, pid, group)
                if shortage:
                    raise Exceeded("NoSpace", "the disk of the server is short of space: nothing is installed now")
                if time.monotonic() >= disk_due:
                    began = time.monotonic()
                    is_restless = await asyncio.to_thread(_check_disk, pid, folders)
                    restless = restless + 1 if is_restless else 0
                    if restless >= RESTLESS_MAX:
                        raise Exceeded("RequirementsFailed", f"what is installed cannot be measured: {RESTLESS_WHY}")
                    took = time.monotonic() - began
                    disk_due = began + max(DISK_SECONDS, took / DISK_SHARE)
                await asyncio.sleep(LOOK_SECONDS)
        except Exception:
            # A build must not run unwatched.
            _kill(process)
            raise

    def _check_tree(self, pid: int, group: _Group) -> None:
        if group.was_out_of_memory():
            # The kernel may have killed one process only, for which the others wait.
            raise self._too_much_memory()
        sizes = kernel.sizes()
        tree = [one for one in kernel.below(pid, sizes) if one in sizes]
        if sum(sizes[one].threads for one in tree) > PIDS_MAX:
            raise Exceeded(
                "RequirementsFailed", f"what is built may have {PIDS_MAX} processes and threads, and had more"
            )
        most, page = self._limits["memory"], os.sysconf("SC_PAGE_SIZE")
        if too_much_memory(tree, sum(sizes[one].pages for one in tree) * page, most):
            raise self._too_much_memory()

    def _too_much_memory(self) -> Exceeded:
        most = int(self._limits["memory"])
        return Exceeded("RequirementsFailed", f"what is built may have {most} bytes of memory, and had more")


def _check_disk(pid: int, folders: Sequence[Path]) -> bool:
    """Raise Exceeded if a build uses too much of the disk. Return whether its processes evaded being stopped."""
    found, is_restless = _used(folders), False
    if not found.is_whole:
        with frozen([pid]) as stopped:
            found, is_restless = _used(folders), stopped.check().is_restless
    device = folders[0].stat().st_dev
    nameless = nameless_bytes({_BUILD: [pid]}, device).get(_BUILD, 0)
    if nameless is None or found.bytes + nameless > DISK_BYTES_MAX:
        many = f"{DISK_BYTES_MAX} bytes on the disk, where each file counts for {FILE_BYTES_MIN} or more, and had more"
        raise Exceeded("RequirementsFailed", f"what is installed may have {many}")
    return is_restless


def _used(folders: Sequence[Path]) -> Used:
    total, is_whole = 0, True
    for folder in folders:
        try:
            found = used(folder)
        except FileNotFoundError:
            continue
        except (NotMeasurable, OSError) as error:
            raise Exceeded("RequirementsFailed", f"what is installed cannot be measured: {error}") from None
        total, is_whole = total + found.bytes, is_whole and found.is_whole
    return Used(total, is_whole=is_whole)


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the session of a build. The processes in its sandbox end with it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class _Group:
    """The cgroups of one build, for those limits that this host lets Rota set."""

    def __init__(self, name: str, limits: dict[str, float], nets: Nets) -> None:
        found = cgroup.limited(name, limits)
        self._group = found[0] if found is not None else None
        if nets and self._group is not None:
            close(self._group.path, nets)
        elif nets:
            self._group = cgroup.closed(name, nets)
        held = found[1] if found is not None else []
        self._controllers = Controllers.make(name)
        rest = {limit: value for limit, value in limits.items() if limit not in held}
        self._rest = self._controllers.hold("build", rest, tenant="build")
        self.held = {*held, *self._rest.paths}
        """The names of the limits that these cgroups enforce."""
        self.files = [*([self._group.procs_file] if self._group else ()), *self._rest.procs_files]
        """The `cgroup.procs` files to which a process writes itself to join these cgroups."""

    def was_out_of_memory(self) -> bool:
        return self._rest.was_out_of_memory() or (self._group is not None and self._group.was_out_of_memory())

    def remove(self) -> None:
        """Kill the processes that are left in the cgroups, and remove the cgroups. Waits up to GROUP_SECONDS_MAX."""
        deadline = time.monotonic() + GROUP_SECONDS_MAX
        if self._group is not None:
            with contextlib.suppress(OSError):
                self._group.kill()
        while time.monotonic() < deadline:
            if (self._group is None or self._group.remove()) and self._rest.remove():
                break
            time.sleep(PAUSE_SECONDS)
        self._controllers.remove()
