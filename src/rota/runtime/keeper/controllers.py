"""Limits of trees of processes where the controllers are those of cgroup version 1."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rota.runtime.keeper.cgroup import write

_CPU_PERIOD_US = 100_000
_FILES = {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.cfs_quota_us"}
"""The file that holds a limit, by the controller, which has the name of the limit."""


class Held:
    """The groups of one child, one of each controller that holds a limit of it."""

    def __init__(self) -> None:
        self.paths: dict[str, Path] = {}

    @property
    def procs_files(self) -> list[str]:
        return [str(path / "cgroup.procs") for path in self.paths.values()]

    def was_out_of_memory(self) -> bool:
        path = self.paths.get("memory")
        try:
            said = (path / "memory.oom_control").read_text().splitlines() if path is not None else []
        except OSError:
            return False
        return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in said)

    def remove(self) -> bool:
        """Remove the groups, and report whether they are gone."""
        for name, path in list(self.paths.items()):
            try:
                path.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return False
            del self.paths[name]
        return True


class Controllers:
    """The controllers of version 1 in which this process can make groups: a folder of its own in each."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders

    @classmethod
    def make(cls, name: str) -> Controllers:
        """Make a folder in each, below the group that this process is in. There may be none."""
        folders = {}
        for controller, parent in _parents().items():
            folder = parent / name
            try:
                folder.mkdir(exist_ok=True)
                if os.access(folder / _FILES[controller], os.W_OK):
                    folders[controller] = folder
            except OSError:
                continue
        made = cls(folders)
        made.sweep()
        return made

    def hold(self, name: str, limits: dict[str, float]) -> Held:
        """Make groups that hold what they can of these limits. What cannot be held is left out."""
        held = Held()
        for limit, value in limits.items():
            if limit not in self.folders:
                continue
            path = self.folders[limit] / name
            try:
                path.mkdir(exist_ok=True)
                if limit == "cpu":
                    write(path / "cpu.cfs_period_us", str(_CPU_PERIOD_US))
                write(path / _FILES[limit], str(int(value * _CPU_PERIOD_US) if limit == "cpu" else int(value)))
            except OSError:
                with contextlib.suppress(OSError):
                    path.rmdir()
                continue
            held.paths[limit] = path
            if limit == "memory":
                # Swap would only put its end off. Not every kernel counts it.
                with contextlib.suppress(OSError):
                    write(path / "memory.memsw.limit_in_bytes", str(int(value)))
        return held

    def sweep(self) -> None:
        """Remove groups that nothing is in: of an earlier keeper."""
        for folder in self.folders.values():
            for path in folder.iterdir():
                if path.is_dir():
                    with contextlib.suppress(OSError):
                        path.rmdir()

    def remove(self) -> None:
        self.sweep()
        for folder in self.folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _parents() -> dict[str, Path]:
    """The group that this process is in, by controller."""
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        own |= dict.fromkeys(names.split(","), path)
    found = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        for controller in _FILES if kind == "cgroup" else ():
            if controller in options.split(",") and controller not in found:
                top = Path(point.replace("\\040", " "))
                below = top / own.get(controller, "/").lstrip("/")
                found[controller] = below if ".." not in below.parts and below.is_dir() else top
    return found
