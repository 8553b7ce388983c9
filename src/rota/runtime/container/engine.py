"""Podman or docker, as it works on this host: commands of containers, images and removal."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from rota.runtime.container import removal
from rota.runtime.container.client import environment, run_program
from rota.runtime.container.dialect import DIALECTS, Facts, base, in_gvisor
from rota.runtime.container.environment import passed_environment
from rota.runtime.container.images import Images, check_reference
from rota.runtime.container.removal import EngineFailed
from rota.runtime.interface import Order, Refused, Subject
from rota.runtime.sandbox import Command

__all__ = ["Engine", "EngineFailed", "container_name"]

HOME_LABEL, INSTANCE_LABEL = "rota.dev/home", "rota.dev/instance"
HOSTNAME_CHARS_MAX = 63
# With these the entrypoints of common images own their files and become an ordinary user, and servers listen on low
# ports. Other capabilities that engines give by default, as for raw sockets on the host's network, are dropped.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
IS_RUNNING = "{{.State.Running}}"
PID = "{{.State.Pid}}"
INSPECT_SECONDS_MAX = 10
GVISOR_PIDS = 128
"""Processes and threads of gVisor's own kernel, at most about."""
# The user of an image is not known here, and must be able to write to its storage.
STORAGE_MODE = 0o777

NAME_CHARS_MAX = 63
HASH_CHARS = 16
PREFIX = "rota"

Bound = tuple[Path, str]
"""A folder of the host, and its path in the container."""


class Engine:
    """Podman or docker, with the options that it needs on this host."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.name = facts.engine
        self._dialect = DIALECTS[facts.engine]
        self._images = Images(facts)

    async def ensure_image(self, reference: str, *, pulls: bool = True, tenant: str = "") -> None:
        """Return when an image is on this host; pull it if it is missing. Raises `Refused` with ImageUnavailable.

        pulls   whether it may be pulled
        tenant  the tenant whose share of pulls it counts for
        """
        await self._images.ensure(reference, pulls=pulls, tenant=tenant)

    def command(
        self,
        order: Order,
        *,
        name: str,
        home_label: str,
        storage: Bound | None = None,
        volumes: Sequence[Bound] = (),
    ) -> Command:
        """Return the command that runs the container of an order in the foreground. Raises `Refused`.

        name        the name of the container; a container that had it before must be removed already
        home_label  the label by which `listed` finds it
        storage     the folder that it may write to; its mode is opened for any user, so the home must keep others out
        volumes     folders that it sees read-only; each must be readable for any user

        An order without argv runs the command of the image.
        """
        check_reference(order.image)
        if order.isolation == "gvisor" and not self.facts.gvisor:
            raise Refused("NotIsolated", f"isolation gvisor was asked for: {self.facts.no_gvisor}")
        env = passed_environment(order.env)
        if storage is not None:
            storage[0].chmod(STORAGE_MODE)
        instance = f"{order.subject.namespace}/{order.subject.name}"
        argv = [
            *env.launcher,
            *base(self.facts),
            *(in_gvisor(self.facts, order.network) if order.isolation == "gvisor" else ()),
            "run",
            "--rm",
            f"--name={name}",
            f"--label={HOME_LABEL}={home_label}",
            f"--label={INSTANCE_LABEL}={instance}",
            f"--hostname={order.subject.name[:HOSTNAME_CHARS_MAX]}",
            f"--network={order.network}",
            # Rota pulls images itself, for a bounded time; the keeper keeps the output, within bounds; Rota probes.
            "--pull=never",
            "--log-driver=none",
            "--no-healthcheck",
            "--security-opt=no-new-privileges",
            "--cap-drop=ALL",
            *(f"--cap-add={capability}" for capability in CAPABILITIES),
            *self._dialect.run,
            *self.facts.run_options,
            *self._limits(order),
            *self._mounts(storage, volumes),
            *env.options,
            *([f"--workdir={order.working_dir}"] if order.working_dir else ()),
            # An entrypoint of the image would take the command for its arguments.
            *(["--entrypoint="] if order.argv and not order.keeps_entrypoint else ()),
            order.image,
            *order.argv,
        ]
        return Command(argv, {**environment(), **env.env})

    def exec_command(
        self, name: str, argv: Sequence[str], *, tty: bool, env: Mapping[str, str], cwd: str = ""
    ) -> Command:
        """Return the command that runs `argv` in a container on its own streams; with `tty` these are a terminal.

        When it is killed, `argv` runs on until the container ends.
        """
        brought = passed_environment(env)
        options = ["--interactive", *(["--tty"] if tty else ()), *([f"--workdir={cwd}"] if cwd else ())]
        made = [*brought.launcher, *base(self.facts), "exec", *options, *brought.options, name, *argv]
        return Command(made, {**environment(), **brought.env})

    def unmet(self, order: Order) -> list[str]:
        """Return the limits of an order that are not held on this host."""
        held = self.facts.holds_memory, self.facts.holds_cpus, self.facts.holds_memory
        wanted = ("memory", order.memory_bytes), ("cpu", order.cpus), ("pids", order.pids)
        return [what for (what, limit), is_held in zip(wanted, held, strict=True) if limit and not is_held]

    async def is_running(self, name: str) -> bool:
        """Report whether a container exists, and its program has been started."""
        asked = [*base(self.facts), "container", "inspect", f"--format={IS_RUNNING}", name]
        said = await run_program(asked, seconds_max=INSPECT_SECONDS_MAX)
        return said.code == 0 and said.out.strip() == "true"

    async def pid(self, name: str) -> int | None:
        """Return the pid of a container's first process on this host, or None if it has none."""
        asked = [*base(self.facts), "container", "inspect", f"--format={PID}", name]
        said = await run_program(asked, seconds_max=INSPECT_SECONDS_MAX)
        text = said.out.strip()
        return int(text) if said.code == 0 and text.isdigit() and text != "0" else None

    async def ask_to_end(self, name: str) -> bool:
        """Send a container the stop signal of its image. Report whether there was one. Does not wait for its end."""
        return await removal.ask_to_end(self.facts, name)

    async def remove(self, name: str) -> None:
        """Kill and remove a container. When this returns, nothing of it is left. Raises `EngineFailed`."""
        await removal.remove(self.facts, name)

    async def listed(self, home_label: str) -> list[str]:
        """Return the names of all containers of a home, whatever their state. Raises `EngineFailed`."""
        return await removal.names(self.facts, f"label={HOME_LABEL}={home_label}")

    def _limits(self, order: Order) -> Iterator[str]:
        if order.memory_bytes and self.facts.holds_memory:
            yield f"--memory={order.memory_bytes}"
        if order.cpus and self.facts.holds_cpus:
            yield f"--cpus={order.cpus:g}"
        # Cgroups that can limit memory can limit processes. Without them the engine would refuse to start it.
        if order.pids and self.facts.holds_memory:
            own = GVISOR_PIDS if order.isolation == "gvisor" else 0
            yield f"--pids-limit={order.pids + own}"

    def _mounts(self, storage: Bound | None, volumes: Sequence[Bound]) -> Iterator[str]:
        if storage is not None:
            yield self._mount(storage)
        for volume in volumes:
            yield self._mount(volume, "readonly")

    def _mount(self, bound: Bound, *options: str) -> str:
        source, target = bound
        path = PurePosixPath(target)
        if not path.is_absolute() or ".." in path.parts or len(path.parts) < 2 or "\0" in target:
            raise Refused("ConfigurationError", f"{target!r} must be an absolute path without '..', and not the root")
        relabelled = [self._dialect.relabelled] if self.facts.needs_relabel and self._dialect.relabelled else []
        # Both engines parse it as CSV: a comma in a path would begin another option.
        line = io.StringIO()
        fields = ["type=bind", f"source={source}", f"target={target}", *options, *relabelled]
        csv.writer(line, lineterminator="").writerow(fields)
        return f"--mount={line.getvalue()}"


def container_name(subject: Subject, container: str) -> str:
    """Return the name of a container of an Instance. The uid is part of it: a namesake's container has another name."""
    tail = hashlib.sha256("/".join((*subject, container)).encode()).hexdigest()[:HASH_CHARS]
    readable = f"{PREFIX}-{subject.name}-{container}"[: NAME_CHARS_MAX - HASH_CHARS - 1]
    return f"{readable}-{tail}"
