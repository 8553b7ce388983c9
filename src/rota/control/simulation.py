"""Stand-ins for what really runs things, so that a plan can be followed to its end without running anything.

A kind whose own controller makes it ready needs none. For the others, an object is ready as soon as everything that it
refers to is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from rota.api import Condition, Instance, Object, WorkerPool
from rota.control.functions.unserved import UnservedFunctions
from rota.control.gate import READY, Gate, with_conditions
from rota.control.instances import ready_condition
from rota.control.pool import Pools
from rota.engine import DONE, Context, Outcome, Reconciler

T = TypeVar("T", bound=Object)

PHASES = {"Task": "Succeeded", "Claim": "Bound"}
"""The phase that says that all went well, where that is not said by a condition."""
CONDITIONS = {"Workload": "Available"}
"""The condition that tells readiness, where it is not Ready."""
SIMULATED = "Simulated"
GATES: tuple[type, ...] = (Gate, UnservedFunctions)
"""Controllers of what nothing runs here."""


class Simulated(Gate[T]):
    """Makes an object ready when everything that it refers to is."""

    needs = "readiness"

    async def go_on(self, context: Context, obj: T, opened: list[Condition]) -> Outcome:
        phase = PHASES.get(obj.api.name)
        if phase is None:
            type_ = CONDITIONS.get(obj.api.name, READY)
            opened = [*opened, Condition(type=type_, status="True", reason=SIMULATED)]
        status = with_conditions(context, obj, opened)
        if phase is not None:
            status = msgspec.structs.replace(status, phase=phase, reason=SIMULATED)
        await context.write_status(obj, status)
        return DONE


class SimulatedPools(Pools):
    """Plans the instances of pools, which then come up by themselves."""

    needs = "readiness"


class SimulatedInstances(Gate[Instance]):
    """Instances that run as soon as they are made."""

    def __init__(self) -> None:
        super().__init__(Instance)

    async def go_on(self, context: Context, obj: Instance, opened: list[Condition]) -> Outcome:
        runs = [Condition(type=type_, status="True", reason=SIMULATED) for type_ in ("Programmed", "Available")]
        status = with_conditions(context, obj, [*opened, *runs])
        status = msgspec.structs.replace(status, phase="Idle", observed_template_hash=obj.spec.template_hash)
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
