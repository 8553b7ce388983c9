"""Stand-ins for what really runs things, so that a plan can be followed to its end without running anything.

A kind whose own controller makes it ready needs none. For the others, an object is ready as soon as everything that it
refers to is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from rota.api import Claim, Condition, Object, Task
from rota.control.gate import READY, Gate, with_conditions
from rota.engine import DONE, Context, Outcome, Reconciler

T = TypeVar("T", bound=Object)

PHASES: dict[type[Object], str] = {Task: "Succeeded", Claim: "Bound"}
"""The phase that says that all went well, where that is not said by a condition."""
CONDITIONS = {"Workload": "Available"}
"""The condition that tells readiness, where it is not Ready."""
SIMULATED = "Simulated"


class Simulated(Gate[T]):
    """Makes an object ready when everything that it refers to is."""

    needs = "readiness"

    async def go_on(self, context: Context, obj: T, opened: list[Condition]) -> Outcome:
        phase = PHASES.get(type(obj))
        if phase is None:
            type_ = CONDITIONS.get(obj.api.name, READY)
            opened = [*opened, Condition(type=type_, status="True", reason=SIMULATED)]
        status = with_conditions(context, obj, opened)
        if phase is not None:
            status = msgspec.structs.replace(status, phase=phase, reason=SIMULATED)
        await context.write_status(obj, status)
        return DONE


def simulated(controllers: Iterable[Reconciler]) -> Sequence[Reconciler]:
    """These controllers, with a stand-in for each that only keeps a gate."""
    return [Simulated(one.kind) if type(one) is Gate and one.kind is not None else one for one in controllers]
