"""Stand-ins for what really runs things, so that a plan can be followed to its end without running anything.

A kind whose own controller makes it ready needs none. For the others, an object is ready as soon as everything that it
refers to is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from rota.api import Cell, Claim, Condition, Function, Instance, Object, Schedule, Task, WorkerPool
from rota.control.claims.lifecycle import unfit
from rota.control.functions.standing import not_here
from rota.control.functions.unserved import UnservedFunctions
from rota.control.gate import READY, Gate, with_conditions
from rota.control.instances import ready_condition
from rota.control.orders import unrunnable
from rota.control.pool import Pools
from rota.control.schedules.regions import region_of, served
from rota.control.tasks.jobs import CannotRun, check_role, worker_of
from rota.control.unhonoured import conditions, unhonoured
from rota.control.workers import template_of
from rota.engine import DONE, Context, Outcome, Reconciler
from rota.engine.objects import Objects, get

T = TypeVar("T", bound=Object)

PHASES = {"Task": "Succeeded", "Claim": "Bound"}
"""The phase that says that all went well, where that is not said by a condition."""
SIMULATED = "Simulated"
GATES: tuple[type, ...] = (Gate, UnservedFunctions)
"""Controllers of what nothing runs here."""


class Simulated(Gate[T]):
    """Makes an object ready when everything that it refers to is."""

    needs = "readiness"

    async def go_on(self, context: Context, obj: T, opened: list[Condition]) -> Outcome:
        opened = [*opened, *conditions(obj, unhonoured(obj))]
        wrong = problem(context.objects, obj)
        phase = PHASES.get(obj.api.name)
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
        """The status that a server would write of an object that cannot go well."""
        reason, message = wrong
        if obj.api.name in PHASES:
            status = with_conditions(context, obj, opened)
            return msgspec.structs.replace(status, phase="Failed", reason=reason, message=message)
        return with_conditions(
            context, obj, [*opened, Condition(type=READY, status="False", reason=reason, message=message)]
        )


def problem(objects: Objects, obj: Object) -> tuple[str, str] | None:
    """What keeps an object from going well although all that it refers to is there: reason and message."""
    if isinstance(obj, Task):
        return _task_problem(objects, obj)
    if isinstance(obj, Claim):
        pool = get(objects, WorkerPool, obj.spec.pool_ref.name, obj.metadata.namespace)
        spec = obj.spec
        wrong = unfit(spec.images, spec.labels, spec.annotations, template_of(pool)) if pool is not None else None
        return ("Invalid", wrong) if wrong is not None else None
    if isinstance(obj, Function):
        condition = not_here(obj)
        return (condition.reason, condition.message) if condition is not None else None
    if isinstance(obj, Schedule):
        region = region_of(obj, served(cast("list[Cell]", objects.list(Cell.api))))
        return None if isinstance(region, str) else (region.reason, region.message)
    return None


def _task_problem(objects: Objects, task: Task) -> tuple[str, str] | None:
    """A task's own templates need the outputs of others; what its worker is can be told without."""
    if task.spec.function is not None:
        return None
    try:
        check_role(task, worker_of(objects, task)[0])
    except CannotRun as error:
        return error.reason, str(error)
    return None


class SimulatedPools(Pools):
    """Plans the instances of pools, which then come up by themselves."""

    needs = "readiness"


class SimulatedInstances(Gate[Instance]):
    """Instances that run as soon as they are made, unless no machine could run them."""

    def __init__(self) -> None:
        super().__init__(Instance)

    async def go_on(self, context: Context, obj: Instance, opened: list[Condition]) -> Outcome:
        why = unrunnable(obj)
        is_run, reason = ("True", SIMULATED) if why is None else ("False", "ConfigurationError")
        runs = [
            Condition(type=type_, status=is_run, reason=reason, message=why or "")  # type: ignore[arg-type]
            for type_ in ("Programmed", "Available")
        ]
        status = with_conditions(context, obj, [*opened, *runs])
        phase = "Idle" if why is None else "Failed"
        status = msgspec.structs.replace(status, phase=phase, observed_template_hash=obj.spec.template_hash)
        ready = ready_condition(msgspec.structs.replace(obj, status=status))
        await context.write_status(obj, context.condition(obj, status, ready))
        return DONE


def simulated(controllers: Iterable[Reconciler]) -> Sequence[Reconciler]:
    """These controllers, with a stand-in for each that only keeps a gate, and for the runtime."""
    stand_ins: list[Reconciler] = [SimulatedInstances()]
    for one in controllers:
        if type(one) not in GATES:
            stand_ins.append(one)
            continue
        assert isinstance(one, Gate)
        if one.kind is WorkerPool:
            stand_ins.append(SimulatedPools())
        else:
            stand_ins.append(Simulated(one.kind))
    return stand_ins
