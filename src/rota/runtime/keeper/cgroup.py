"""Groups of processes that nothing leaves: cgroup2, where this process may make them."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from rota.runtime.keeper import together

_CONTROLLERS = ("cpu", "memory", "pids")
_CPU_PERIOD_US = 100_000


def write(path: Path | str, text: str) -> None:
    """To a file that is there: what does not exist in a cgroup is not there to be made."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


class Group:
    """The processes of one child."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.procs_file = str(path / "cgroup.procs")

    def is_populated(self) -> bool:
        """Whether anything lives in it, or in a group that was made below it."""
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
        """Before Linux 5.14. Frozen first, so that none forks meanwhile; a frozen process can be killed."""
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
        """Set what can be set here; which those are."""
        held = []
        for name, value in limits.items():
            text = f"{int(value * _CPU_PERIOD_US)} {_CPU_PERIOD_US}" if name == "cpu" else str(int(value))
            file = self.path / f"{name}.max"
            if name in _CONTROLLERS and file.exists():
                write(file, text)
                held.append(name)
        if "memory" in held:
            # The limit is of the whole tree, and so is its end: half a tree is of no use to anybody.
            for file, text in ((self.path / "memory.oom.group", "1"), (self.path / "memory.swap.max", "0")):
                with contextlib.suppress(OSError):
                    write(file, text)
        return held

    def remove(self) -> bool:
        """Whether it is gone."""
        for path in self._paths():
            try:
                path.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True

    def _paths(self) -> list[Path]:
        """Itself and all below it, deepest first."""
        return [Path(path) for path, _, _ in os.walk(self.path, topdown=False)]


class Groups:
    """The groups of one home, below one of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls, name: str) -> Groups | None:
        """Below the group that this process is in, or at the top; None where neither can be written."""
        for parent in _parents():
            try:
                (parent / name).mkdir(exist_ok=True)
                _try_member(parent / name)
            except OSError:
                with contextlib.suppress(OSError):
                    (parent / name).rmdir()
                continue
            for path in (parent, parent / name):
                _hand_on(path)
            _bound(parent / name, together.of_all())
            return cls(parent / name)
        return None

    def group(self, name: str, tenant: str) -> Group:
        """Make a group in that of its tenant, which has bounds of its own and a share of the processor."""
        folder = self.path / tenant
        if not folder.is_dir():
            folder.mkdir()
            _hand_on(folder)
            _bound(folder, together.of_one())
        (folder / name).mkdir()
        return Group(folder / name)

    def forget(self, tenant: str) -> None:
        """Remove the group of a tenant that has nothing in it any more."""
        with contextlib.suppress(OSError):
            (self.path / tenant).rmdir()

    def left_over(self) -> list[Group]:
        if not self.path.is_dir():
            return []
        return [Group(path) for path in self.path.iterdir() if path.is_dir()]

    def remove(self) -> bool:
        return Group(self.path).remove()


def limited(name: str, limits: dict[str, float]) -> tuple[Group, list[str]] | None:
    """Make a group that holds limits, and say which. None: none of them can be held here."""
    for parent in _parents():
        group = Group(parent / name)
        try:
            group.path.mkdir()
            if held := group.limit(limits):
                return group, held
        except OSError:
            pass
        group.remove()
    return None


def _hand_on(path: Path) -> None:
    """Have the groups below one hold limits, as far as it can."""
    for controller in _CONTROLLERS:
        with contextlib.suppress(OSError):
            write(path / "cgroup.subtree_control", f"+{controller}")


def _bound(path: Path, bounds: dict[str, float]) -> None:
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
    """That a directory can be made does not mean that a process can be moved into it: try one."""
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
