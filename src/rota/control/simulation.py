"""Stand-ins for controllers that run something, so that `rota plan` can rehearse a manifest without running anything.

A kind whose own controller makes it ready needs no stand-in. An object of another kind is ready as soon as all its
references are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from rota.api import Claim, Condition, Function, Instance, Object, Quota, Schedule, Task, TaskSpawner, WorkerPool
from rota.control.claims.lifecycle import unfit
from rota.control.functions.checking import code_problem
from rota.control.functions.readiness import UnservedFunctions, not_served_here
from rota.control.gate import READY, Gate, status_of, with_conditions
from rota.control.instance_actions import RUNTIME_FINALIZER
from rota.control.instances import ready_condition
from rota.control.making.resolving import unrunnable
from rota.control.plane import HERE, region_of
from rota.control.pool import Pools
from rota.control.quotas.gates import GatedInstances, quota_condition
from rota.control.spawners.apis import API_NOT_ALLOWED, Apis
from rota.control.spawners.statuses import is_complete, template_problem
from rota.control.tasks.jobs import CannotRun, check_role, worker_of
from rota.control.unhonoured import conditions, unhonoured
from rota.control.workers import template_of
from rota.engine import DONE, Blocked, Context, Failed, Outcome, Reconciler, Watch
from rota.engine.objects import Objects, get
from rota.engine.references import id_of

T = TypeVar("T", bound=Object)

PHASES = {"Task": "Succeeded", "Claim": "Bound"}
"""The phase of success, for kinds that have no condition Ready."""
WAITING = {"Task": "Queued", "Claim": "Waiting"}
"""The phase of a request that waits for a worker."""
SIMULATED = "Simulated"
NO_WORKERS = "NoWorkers"
"""The reason of a request for a pool without instances."""
OF_TEMPLATE = frozenset(("ConfigurationError", "ImageUnavailable", "NotIsolated"))
"""Reasons that hold for all instances of one template."""
BY_DEFAULT = "the list of APIs that a server has by default"
GATES: tuple[type, ...] = (Gate, UnservedFunctions)
"""Controllers that only check references, since nothing runs their kind here."""


class Simulated(Gate[T]):
    """Makes an object ready when all its references are.

    Objects whose uids are in `kept` stay as they are. `apis` are those that spawners may use.
    """

    needs = "readiness"

    def __init__(self, kind: type[T], kept: Collection[str] = (), apis: Apis | None = None) -> None:
        super().__init__(kind)
        self._kept = kept
        self._apis = apis or Apis()

    def closed(self, obj: T, held_up: Blocked | Failed) -> list[Condition]:
        return [*super().closed(obj, held_up), *_no_longer_ready(obj, held_up)]

    async def go_on(self, context: Context, obj: T, opened: list[Condition]) -> Outcome:
        if obj.metadata.uid in self._kept:
            return DONE
        opened = [*opened, *conditions(obj, unhonoured(obj))]
        wrong = problem(context.objects, obj, self._apis)
        phase = PHASES.get(obj.api.name)
        empty = _empty_pool(context.objects, obj) if wrong is None else None
        if empty is not None:
            message = f"waits for a worker of WorkerPool/{empty.metadata.name}, which has none"
            status = with_conditions(context, obj, opened)
            status = msgspec.structs.replace(status, phase=WAITING[obj.api.name], message=message)
            await context.write_status(obj, status)
            return Failed((id_of(empty),), NO_WORKERS, message)
        if wrong is not None:
            await context.write_status(obj, self._failed(context, obj, opened, wrong))
            return DONE
        if phase is None:
            opened = [*opened, Condition(type=READY, status="True", reason=SIMULATED)]
        status = with_conditions(context, obj, opened)
        if phase is not None:
            status = msgspec.structs.replace(status, phase=phase, reason=SIMULATED)
        await context.write_status(obj, status)
        return DONE

    @staticmethod
    def _failed(context: Context, obj: T, opened: list[Condition], wrong: tuple[str, str]) -> Any:
        """Return the status that a server would write for an object that fails."""
        reason, message = wrong
        if obj.api.name in PHASES:
            status = with_conditions(context, obj, opened)
            return msgspec.structs.replace(status, phase="Failed", reason=reason, message=message)
        return with_conditions(
            context, obj, [*opened, Condition(type=READY, status="False", reason=reason, message=message)]
        )


def _no_longer_ready(obj: Object, held_up: Blocked | Failed) -> list[Condition]:
    """Return the condition Ready of an object that is held up, if the object was ready on the server."""
    before = status_of(obj).condition(READY)
    if before is None or before.status != "True":
        return []
    return [Condition(type=READY, status="False", reason=held_up.reason, message=held_up.message)]


def problem(objects: Objects, obj: Object, apis: Apis) -> tuple[str, str] | None:
    """Return the reason and message for which an object would fail although its references are ready; None: none."""
    if isinstance(obj, Task):
        return _task_problem(objects, obj)
    if isinstance(obj, Claim):
        pool = get(objects, WorkerPool, obj.spec.pool_ref.name, obj.metadata.namespace)
        spec = obj.spec
        wrong = unfit(spec.images, spec.labels, spec.annotations, template_of(pool)) if pool is not None else None
        return ("Invalid", wrong) if wrong is not None else None
    if isinstance(obj, Function):
        condition = not_served_here(obj, HERE)
        return (condition.reason, condition.message) if condition is not None else code_problem(obj)
    if isinstance(obj, TaskSpawner):
        return _spawner_problem(obj, apis)
    if isinstance(obj, Schedule):
        region = region_of(obj.spec.regions, HERE)
        return None if isinstance(region, str) else (region.reason, region.message)
    return None


def _task_problem(objects: Objects, task: Task) -> tuple[str, str] | None:
    """Check the worker of a task. Its templates are not filled in, since they need the outputs of other tasks."""
    if task.spec.function is not None:
        return None
    try:
        check_role(task, worker_of(objects, task)[0])
    except CannotRun as error:
        return error.reason, str(error)
    return None


def _spawner_problem(obj: TaskSpawner, apis: Apis) -> tuple[str, str] | None:
    wrong, github = template_problem(obj), obj.spec.source.github
    if wrong is not None:
        return wrong.reason, wrong.message
    if github is None or obj.spec.suspend or is_complete(obj, status_of(obj)):
        return None
    refusal = apis.refusal(github.api_url, BY_DEFAULT)
    return (API_NOT_ALLOWED, refusal) if refusal is not None else None


def _empty_pool(objects: Objects, obj: Object) -> WorkerPool | None:
    """Return the pool of a request that would wait for ever: its `replicas` is 0, and nothing scales it."""
    ref = obj.spec.worker_pool_ref if isinstance(obj, Task) else obj.spec.pool_ref if isinstance(obj, Claim) else None
    if ref is None or status_of(obj).phase in ("Running", "Bound"):
        return None
    pool = get(objects, WorkerPool, ref.name, obj.metadata.namespace)
    return pool if pool is not None and pool.spec.scale is None and pool.spec.replicas == 0 else None


class SimulatedPools(Pools):
    """Plans the instances of pools, which `SimulatedInstances` makes ready."""

    needs = "readiness"

    def closed(self, obj: WorkerPool, held_up: Blocked | Failed) -> list[Condition]:
        return [*super().closed(obj, held_up), *_no_longer_ready(obj, held_up)]


class SimulatedInstances(Gate[Instance]):
    """Makes instances ready, unless no machine could run them. Instances whose uids are in `kept` stay as they are."""

    def __init__(self, kept: Collection[str] = ()) -> None:
        super().__init__(Instance)
        self._kept = kept
        self._gated = GatedInstances()
        self.watches = (Watch(Quota, self._gated.by_quota),)

    async def sync(self, context: Context, obj: Instance) -> Outcome:
        if obj.metadata.deletion_timestamp is not None and RUNTIME_FINALIZER in obj.metadata.finalizers:
            # A runtime would end it now, and remove the finalizer.
            left = [one for one in obj.metadata.finalizers if one != RUNTIME_FINALIZER]
            metadata = msgspec.structs.replace(obj.metadata, finalizers=left)
            await context.client.update(msgspec.structs.replace(obj, metadata=metadata))
            return DONE
        return await super().sync(context, obj)

    async def go_on(self, context: Context, obj: Instance, opened: list[Condition]) -> Outcome:
        if obj.metadata.uid in self._kept:
            return DONE
        if self._gated.note(obj):
            status = with_conditions(context, obj, [*opened, quota_condition(context.objects, obj)])
            status = msgspec.structs.replace(status, phase="Pending")
            ready = ready_condition(msgspec.structs.replace(obj, status=status))
            await context.write_status(obj, context.condition(obj, status, ready))
            return DONE
        why = unrunnable(obj)
        is_run, reason = ("True", SIMULATED) if why is None else ("False", "ConfigurationError")
        if why is None and (alike := self._alike(context, obj)) is not None:
            is_run, reason, why = "False", alike.reason, alike.message
        runs = [
            Condition(type=type_, status=is_run, reason=reason, message=why or "")  # type: ignore[arg-type]
            for type_ in ("Programmed", "Available")
        ]
        status = with_conditions(context, obj, [*opened, quota_condition(context.objects, obj), *runs])
        phase = "Idle" if why is None else "Failed"
        status = msgspec.structs.replace(status, phase=phase, observed_template_hash=obj.spec.template_hash)
        ready = ready_condition(msgspec.structs.replace(obj, status=status))
        await context.write_status(obj, context.condition(obj, status, ready))
        return DONE

    def _alike(self, context: Context, obj: Instance) -> Condition | None:
        """Return the condition of a kept instance of the same template that cannot run: this one cannot either."""
        for one in cast("list[Instance]", context.objects.list(Instance.api, obj.metadata.namespace)):
            if one.metadata.uid not in self._kept or one.spec.template_hash != obj.spec.template_hash:
                continue
            ready = status_of(one).condition(READY)
            if ready is not None and ready.status == "False" and ready.reason in OF_TEMPLATE:
                return cast(Condition, ready)
        return None


def simulated(
    controllers: Iterable[Reconciler], *, kept: Collection[str] = (), apis: Apis | None = None
) -> Sequence[Reconciler]:
    """Return these controllers, with a stand-in for each that is only a gate, and for the Instance controller.

    `kept` are the uids of objects that stay as they are on the server. `apis` are those that spawners may use; omitted:
    the defaults of a server.
    """
    stand_ins: list[Reconciler] = [SimulatedInstances(kept)]
    for one in controllers:
        if type(one) not in GATES:
            stand_ins.append(one)
            continue
        assert isinstance(one, Gate)
        if one.kind is WorkerPool:
            stand_ins.append(SimulatedPools())
        else:
            stand_ins.append(Simulated(one.kind, kept, apis))
    return stand_ins
