"""The condition Ready of a function, and the controller for planes that serve no functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rota.api import Condition, Function, Instance
from rota.control.functions.loading import LoadState
from rota.control.functions.planning import Version
from rota.control.gate import READY, Gate, write_conditions
from rota.control.plane import Plane, region_of
from rota.engine import DONE, Context, Outcome

LOADING, PREPARING, STARTING, UPDATING = "Loading", "Preparing", "Starting", "Updating"
PROGRESS = (LOADING, PREPARING, STARTING, UPDATING)
"""Reasons for not being ready that pass by themselves, and need no Event."""
NOT_SERVED = "NotServed"
WHY = "`rota operator` runs no functions yet, wherever their code is: deploy it to a server that `rota start` started"


def readiness(
    function: Function,
    version: Version,
    instances: Sequence[Instance],
    *,
    known: LoadState,
    good: Version | None,
    callable_: Collection[str],
    failures: Sequence[Condition],
) -> Condition:
    """Return the condition Ready.

    known      the load state of this version
    good       the version that was loaded last
    callable_  uids of workers that can be called
    failures   conditions of workers of this version that cannot be
    """
    staying = [one for one in instances if one.metadata.deletion_timestamp is None]
    current = [one for one in staying if one.spec.template_hash == version.hash]
    ready, least = sum(one.metadata.uid in callable_ for one in current), function.spec.scale.min
    if failures:
        return failures[0]
    if known.state == "Failed":
        return not_ready(known.reason, known.message)
    if known.state == "Unknown" and good is None:
        return not_ready(LOADING, "its code is being loaded for the first time")
    if known.state == "Unknown" or (not ready and len(staying) > len(current)):
        return not_ready(UPDATING, "the version before answers calls until a worker of this one can be called")
    if ready < least:
        return not_ready(STARTING, f"{ready} of {least} workers can be called")
    if ready:
        return Condition(type=READY, status="True", reason="Ready")
    if current:
        return Condition(type=READY, status="True", reason="Scaling")
    unseen = "" if code_of(version) is not None else "its code is in a workspace, and is fetched when it is called"
    return Condition(type=READY, status="True", reason="ScaledToZero", message=unseen)


def not_served_here(function: Function, plane: Plane) -> Condition | None:
    """Return the condition Ready of a function if this plane serves none of its regions; None: it serves one."""
    region = region_of(function.spec.regions, plane)
    return None if isinstance(region, str) else not_ready(region.reason, region.message)


def code_of(version: Version | None) -> str | None:
    """Return the digest of a version's code; None: it is in a workspace, or there is no version."""
    return version.template.handler.code if version is not None and version.template.handler is not None else None


def not_ready(reason: str, message: str) -> Condition:
    return Condition(type=READY, status="False", reason=reason, message=message)


class UnservedFunctions(Gate[Function]):
    """Marks each function as not served on this plane."""

    def __init__(self) -> None:
        super().__init__(Function)

    async def go_on(self, context: Context, obj: Function, opened: list[Condition]) -> Outcome:
        await write_conditions(context, obj, [*opened, not_ready(NOT_SERVED, WHY)])
        return DONE
