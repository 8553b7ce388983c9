"""Finding out what an engine needs on this host, by running containers with nothing in them but the host's own shell.

Podman runs a folder as it is, so that no image is needed and none is made. Docker cannot, and leaves nothing for a
client to choose either: its daemon is asked.
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

from rota.runtime.container.client import PATH, Said, ask
from rota.runtime.container.dialect import PODMAN, base, in_gvisor
from rota.runtime.container.facts import Facts
from rota.runtime.container.removal import EngineFailed, remove
from rota.runtime.sandbox import system

TRIAL_SECONDS_MAX = 20
QUESTION_SECONDS_MAX = 20
TRIALS_SECONDS_MAX = 60
"""After this, nothing further is tried."""
OCI_RUNTIMES = ("crun", "runc")
RUNSC = "runsc"
NO_RUNSC = "there is no runsc; install gVisor, which is the package runsc of some systems"
KERNEL = "/proc/version"
CGROUP_MANAGERS = ("cgroupfs", "systemd")
# A host may let nobody have more than is set; what exactly it allows is between these.
ULIMITS_MAX = (resource.RLIM_INFINITY, 1 << 15, 1 << 12, 1 << 10)
RLIMIT_WORD = "rlimit"
"""In what every OCI runtime says when it may not set one."""
MEMORY_BYTES, CPU_PERCENT = 256 << 20, 50
SAYING = "inside"
INFO = "{{.Version.Version}} {{.Host.OCIRuntime.Path}} {{.Host.Conmon.Path}}"
SELINUX = "/sys/fs/selinux/enforce"
# What the limits look like from inside, with cgroups of either version.
SEE = f"""
echo {SAYING}
read -r kernel < {KERNEL}; echo "$kernel"
for file in memory.max memory/memory.limit_in_bytes cpu.max cpu*/cpu.cfs_quota_us; do
  for found in /sys/fs/cgroup/$file; do if [ -r $found ]; then read -r value < $found; echo $value; fi; done
done
"""


class Seen(NamedTuple):
    """What a trial came to."""

    said: Said
    holds_memory: bool
    holds_cpus: bool

    @property
    def ok(self) -> bool:
        return self.said.code == 0 and self.said.out.startswith(SAYING)


async def try_podman(program: str) -> Facts | str:
    """What it takes, or why it cannot be had."""
    with tempfile.TemporaryDirectory(prefix="rota-container-", ignore_cleanup_errors=True) as folder:
        box = _Box(Path(folder))
        facts = await _working(program, box)
        if isinstance(facts, str):
            return facts
        both = await box.run(facts, memory=True, cpus=True)
        memory, cpus = both, both
        if not both.ok:
            # One that cannot be had must not take the other with it.
            memory, cpus = await box.run(facts, memory=True), await box.run(facts, cpus=True)
        facts = await _with_gvisor(facts, box)
    return replace(facts, holds_memory=memory.ok and memory.holds_memory, holds_cpus=cpus.ok and cpus.holds_cpus)


async def _with_gvisor(facts: Facts, box: _Box) -> Facts:
    """Look for gVisor, and believe that it works when a container has another kernel than the host."""
    program = shutil.which(RUNSC, path=f"{os.environ.get('PATH', '')}:{PATH}")
    if program is None:
        return replace(facts, no_gvisor=NO_RUNSC)
    seen = await box.run(replace(facts, gvisor=program))
    if not seen.ok:
        return replace(facts, no_gvisor=f"{program} cannot run a container: {seen.said.words}")
    if _kernel() in seen.said.out:
        return replace(facts, no_gvisor=f"{program} runs containers with the kernel of the host")
    return replace(facts, gvisor=program)


async def _working(program: str, box: _Box) -> Facts | str:
    """The first way that works, the least peculiar first; else what was said to the very first."""
    first = ""
    latest = time.monotonic() + TRIALS_SECONDS_MAX
    for options in _options():
        info = await ask(
            [program, *PODMAN.options, *options, "info", f"--format={INFO}"], seconds_max=QUESTION_SECONDS_MAX
        )
        if info.code != 0:
            first = first or info.words
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
            seen = await box.run(facts)
            if seen.ok:
                return facts
            first = first or seen.said.words
            if RLIMIT_WORD not in seen.said.err.lower():
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
    """The smaller one, where the kernel's -1 is more than any number."""
    return min(value, most) if resource.RLIM_INFINITY not in (value, most) else max(value, most)


class _Box:
    """A folder in which containers say something and end: the host's own programs, and nothing else."""

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

    async def run(self, facts: Facts, *, memory: bool = False, cpus: bool = False) -> Seen:
        name = f"rota-trial-{uuid.uuid4().hex}"
        limits = [f"--memory={MEMORY_BYTES}"] * memory + [f"--cpus={CPU_PERCENT / 100}"] * cpus
        binds = [f"--mount=type=bind,source={place},target={place},readonly" for place in self._binds]
        began = [*base(facts), *(in_gvisor(facts, "none") if facts.gvisor else ())]
        said = await ask(
            [*began, "run", "--rm", f"--name={name}", "--network=none", "--log-driver=none",
             "--security-opt=no-new-privileges", "--security-opt=label=disable", *facts.run_options, *limits, *binds,
             "--rootfs", str(self._root), self._shell, "-c", SEE],
            seconds_max=TRIAL_SECONDS_MAX,
        )  # fmt: skip
        if said.code != 0:
            # It may have got as far as to be known.
            with contextlib.suppress(EngineFailed):
                await remove(facts, name)
        values = said.out.split()
        return Seen(said, str(MEMORY_BYTES) in values, str(CPU_PERCENT * 1000) in values)


class _Info(msgspec.Struct):
    """Of what docker's daemon says about itself: what matters here."""

    ServerVersion: str = ""
    MemoryLimit: bool = False
    CpuCfsQuota: bool = False
    SecurityOptions: list[str] | None = None


async def ask_docker(program: str) -> Facts | str:
    """What the daemon says it can do, or why there is none to be had."""
    said = await ask([program, "info", "--format={{json .}}"], seconds_max=QUESTION_SECONDS_MAX)
    try:
        info = msgspec.json.decode(said.out, type=_Info)
    except msgspec.MsgspecError:
        return said.words
    if said.code != 0 or not info.ServerVersion:
        return Said(said.code, "", said.err).words
    return Facts(
        engine="docker",
        program=program,
        version=info.ServerVersion,
        holds_memory=info.MemoryLimit,
        holds_cpus=info.CpuCfsQuota,
        is_rootless=any("rootless" in option for option in info.SecurityOptions or ()),
        no_gvisor="it takes podman, and this is docker",
    )
