"""Limits of process trees by the controllers of cgroup version 1."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rota.runtime.keeper.cgroup import host_bounds, tenant_bounds, write

_CPU_PERIOD_US = 100_000
_FILES = {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.cfs_quota_us"}
"""The file that holds a limit, by controller; limits are named after their controllers."""


class ControllerGroups:
    """The version 1 cgroups of one child: one for each controller that enforces one of its limits."""

    def __init__(self) -> None:
        self.paths: dict[str, Path] = {}
        self.share: Path | None = None
        """The cgroup of a child without a CPU limit: it has one share of the processor in all, not one per process."""

    @property
    def procs_files(self) -> list[str]:
        return [str(path / "cgroup.procs") for path in (*self.paths.values(), *([self.share] if self.share else ()))]

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
            if not _removed(path):
                return False
            del self.paths[name]
        if self.share is not None and not _removed(self.share):
            return False
        self.share = None
        return True


class Controllers:
    """The version 1 controllers in which this process can make cgroups, each with a folder for them."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders

    @classmethod
    def make(cls, name: str) -> Controllers:
        """Make a folder in each usable controller, below the cgroup of this process. No controller may be usable."""
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
        for controller, folder in folders.items():
            _set_bounds(controller, folder, host_bounds())
        return made

    def hold(self, name: str, limits: dict[str, float], *, tenant: str) -> ControllerGroups:
        """Make cgroups that enforce as many of these limits as possible, and skip the others.

        They are inside the tenant's cgroup, which has limits of its own. Every tenant has the same share of the
        processor; all tenants together have the share of one process of the server.
        """
        held = ControllerGroups()
        for controller, folder in self.folders.items():
            if not (folder / tenant).is_dir():
                with contextlib.suppress(OSError):
                    (folder / tenant).mkdir()
                    _set_bounds(controller, folder / tenant, tenant_bounds())
        if "cpu" in self.folders and "cpu" not in limits:
            share = self.folders["cpu"] / tenant / name
            with contextlib.suppress(OSError):
                share.mkdir(exist_ok=True)
                held.share = share
        for limit, value in limits.items():
            if limit not in self.folders:
                continue
            path = self.folders[limit] / tenant / name
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
                # Swap would only delay the kill. Not every kernel counts it.
                with contextlib.suppress(OSError):
                    write(path / "memory.memsw.limit_in_bytes", str(int(value)))
        return held

    def sweep(self) -> None:
        """Remove empty cgroups that an earlier keeper left."""
        for folder in self.folders.values():
            for path, _, _ in os.walk(folder, topdown=False):
                if Path(path) != folder:
                    with contextlib.suppress(OSError):
                        os.rmdir(path)

    def remove(self) -> None:
        self.sweep()
        for folder in self.folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _set_bounds(controller: str, folder: Path, bounds: dict[str, float]) -> None:
    if controller in bounds:
        with contextlib.suppress(OSError):
            write(folder / _FILES[controller], str(int(bounds[controller])))


def _removed(path: Path) -> bool:
    """Remove a cgroup, and its tenant's if it was the last one there. Report whether it is gone."""
    try:
        path.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        return False
    with contextlib.suppress(OSError):
        path.parent.rmdir()
    return True


def _parents() -> dict[str, Path]:
    """Return the cgroup of this process, by controller."""
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
