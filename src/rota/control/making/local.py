"""The maker for this machine: processes and containers of a `Runtime`, with every reference resolved into values."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from rota.api import Condition, Instance
from rota.api.instance import Container
from rota.client import Key
from rota.control import networks
from rota.control.cells.fence import Fence
from rota.control.gate import status_of
from rota.control.holds.options import has_runner
from rota.control.instances import storage_name
from rota.control.instances.lifecycle import AVAILABLE, is_same_run
from rota.control.instances.names import owner_of, subject_of
from rota.control.making import ports
from rota.control.making.interface import Description, Observed, Obstacle
from rota.control.making.preparing import configuration, preparation
from rota.control.making.resolving import resolve
from rota.control.making.terminations import Terminations
from rota.control.unhonoured import of_template
from rota.engine.objects import Objects
from rota.runtime.interface import Order, Overuse, Owner, Refused, Run, Runtime, Subject
from rota.runtime.probes import Probes
from rota.runtime.runner.messages import Report
from rota.runtime.runners import Runners

ISOLATED = "Isolated"
BOUNDED = "StorageBounded"
MEASURED = "this host has no quota for folders, so it is measured every few seconds"
POLICY_GRACE_SECONDS_MAX = 5
"""Grace of an instance that has more network than the server's present policy allows."""
KILL = 9


class LocalMaker:
    """Runs instances with a runtime of this machine.

    `fence` limits how long this cell may run what its hub moves when the cell is lost.
    """

    copies_gates = False
    is_cluster = False

    def __init__(self, runtime: Runtime, runners: Runners | None = None, fence: Fence | None = None) -> None:
        self.runners = runners or Runners()
        self._runtime = runtime
        self._fence = fence
        self._probes = Probes(self._run_command)
        self._terminations = Terminations()
        self._wake: Callable[[Key], None] = lambda key: None
        self._ports: dict[Subject, dict[str, dict[str, int]]] = {}
        self._configured: dict[Subject, tuple[object, str]] = {}
        """The last configuration sent to each runner: the stream on which it was sent, and its digest."""
        self._overused: dict[Subject, Overuse] = {}
        """The limit that each instance exceeded, until it is gone. The runtime reports none after the end."""

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        def changed(subject: Subject) -> None:
            wake(_key(subject))

        self._wake = wake
        ends = [source.listen(changed) for source in (self._runtime, self.runners, self._probes)]
        if self._fence is not None:
            ends.append(self._fence.listen(wake))

        def stop() -> None:
            for end in ends:
                end()
            self._terminations.close()
            self._probes.stop()

        return stop

    # Reporting.

    def observe(self, obj: Instance) -> Observed:
        subject = subject_of(obj)
        overuse = self._runtime.overuse(subject)
        if overuse is not None:
            self._overused[subject] = overuse
        unready, unhealthy = self._health(subject, obj)
        return Observed(
            runs=dict(self._runtime.runs(subject)),
            report=self.runners.report(subject),
            unready=unready,
            unhealthy=unhealthy,
            overuse=self._overused.get(subject),
        )

    def _health(self, subject: Subject, obj: Instance) -> tuple[str, str]:
        """Return the reason why probes do not pass, and the container that has to be restarted because of a probe."""
        for container in _probed(obj):
            if (why := self._probes.must_restart(subject, container.name)) is not None:
                return why, container.name
            ready, why_not = self._probes.ready(subject, container.name)
            if not ready:
                return why_not, ""
        return "", ""

    def warnings(self, obj: Instance) -> Iterable[tuple[str, str]]:
        # Events only, never an answer to the instance: it must not learn which targets exist.
        return [
            ("EgressRefused", f"{one.host} port {one.port}: {one.why}")
            for one in self._runtime.refused(subject_of(obj))
        ]

    def describe(self, obj: Instance) -> Description:
        subject = subject_of(obj)
        network, allotted = networks.network_of(obj.spec, self._runtime.policy), self._ports.get(subject)
        return Description(
            addresses=ports.addresses(allotted, network) if allotted is not None else None,
            conditions=[*self._kept_apart(obj), *_bounded(obj)],
            unhonoured=of_template(obj.spec, "spec."),
            limits_unmet=_limits_unmet(obj, self._runtime.runs(subject)),
        )

    def _kept_apart(self, obj: Instance) -> list[Condition]:
        isolated, how = self._runtime.isolates(obj.spec.isolation, obj.spec.runtime)
        runs = self._runtime.runs(subject_of(obj))
        is_closed = bool(runs) and all(run.is_closed for run in runs.values())
        confined = networks.condition(obj, self._runtime.policy, isolated=isolated, is_closed=is_closed)
        if isolated:
            return [Condition(type=ISOLATED, status="True", reason=how), confined]
        return [Condition(type=ISOLATED, status="False", reason="NotSandboxed", message=how), confined]

    def storages(self) -> Iterable[tuple[str, Owner]]:
        return self._runtime.storages()

    async def drop_storage(self, namespace: str, owner: Owner) -> None:
        await self._runtime.drop_storage(namespace, owner)

    async def cpu_seconds(self, subjects: Collection[Subject]) -> Mapping[Subject, float]:
        return await self._runtime.cpu_seconds(subjects)

    # Making.

    def refusal(self, objects: Objects, obj: Instance) -> Obstacle | None:
        isolated, _ = self._runtime.isolates(obj.spec.isolation, obj.spec.runtime)
        why = networks.check(objects, obj, self._runtime.policy)
        why = why or networks.foreign_input(objects, obj, self._runtime.policy, isolated=isolated)
        return Obstacle("ConfigurationError", why) if why else None

    async def make(self, objects: Objects, obj: Instance, start: Collection[str] = ()) -> Observed:
        subject = subject_of(obj)
        for other in self._runtime.known(subject.namespace, subject.name):
            if other != subject:
                # Left by an earlier instance of this name whose deletion was missed.
                await self._runtime.stop(other, 0)
        refused = self.refusal(objects, obj)
        if refused is not None:
            if self._runtime.runs(subject) and networks.check(objects, obj, self._runtime.policy):
                # It was started under another policy.
                grace = min(obj.spec.termination_grace_period_seconds, POLICY_GRACE_SECONDS_MAX)
                await self._runtime.stop(subject, grace)
            return msgspec.structs.replace(self.observe(obj), obstacle=refused)
        try:
            network = networks.network_of(obj.spec, self._runtime.policy)
            self._ports[subject] = ports.allot(obj, self._taken(subject), network)
            await self._start_all(objects, obj, start)
            report, configured = await self._configure(objects, obj)
        except Refused as error:
            return msgspec.structs.replace(self.observe(obj), obstacle=Obstacle(error.reason, str(error)))
        self._follow(obj)
        return msgspec.structs.replace(self.observe(obj), report=report, configured=configured)

    def _taken(self, subject: Subject) -> set[int]:
        others = (each for whose, each in self._ports.items() if whose != subject)
        return {number for containers in others for named in containers.values() for number in named.values()}

    async def _start_all(self, objects: Objects, obj: Instance, start: Collection[str]) -> None:
        subject = subject_of(obj)
        for container in obj.spec.containers:
            run = self._runtime.runs(subject).get(container.name)
            if run is not None and run.exit is None:
                if obj.spec.volumes:
                    await self._runtime.update(resolve(objects, obj, container, policy=self._runtime.policy))
                continue
            if run is not None and container.name not in start:
                continue
            order = self._order(objects, obj, container, 0 if run is None else run.number + 1)
            await self._runtime.start(order)
            self.runners.forget(subject)  # The last runner has ended, and its version with it.
            left = self._lease_seconds(obj)
            if order.lease_seconds is None and left is not None:
                # The fence began to apply while the container was started.
                await self._runtime.extend({subject: left})

    def _order(self, objects: Objects, obj: Instance, container: Container, number: int = 0) -> Order:
        allotted = self._ports[subject_of(obj)][container.name]
        made = resolve(objects, obj, container, number, allotted, policy=self._runtime.policy)
        left = self._lease_seconds(obj)
        if left is None:
            return made
        if left <= 0:
            raise Refused("HubUnreachable", "it is moved when this cell is lost, so it runs only while the hub says so")
        return msgspec.structs.replace(made, lease_seconds=left)

    def _lease_seconds(self, obj: Instance) -> float | None:
        return self._fence.left(obj) if self._fence is not None else None

    async def _configure(self, objects: Objects, obj: Instance) -> tuple[Report | None, str]:
        """Send a runner its configuration, unless it has it. Returns the runner's report and the digest."""
        subject, container = subject_of(obj), obj.spec.containers[0]
        report, run = self.runners.report(subject), self._runtime.runs(subject)[container.name]
        if not has_runner(obj) or run.exit is not None or report is None or report.run != run.number:
            return report, ""
        prepared = preparation(objects, obj, self._order(objects, obj, container), self._runtime.policy)
        digest = prepared.digest()
        stream, sent = self._configured.get(subject, (None, ""))
        # A message on a stream that broke may never have arrived.
        if digest != (sent if stream is self.runners.stream(subject) else report.configured):
            message = await configuration(self._runtime, prepared, digest)
            if self.runners.send(subject, message):
                self._configured[subject] = (self.runners.stream(subject), digest)
        return report, digest

    # Probing.

    def _follow(self, obj: Instance) -> None:
        """Start the probes once all containers run."""
        subject = subject_of(obj)
        runs, before = self._runtime.runs(subject), status_of(obj)
        if any(run.exit is not None for run in runs.values()):
            return
        known = before.condition(AVAILABLE)
        was_ready = known is not None and known.status == "True"
        was_ready = was_ready and is_same_run(before, runs[obj.spec.containers[0].name])
        isolated, _ = self._runtime.isolates(obj.spec.isolation, obj.spec.runtime)
        network = networks.network_of(obj.spec, self._runtime.policy) if isolated else "host"
        for container in _probed(obj):
            self._probes.follow(subject, container, runs[container.name], network=network, was_ready=was_ready)

    async def _run_command(self, subject: Subject, container: str, argv: Sequence[str], seconds: float) -> int:
        """Run a probe's command and return its exit code. Raises TimeoutError."""
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            running = await self._runtime.exec(
                subject, container, argv, env={}, streams=(nothing, nothing, nothing), tty=False
            )
        finally:
            os.close(nothing)
        try:
            async with asyncio.timeout(seconds):
                return await running.wait()
        except BaseException:
            await running.signal(KILL)
            raise

    # Ending.

    async def renew(self, obj: Instance) -> bool:
        subject = subject_of(obj)
        for name, run in [*self._runtime.runs(subject).items()]:
            if run.exit is None:
                await self._runtime.end(subject, name, 0)
        return True

    def restart(self, obj: Instance, container: str) -> None:
        subject, grace = subject_of(obj), obj.spec.termination_grace_period_seconds
        self._terminations.begin((subject, container), lambda: self._runtime.end(subject, container, grace))

    async def discard(self, obj: Instance) -> None:
        await self._runtime.stop(subject_of(obj), 0)
        await self._drop_own_storage(obj)

    async def end(self, obj: Instance, grace_seconds: float, *, keep_storage: bool) -> bool:
        subject = subject_of(obj)
        is_over = await self._terminations.over(
            subject, lambda: self._runtime.stop(subject, grace_seconds), lambda: self._wake(_key(subject))
        )
        if is_over:
            self._forget(subject)
            if obj.spec.storage is not None and not keep_storage:
                await self._drop_own_storage(obj)
        return is_over

    async def gone(self, key: Key) -> None:
        for subject in self._runtime.known(*key):
            await self._runtime.stop(subject, 0)
        # Also for an instance that never ran, or whose finalizers were removed by hand.
        for subject in [one for one in {*self._ports, *self._overused} if _key(one) == key]:
            self._forget(subject)

    async def _drop_own_storage(self, obj: Instance) -> None:
        await self._runtime.drop_storage(obj.metadata.namespace, owner_of(obj), storage_name(obj))

    def _forget(self, subject: Subject) -> None:
        self.runners.forget(subject)
        self._probes.forget(subject)
        self._configured.pop(subject, None)
        self._overused.pop(subject, None)
        self._ports.pop(subject, None)


def _key(subject: Subject) -> Key:
    return Key(subject.namespace, subject.name)


def _probed(obj: Instance) -> Iterator[Container]:
    return (one for one in obj.spec.containers if one.readiness_probe is not None or one.liveness_probe is not None)


def _bounded(obj: Instance) -> list[Condition]:
    if obj.spec.storage is None:
        return []
    message = f"{MEASURED}: with more than {obj.spec.storage.size} the instance is ended and its storage removed"
    return [Condition(type=BOUNDED, status="True", reason="Measured", message=message)]


def _limits_unmet(obj: Instance, runs: Mapping[str, Run]) -> list[str]:
    return [
        f"spec.containers[{i}].resources.limits.{name} is not held: this host has no cgroup for it (`rota doctor`)"
        for i, container in enumerate(obj.spec.containers)
        for name in (runs[container.name].limits_unmet if container.name in runs else ())
    ]
