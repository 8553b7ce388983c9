"""An engine that works on this host, and what can be had from it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from rota.runtime.container import removal
from rota.runtime.container.client import ask, environment
from rota.runtime.container.dialect import DIALECTS, base, in_gvisor
from rota.runtime.container.environment import carried
from rota.runtime.container.facts import Facts
from rota.runtime.container.images import Images, check_reference
from rota.runtime.container.removal import EngineFailed
from rota.runtime.interface import Order, Refused
from rota.runtime.sandbox import Command

__all__ = ["Engine", "EngineFailed"]

HOME_LABEL, INSTANCE_LABEL = "rota.dev/home", "rota.dev/instance"
HOSTNAME_CHARS_MAX = 63
# With these the entrypoints of common images take what is theirs and become an ordinary user, and servers listen on
# the ports they are known by. What else an engine gives by default, raw sockets on the host's network among it, is not.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
IS_RUNNING = "{{.State.Running}}"
PID = "{{.State.Pid}}"
INSPECT_SECONDS_MAX = 10
GVISOR_PIDS = 128
"""What gVisor's own kernel has of processes and threads, at most about."""
# The user of an image is not known here, and its storage is for it to write to.
STORAGE_MODE = 0o777

Bound = tuple[Path, str]
"""A folder of the host, and the place it has inside."""


class Engine:
    """Podman or docker, told what it needs here."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.name = facts.engine
        self._dialect = DIALECTS[facts.engine]
        self._images = Images(facts)

    async def ensure_image(self, reference: str, *, pulls: bool = True, tenant: str = "") -> None:
        """Returns when an image is on this host; `pulls` it if need be. Raises `Refused`: ImageUnavailable.

        tenant  in whose turn it is pulled
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
        """The command that is the container of an order, as long as it runs.

        name        what it is called; whoever had the name before is removed already
        home_label  by which `listed` finds it
        storage     what it may write to; its folder is opened to any user, and the home must keep everybody else out
        volumes     what else it sees, read-only; each must be readable for any user

        To order no command is to have the image's own. Raises `Refused` for what cannot be said to an engine.
        """
        check_reference(order.image)
        if order.isolation == "gvisor" and not self.facts.gvisor:
            raise Refused("NotIsolated", f"isolation gvisor was asked for: {self.facts.no_gvisor}")
        env = carried(order.env)
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
            # The image was looked for before, for a bounded time; the keeper has the output, with bounds of its own;
            # probes are Rota's.
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
        """The command that runs `argv` in a container, on the streams it is given; with `tty` these are a terminal.

        When it is killed, what it runs goes on, until the container ends.
        """
        brought = carried(env)
        options = ["--interactive", *(["--tty"] if tty else ()), *([f"--workdir={cwd}"] if cwd else ())]
        made = [*brought.launcher, *base(self.facts), "exec", *options, *brought.options, name, *argv]
        return Command(made, {**environment(), **brought.env})

    def unmet(self, order: Order) -> list[str]:
        """The limits of an order that are not held on this host."""
        held = self.facts.holds_memory, self.facts.holds_cpus, self.facts.holds_memory
        wanted = ("memory", order.memory_bytes), ("cpu", order.cpus), ("pids", order.pids)
        return [what for (what, limit), is_held in zip(wanted, held, strict=True) if limit and not is_held]

    async def is_running(self, name: str) -> bool:
        """Whether a container is there, and what it runs has been started."""
        asked = [*base(self.facts), "container", "inspect", f"--format={IS_RUNNING}", name]
        said = await ask(asked, seconds_max=INSPECT_SECONDS_MAX)
        return said.code == 0 and said.out.strip() == "true"

    async def pid(self, name: str) -> int | None:
        """Return the process that a container runs, as this host knows it. None: it runs none."""
        asked = [*base(self.facts), "container", "inspect", f"--format={PID}", name]
        said = await ask(asked, seconds_max=INSPECT_SECONDS_MAX)
        text = said.out.strip()
        return int(text) if said.code == 0 and text.isdigit() and text != "0" else None

    async def ask_to_end(self, name: str) -> bool:
        """Ask a container to end, as its image wants to be asked; whether there was one. It may take its time."""
        return await removal.ask_to_end(self.facts, name)

    async def remove(self, name: str) -> None:
        """End and remove a container at once. When this returns nothing of it is left. Raises `EngineFailed`."""
        await removal.remove(self.facts, name)

    async def listed(self, home_label: str) -> list[str]:
        """The names of all containers of a home, whatever their state. Raises `EngineFailed`."""
        return await removal.names(self.facts, f"label={HOME_LABEL}={home_label}")

    def _limits(self, order: Order) -> Iterator[str]:
        if order.memory_bytes and self.facts.holds_memory:
            yield f"--memory={order.memory_bytes}"
        if order.cpus and self.facts.holds_cpus:
            yield f"--cpus={order.cpus:g}"
        # Where groups can hold memory they can count processes. Else the engine would refuse to start it.
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
        # Fields of CSV, to both engines: a comma in a path would otherwise be the beginning of an option.
        line = io.StringIO()
        fields = ["type=bind", f"source={source}", f"target={target}", *options, *relabelled]
        csv.writer(line, lineterminator="").writerow(fields)
        return f"--mount={line.getvalue()}"
