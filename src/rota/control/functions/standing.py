"""How a function stands: whether the version that is wanted answers its calls. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rota.api import Condition, Function, Instance
from rota.control.functions.loading import Known
from rota.control.functions.planning import Version
from rota.control.gate import READY
from rota.control.plane import Plane, region_of

LOADING, PREPARING, STARTING, UPDATING = "Loading", "Preparing", "Starting", "Updating"
PROGRESS = (LOADING, PREPARING, STARTING, UPDATING)
"""Reasons for not being ready that pass, and that nobody has to be told of."""


def readiness(
    function: Function,
    version: Version,
    instances: Sequence[Instance],
    *,
    known: Known,
    good: Version | None,
    callable_: Collection[str],
    failures: Sequence[Condition],
) -> Condition:
    """The condition Ready.

    `known`: whether this version was loaded. `good`: the version that was loaded last. `callable_`: workers that can be
    called, by uid. `failures`: why workers of this version cannot be.
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


def not_here(function: Function, plane: Plane) -> Condition | None:
    """The condition Ready of a function that no city served here may run."""
    region = region_of(function.spec.regions, plane)
    return None if isinstance(region, str) else not_ready(region.reason, region.message)


def code_of(version: Version | None) -> str | None:
    """The digest of the code of a version; None: it is in a workspace, or there is no version."""
    return version.template.handler.code if version is not None and version.template.handler is not None else None


def not_ready(reason: str, message: str) -> Condition:
    return Condition(type=READY, status="False", reason=reason, message=message)
