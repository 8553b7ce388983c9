"""Finds the options that an engine needs on this host, by running containers that have only the host's own shell.

Podman can run a folder, so that no image is needed. Docker cannot; its client has no such options either, so its daemon
is asked.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from rota.runtime.container.client import PATH, EngineOutput, run_program
from rota.runtime.container.dialect import PODMAN, Facts, base, in_gvisor
from rota.runtime.container.removal import EngineFailed, remove
from rota.runtime.sandbox import system

TRIAL_SECONDS_MAX = 20
QUESTION_SECONDS_MAX = 20
TRIALS_SECONDS_MAX = 60
"""The most that all trials together take."""
OCI_RUNTIMES = ("crun", "runc")
RUNSC = "runsc"
NO_RUNSC = "there is no runsc; install gVisor, which is the package runsc of some systems"
KERNEL = "/proc/version"
CGROUP_MANAGERS = ("cgroupfs", "systemd")
# A host may forbid more than a limit of its own; these are tried in this order.
ULIMITS_MAX = (resource.RLIM_INFINITY, 1 << 15, 1 << 12, 1 << 10)
RLIMIT_WORD = "rlimit"
"""A word in the error of any OCI runtime that is not allowed to set an rlimit."""
MEMORY_BYTES, CPU_PERCENT = 256 << 20, 50
SAYING = "inside"
INFO = "{{.Version.Version}} {{.Host.OCIRuntime.Path}} {{.Host.Conmon.Path}}"
SELINUX = "/sys/fs/selinux/enforce"
# Prints the kernel and the limits as seen from inside, with cgroups of either version.
SEE = f"""
echo {SAYING}
read -r kernel < {KERNEL}; echo "$kernel"
for file in memory.max memory/memory.limit_in_bytes cpu.max cpu*/cpu.cfs_quota_us; do
  for found in /sys/fs/cgroup/$file; do if [ -r $found ]; then read -r value < $found; echo $value; fi; done
done
"""


class TrialResult(NamedTuple):
    """The result of a trial."""

    said: EngineOutput
    holds_memory: bool
    holds_cpus: bool

    @property
    def ok(self) -> bool:
        return self.said.code == 0 and self.said.out.startswith(SAYING)


async def try_podman(program: str) -> Facts | str:
    """Return the facts of a podman that works, or why none does."""
    with tempfile.TemporaryDirectory(prefix="rota-container-", ignore_cleanup_errors=True) as folder:
        container = _TrialContainer(Path(folder))
        facts = await _working(program, container)
        if isinstance(facts, str):
            return facts
        both = await container.run(facts, memory=True, cpus=True)
        memory, cpus = both, both
        if not both.ok:
            # A limit that cannot be held must not hide the other one.
            memory, cpus = await container.run(facts, memory=True), await container.run(facts, cpus=True)
        facts = await _with_gvisor(facts, container)
    return replace(facts, holds_memory=memory.ok and memory.holds_memory, holds_cpus=cpus.ok and cpus.holds_cpus)


async def _with_gvisor(facts: Facts, container: _TrialContainer) -> Facts:
    """Look for gVisor. It works if a container sees another kernel than the host's."""
    program = shutil.which(RUNSC, path=f"{os.environ.get('PATH', '')}:{PATH}")
    if program is None:
        return replace(facts, no_gvisor=NO_RUNSC)
    result = await container.run(replace(facts, gvisor=program))
    if not result.ok:
        return replace(facts, no_gvisor=f"{program} cannot run a container: {result.said.failure}")
    if _kernel() in result.said.out:
        return replace(facts, no_gvisor=f"{program} runs containers with the kernel of the host")
    return replace(facts, gvisor=program)


async def _working(program: str, container: _TrialContainer) -> Facts | str:
    """Try options, the defaults first. Return the first that work, or the error of the first trial."""
    first = ""
    latest = time.monotonic() + TRIALS_SECONDS_MAX
    for options in _options():
        info = await run_program(
            [program, *PODMAN.options, *options, "info", f"--format={INFO}"], seconds_max=QUESTION_SECONDS_MAX
        )
        if info.code != 0:
            first = first or info.failure
            continue
        version, oci_runtime, monitor = info.out.split()
        facts = Facts(
            engine="podman",
            program=program,
            version=version,
            options=options,
            is_rootless=os.geteuid() != 0,
            needs_relabel=_has_selinux(),
            oci_runtime=oci_runtime,
            monitor=monitor,
        )
        for ulimits in _ulimits():
            if time.monotonic() > latest:
                return first
            facts = replace(facts, run_options=ulimits)
            result = await container.run(facts)
            if result.ok:
                return facts
            first = first or result.said.failure
            if RLIMIT_WORD not in result.said.err.lower():
                break
    return first


def _kernel() -> str:
    return Path(KERNEL).read_text().strip()


def _has_selinux() -> bool:
    return os.path.exists(SELINUX)


def _options() -> Iterator[tuple[str, ...]]:
    found = [shutil.which(name, path=f"{os.environ.get('PATH', '')}:{PATH}") for name in OCI_RUNTIMES]
    runtimes = [(), *((f"--runtime={path}",) for path in found if path)]
    managers = [(), *((f"--cgroup-manager={name}",) for name in CGROUP_MANAGERS)]
    return ((*runtime, *manager) for runtime, manager in itertools.product(runtimes, managers))


def _ulimits() -> Iterator[tuple[str, ...]]:
    yield ()
    for most in ULIMITS_MAX:
        kinds = (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
        values = [(name, _at_most(resource.getrlimit(kind)[1], most)) for name, kind in kinds]
        yield tuple(f"--ulimit={name}={value}:{value}" for name, value in values)


def _at_most(value: int, most: int) -> int:
    """Return the smaller limit; -1 means unlimited."""
    return min(value, most) if resource.RLIM_INFINITY not in (value, most) else max(value, most)


class _TrialContainer:
    """Runs trial containers from a folder that has the host's own programs and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "root"
        self._root.mkdir()
        self._binds = [place for place in system.SYSTEM if os.path.isdir(place)]
        self._shell = os.path.realpath(shutil.which("sh", path=PATH) or "/bin/sh")
        for place in system.MERGED:
            if os.path.islink(place):
                (self._root / place.lstrip("/")).symlink_to(os.readlink(place))
            elif os.path.isdir(place):
                self._binds.append(place)

    async def run(self, facts: Facts, *, memory: bool = False, cpus: bool = False) -> TrialResult:
        name = f"rota-trial-{uuid.uuid4().hex}"
        limits = [f"--memory={MEMORY_BYTES}"] * memory + [f"--cpus={CPU_PERCENT / 100}"] * cpus
        binds = [f"--mount=type=bind,source={place},target={place},readonly" for place in self._binds]
        began = [*base(facts), *(in_gvisor(facts, "none") if facts.gvisor else ())]
        said = await run_program(
            [*began, "run", "--rm", f"--name={name}", "--network=none", "--log-driver=none",
             "--security-opt=no-new-privileges", "--security-opt=label=disable", *facts.run_options, *limits, *binds,
             "--rootfs", str(self._root), self._shell, "-c", SEE],
            seconds_max=TRIAL_SECONDS_MAX,
        )  # fmt: skip
        if said.code != 0:
            # The engine may have recorded it.
            with contextlib.suppress(EngineFailed):
                await remove(facts, name)
        values = said.out.split()
        return TrialResult(said, str(MEMORY_BYTES) in values, str(CPU_PERCENT * 1000) in values)


class _Info(msgspec.Struct):
    """The used fields of `docker info`."""

    ServerVersion: str = ""
    MemoryLimit: bool = False
    CpuCfsQuota: bool = False
    SecurityOptions: list[str] | None = None


async def ask_docker(program: str) -> Facts | str:
    """Return the facts that docker's daemon reports, or why it cannot be used."""
    said = await run_program([program, "info", "--format={{json .}}"], seconds_max=QUESTION_SECONDS_MAX)
    try:
        info = msgspec.json.decode(said.out, type=_Info)
    except msgspec.MsgspecError:
        return said.failure
    if said.code != 0 or not info.ServerVersion:
        return EngineOutput(said.code, "", said.err).failure
    return Facts(
        engine="docker",
        program=program,
        version=info.ServerVersion,
        holds_memory=info.MemoryLimit,
        holds_cpus=info.CpuCfsQuota,
        is_rootless=any("rootless" in option for option in info.SecurityOptions or ()),
        no_gvisor="it takes podman, and this is docker",
    )
