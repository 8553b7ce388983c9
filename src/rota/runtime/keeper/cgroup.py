"""Process groups that no process can leave: cgroup v2, where this process may create them."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from pathlib import Path

from rota.runtime.keeper.closed_addresses import Nets, close

_CONTROLLERS = ("cpu", "memory", "pids")
_CPU_PERIOD_US = 100_000
MEMORY_SHARE, TENANT_MEMORY_SHARE = 0.9, 0.75
"""Shares of the host's memory: of all tenants together, and of one tenant."""
PIDS_SHARE, TENANT_PIDS_SHARE = 0.75, 0.4
"""Shares of the host's processes and threads: of all tenants together, and of one tenant."""
_PIDS_FILES = ("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max")


def write(path: Path | str, text: str) -> None:
    """Write to an existing file of a cgroup. A missing file is an error: it is never created."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


class Cgroup:
    """The cgroup of one child."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.procs_file = str(path / "cgroup.procs")

    def is_populated(self) -> bool:
        """Report whether any process lives in this cgroup, or in one below it."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except FileNotFoundError:
            return False

    def pids(self) -> list[int]:
        found: list[int] = []
        for path in self._paths():
            with contextlib.suppress(OSError):
                found += map(int, (path / "cgroup.procs").read_text().split())
        return found

    def kill(self) -> None:
        try:
            write(self.path / "cgroup.kill", "1")
        except FileNotFoundError:
            self._kill_each()

    def _kill_each(self) -> None:
        """Kill all processes one by one, on kernels before 5.14 without `cgroup.kill`. Freezing prevents forks."""
        with contextlib.suppress(OSError):
            write(self.path / "cgroup.freeze", "1")
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def was_out_of_memory(self) -> bool:
        try:
            events = (self.path / "memory.events").read_text()
        except OSError:
            return False
        return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in events.splitlines())

    def limit(self, limits: dict[str, float]) -> list[str]:
        """Set those limits that this cgroup supports, and return their names."""
        held = []
        for name, value in limits.items():
            text = f"{int(value * _CPU_PERIOD_US)} {_CPU_PERIOD_US}" if name == "cpu" else str(int(value))
            file = self.path / f"{name}.max"
            if name in _CONTROLLERS and file.exists():
                write(file, text)
                held.append(name)
        if "memory" in held:
            # The limit applies to the whole tree, so the kernel kills the whole tree: half of it is useless.
            for file, text in ((self.path / "memory.oom.group", "1"), (self.path / "memory.swap.max", "0")):
                with contextlib.suppress(OSError):
                    write(file, text)
        return held

    def remove(self) -> bool:
        """Remove the cgroup, and report whether it is gone."""
        for path in self._paths():
            try:
                path.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True

    def _paths(self) -> list[Path]:
        """Return this cgroup and all below it, deepest first."""
        return [Path(path) for path, _, _ in os.walk(self.path, topdown=False)]


class Cgroups:
    """The cgroups of one home, below one of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls, name: str) -> Cgroups | None:
        """Make the cgroup of a home below that of this process, or at the root. Returns None if neither is writable."""
        for parent in _parents():
            try:
                (parent / name).mkdir(exist_ok=True)
                _try_member(parent / name)
            except OSError:
                with contextlib.suppress(OSError):
                    (parent / name).rmdir()
                continue
            for path in (parent, parent / name):
                _delegate_controllers(path)
            _set_bounds(parent / name, host_bounds())
            return cls(parent / name)
        return None

    def group(self, name: str, tenant: str) -> Cgroup:
        """Make a cgroup for a child inside its tenant's, which has limits and one equal share of the processor."""
        folder = self.path / tenant
        if not folder.is_dir():
            folder.mkdir()
            _delegate_controllers(folder)
            _set_bounds(folder, tenant_bounds())
        (folder / name).mkdir()
        return Cgroup(folder / name)

    def forget(self, tenant: str) -> None:
        """Remove the cgroup of a tenant, if none of its processes runs any more."""
        with contextlib.suppress(OSError):
            (self.path / tenant).rmdir()

    def leftovers(self) -> list[Cgroup]:
        if not self.path.is_dir():
            return []
        return [Cgroup(path) for path in self.path.iterdir() if path.is_dir()]

    def remove(self) -> bool:
        return Cgroup(self.path).remove()


def limited(name: str, limits: dict[str, float]) -> tuple[Cgroup, list[str]] | None:
    """Make a cgroup with limits, and return it with the names of those that it enforces; None if it enforces none."""
    for parent in _parents():
        group = Cgroup(parent / name)
        try:
            group.path.mkdir()
            if held := group.limit(limits):
                return group, held
        except OSError:
            pass
        group.remove()
    return None


def closed(name: str, nets: Nets) -> Cgroup | None:
    """Make a cgroup whose processes cannot reach these addresses. Returns None if the kernel cannot block them."""
    for parent in _parents():
        group = Cgroup(parent / name)
        try:
            group.path.mkdir()
        except OSError:
            continue
        if close(group.path, nets):
            return group
        group.remove()
    return None


def _delegate_controllers(path: Path) -> None:
    """Delegate controllers to the cgroups below, where this host allows it."""
    for controller in _CONTROLLERS:
        with contextlib.suppress(OSError):
            write(path / "cgroup.subtree_control", f"+{controller}")


def _set_bounds(path: Path, bounds: dict[str, float]) -> None:
    for name, value in bounds.items():
        with contextlib.suppress(OSError):
            write(path / f"{name}.max", str(int(value)))


def _parents() -> list[Path]:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    roots = [Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"]
    paths = [root / path.lstrip("/") for root in roots for path in own if ".." not in path]
    return list(dict.fromkeys([path for path in paths if path.is_dir()] + roots))


def _try_member(path: Path) -> None:
    """Raise unless a process can be moved into a cgroup. That its directory can be made is no proof."""
    probe = path / "probe"
    probe.mkdir(exist_ok=True)
    try:
        pid = os.fork()
        if pid == 0:
            try:
                write(probe / "cgroup.procs", "0")
                os._exit(0)
            finally:
                os._exit(1)
        if os.waitpid(pid, 0)[1] != 0:
            raise PermissionError(f"cannot move a process into {probe}")
    finally:
        probe.rmdir()


@functools.cache
def host_bounds() -> dict[str, float]:
    """Return the limits of all tenants together, by name. The rest is for the server, the keeper and administrators."""
    return {"memory": _host_memory() * MEMORY_SHARE, "pids": _host_pids() * PIDS_SHARE}


@functools.cache
def tenant_bounds() -> dict[str, float]:
    """Return the limits, by name, of everything that one tenant runs: other tenants need the rest."""
    return {"memory": _host_memory() * TENANT_MEMORY_SHARE, "pids": _host_pids() * TENANT_PIDS_SHARE}


def _host_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _host_pids() -> int:
    return min(int(Path(file).read_text()) for file in _PIDS_FILES)
