"""Instance: what should run is started, what has ended is started again or told of, what is to go is ended first."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from rota.api import Condition, ConfigMap, Instance, Secret
from rota.api.instance import Container, EnvVar, InstanceStatus, LastExit
from rota.client import Key
from rota.control.gate import Gate, status_of
from rota.control.instances import crashes_in_a_row, ready_condition, restart_delay, restarts, storage_name
from rota.control.instances.crashes import crashing, ending
from rota.control.instances.template import UNIT_NANOS, nanos
from rota.control.pool import RUNTIME_FINALIZER
from rota.engine import DONE, Context, Outcome, RequeueAfter
from rota.engine.objects import get
from rota.engine.references import id_of
from rota.runtime.interface import Exit, Order, Refused, Run, Runtime, Subject

PROGRAMMED, AVAILABLE, ISOLATED = "Programmed", "Available", "Isolated"
KEEPER_LOST = "KeeperLost"
RUNS_REMEMBERED = 16
"""Runs of a container that count for the pause before the next one."""


class Instances(Gate[Instance]):
    """Has a runtime do what instances ask for, and says what came of it."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(Instance)
        self._runtime = runtime
        self._past: dict[str, dict[int, tuple[float, float]]] = {}

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        return self._runtime.listen(lambda subject: wake(Key(subject.namespace, subject.name)))

    async def look(self, context: Context, obj: Instance) -> Outcome:
        if obj.metadata.deletion_timestamp is None:
            return await super().look(context, obj)
        if RUNTIME_FINALIZER in obj.metadata.finalizers:
            await self._end(context, obj)
        return DONE

    async def gone(self, key: Key) -> None:
        for subject in self._runtime.known(*key):
            await self._runtime.stop(subject, 0)

    async def go_on(self, context: Context, obj: Instance, opened: list[Condition]) -> Outcome:
        if obj.spec.scheduling_gates:
            await self._write(context, obj, status_of(obj), opened, "Pending")
            return DONE
        for other in self._runtime.known(obj.metadata.namespace, obj.metadata.name):
            if other.uid != obj.metadata.uid:
                # Left behind by a namesake whose end nobody saw.
                await self._runtime.stop(other, 0)
        status = self._with_last_exit(status_of(obj), self._runtime.runs(_subject(obj)))
        try:
            wait = await self._run_all(context, obj)
        except Refused as refused:
            said = [
                *opened,
                Condition(type=PROGRAMMED, status="False", reason=refused.reason, message=str(refused)),
                Condition(type=AVAILABLE, status="False", reason=refused.reason, message=str(refused)),
            ]
            await self._write(context, obj, status, said, "Failed")
            return DONE
        runs = self._runtime.runs(_subject(obj))
        status, phase, available = self._seen(obj, status, runs, wait, context.clock.time())
        said = [*opened, Condition(type=PROGRAMMED, status="True", reason=PROGRAMMED), available, self._isolated(obj)]
        await self._write(context, obj, status, said, phase)
        return DONE if wait is None else RequeueAfter(wait, available.reason, available.message)

    async def _run_all(self, context: Context, obj: Instance) -> float | None:
        """Start what should run and does not. Returns in how many seconds something is to be started again, if so."""
        waits = []
        for container in obj.spec.containers:
            run = self._runtime.runs(_subject(obj)).get(container.name)
            if run is not None and run.exit is None:
                continue
            if run is not None:
                wait = self._pause(obj, container, run, context.clock.time())
                if wait is None:
                    continue
                if wait > 0:
                    waits.append(wait)
                    continue
            number = 0 if run is None else run.number + 1
            await self._runtime.start(_order(context, obj, container, number))
        return min(waits, default=None)

    def _pause(self, obj: Instance, container: Container, run: Run, now: float) -> float | None:
        """Seconds before a run that has ended is followed by another; None: it is not."""
        assert run.exit is not None
        if not restarts(obj.spec.restart_policy, failed=run.exit.failed):
            return None
        if run.exit.reason == KEEPER_LOST:
            return 0.0  # no fault of its own
        past = self._past.setdefault(f"{id_of(obj)}/{container.name}", {})
        past[run.number] = (run.started, run.exit.time)
        if len(past) > RUNS_REMEMBERED:
            del past[min(past)]
        return restart_delay(crashes_in_a_row(past.values()), run.exit.time, now)

    def _seen(
        self, obj: Instance, status: InstanceStatus, runs: Mapping[str, Run], wait: float | None, now: float
    ) -> tuple[InstanceStatus, str, Condition]:
        """The status, phase and condition Available that the runs of an instance come to."""
        first_name = obj.spec.containers[0].name
        first = runs[first_name]
        last = _last_of(runs)
        status = msgspec.structs.replace(
            status,
            observed_generation=obj.metadata.generation,
            observed_template_hash=obj.spec.template_hash,
            runtime_id=first.id,
            start_time=_time(first.started),
            restarts=max(status.restarts, max(run.number for run in runs.values())),
        )
        if last is None:
            phase = "Running" if obj.spec.assignment is not None else "Idle"
            return status, phase, Condition(type=AVAILABLE, status="True", reason=AVAILABLE)
        if wait is not None:
            past = self._past.get(f"{id_of(obj)}/{first_name}", {})
            crashes = max(1, crashes_in_a_row(past.values()))
            said = crashing(_last_exit(last), crashes, now + wait, last.lines.splitlines())
            return status, "Starting", said
        message = "\n".join([f"it {ending(_last_exit(last))}", *last.lines.splitlines()])
        stopped = Condition(type=AVAILABLE, status="False", reason="Stopped", message=message)
        return status, "Failed" if last.failed else "Succeeded", stopped

    @staticmethod
    def _with_last_exit(status: InstanceStatus, runs: Mapping[str, Run]) -> InstanceStatus:
        """Before what has ended is started again: then nobody could tell any more how it did."""
        last = _last_of(runs)
        return status if last is None else msgspec.structs.replace(status, last_exit=_last_exit(last))

    def _isolated(self, obj: Instance) -> Condition:
        isolated, why_not = self._runtime.isolates(obj.spec.isolation)
        if isolated:
            return Condition(type=ISOLATED, status="True", reason="Sandboxed")
        return Condition(type=ISOLATED, status="False", reason="NotSandboxed", message=why_not)

    @staticmethod
    async def _write(
        context: Context, obj: Instance, status: InstanceStatus, conditions: list[Condition], phase: str
    ) -> None:
        for condition in conditions:
            status = context.condition(obj, status, condition)
        status = msgspec.structs.replace(status, phase=phase)
        ready = ready_condition(msgspec.structs.replace(obj, status=status))
        await context.write_status(obj, context.condition(obj, status, ready))

    async def _end(self, context: Context, obj: Instance) -> None:
        """Nothing of it may be alive when it is gone."""
        await self._runtime.stop(_subject(obj), obj.spec.termination_grace_period_seconds)
        for container in obj.spec.containers:
            self._past.pop(f"{id_of(obj)}/{container.name}", None)
        left = [one for one in obj.metadata.finalizers if one != RUNTIME_FINALIZER]
        metadata = msgspec.structs.replace(obj.metadata, finalizers=left)
        await context.client.update(msgspec.structs.replace(obj, metadata=metadata))


def _subject(obj: Instance) -> Subject:
    return Subject(obj.metadata.namespace, obj.metadata.name, obj.metadata.uid)


def _order(context: Context, obj: Instance, container: Container, number: int) -> Order:
    spec = obj.spec
    limits = container.resources.limits if container.resources else None
    return Order(
        subject=_subject(obj),
        container=container.name,
        number=number,
        argv=(*container.command, *container.args),
        env={one.name: _value(context, obj, one) for one in container.env},
        image=container.image or "",
        working_dir=container.working_dir or "",
        storage_name=storage_name(obj) if spec.storage else "",
        storage_path=spec.storage.path if spec.storage else "",
        files=_files(context, obj),
        isolation=spec.isolation,
        network=spec.network or "host",
        memory_bytes=nanos(limits.memory) // UNIT_NANOS if limits and limits.memory is not None else None,
        cpus=nanos(limits.cpu) / UNIT_NANOS if limits and limits.cpu is not None else None,
    )


def _value(context: Context, obj: Instance, one: EnvVar) -> str:
    source = one.value_from
    if source is None:
        return one.value or ""
    namespace = obj.metadata.namespace
    if source.secret_key_ref is not None:
        secret = get(context.objects, Secret, source.secret_key_ref.name, namespace)
        return _key(one, source.secret_key_ref.key, _decoded(secret), f"Secret/{source.secret_key_ref.name}").decode()
    assert source.config_map_key_ref is not None
    named = source.config_map_key_ref
    return _key(
        one, named.key, _texts(get(context.objects, ConfigMap, named.name, namespace)), f"ConfigMap/{named.name}"
    ).decode()


def _key(one: EnvVar, key: str, values: Mapping[str, bytes], where: str) -> bytes:
    if key not in values:
        raise Refused("ConfigurationError", f"env {one.name}: {where} has no key {key}")
    return values[key]


def _files(context: Context, obj: Instance) -> dict[str, bytes]:
    """The files of volumes, by the place they have inside."""
    files: dict[str, bytes] = {}
    namespace = obj.metadata.namespace
    for volume in obj.spec.volumes:
        values: Mapping[str, bytes]
        if volume.secret is not None:
            values = _decoded(get(context.objects, Secret, volume.secret.name, namespace))
        else:
            assert volume.config_map is not None
            values = _texts(get(context.objects, ConfigMap, volume.config_map.name, namespace))
        files.update({f"{volume.mount_path.rstrip('/')}/{key}": value for key, value in values.items()})
    return files


def _decoded(secret: Secret | None) -> dict[str, bytes]:
    return {} if secret is None else {key: base64.b64decode(value) for key, value in secret.data.items()}


def _texts(config: ConfigMap | None) -> dict[str, bytes]:
    if config is None:
        return {}
    binary = {key: base64.b64decode(value) for key, value in config.binary_data.items()}
    return {**{key: value.encode() for key, value in config.data.items()}, **binary}


def _last_of(runs: Mapping[str, Run]) -> Exit | None:
    """How the last of those that run no more ended."""
    return max((run.exit for run in runs.values() if run.exit is not None), key=lambda end: end.time, default=None)


def _last_exit(exit_: Exit) -> LastExit:
    return LastExit(code=exit_.code, signal=exit_.signal, reason=exit_.reason or None, time=_time(exit_.time))


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
