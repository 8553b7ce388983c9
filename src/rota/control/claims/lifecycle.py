"""How a claim goes on: its status after what happened to it. Nothing here waits, writes or looks at a clock."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from rota.api import Claim, Instance, WorkerPool
from rota.api.instance import Address, Assignment, InstanceTemplate
from rota.api.pool import ClaimStatus
from rota.control.holds.options import Options, has_runner, options_of, run_of
from rota.control.instances.states import USED
from rota.pools import Request
from rota.runtime.runner.messages import ResetPolicy

DEFAULT_WAIT_SECONDS = 120
"""Where there is no pool to say it."""
OWN_PREFIX = "rota.dev/"
"""Labels and annotations that a claim cannot set: they are Rota's."""


def request(claim: Claim, arrival: float) -> Request:
    spec = claim.spec
    return Request(claim.metadata.uid, spec.holder or "", spec.priority, arrival)


def wait_seconds(claim: Claim, pool: WorkerPool | None) -> int:
    if claim.spec.wait_seconds is not None:
        return claim.spec.wait_seconds
    return pool.spec.queue.default_wait_seconds if pool is not None else DEFAULT_WAIT_SECONDS


def deadline(claim: Claim, pool: WorkerPool | None) -> float:
    """Until when it waits."""
    created = claim.metadata.creation_timestamp
    began = claim.status.arrival if claim.status is not None and claim.status.arrival is not None else created
    return (began.timestamp() if began is not None else 0.0) + wait_seconds(claim, pool)


def expiry(claim: Claim) -> datetime | None:
    """When the hold ends, unless it is renewed."""
    bound = claim.status.bound_time if claim.status is not None else None
    if bound is None:
        return None
    since = max(bound, claim.spec.renew_time) if claim.spec.renew_time is not None else bound
    return since + timedelta(seconds=claim.spec.lease_seconds)


def time_of(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def unfit(
    images: Mapping[str, str], labels: Mapping[str, str], annotations: Mapping[str, str], template: InstanceTemplate
) -> str | None:
    """Why no instance of a template can be had with these."""
    names = [container.name for container in template.containers]
    unknown = sorted(set(images) - set(names))
    if unknown:
        return f"images: no container {unknown[0]!r} in the pool's template; there are {', '.join(names)}"
    if images and template.runtime != "container":
        return "images: the pool's instances are no containers (runtime: container), and have no images"
    for field, values in (("labels", labels), ("annotations", annotations)):
        own = next((key for key in sorted(values) if OWN_PREFIX in key.partition("/")[0] + "/"), None)
        if own is not None:
            return f"{field}: {own!r} is Rota's own; choose another prefix"
    return None


# Statuses.


def waiting(status: ClaimStatus, arrival: datetime, reason: str | None = None, message: str | None = None) -> Any:
    return msgspec.structs.replace(
        status, phase="Waiting", arrival=status.arrival or arrival, reason=reason, message=message
    )


def bound(claim: Claim, instance: Instance, arrival: datetime, now: datetime) -> ClaimStatus:
    status = claim.status or ClaimStatus()
    begun = msgspec.structs.replace(
        status,
        phase="Bound",
        arrival=status.arrival or arrival,
        instance_name=instance.metadata.name,
        addresses=instance.status.addresses if instance.status is not None else [],
        bound_time=status.bound_time or now,
        reason=None,
        message=None,
        observed_generation=claim.metadata.generation or 1,
    )
    return msgspec.structs.replace(begun, expires_at=expiry(msgspec.structs.replace(claim, status=begun)))


def renewed(status: ClaimStatus, expires: datetime, addresses: list[Address]) -> Any:
    return msgspec.structs.replace(status, expires_at=expires, addresses=addresses)


def over(status: ClaimStatus, phase: str, now: float, reason: str | None = None, message: str | None = None) -> Any:
    return msgspec.structs.replace(
        status, phase=phase, reason=reason, message=message, addresses=[], end_time=time_of(now)
    )


# What is written on the instance.


class Marks(NamedTuple):
    """Labels and annotations of an instance; None: they stay."""

    labels: Mapping[str, str] | None
    annotations: Mapping[str, str] | None


def assignment(claim: Claim, instance: Instance, now: datetime, logs: dict[str, tuple[int, int]]) -> Assignment:
    meta, spec = claim.metadata, claim.spec
    options = Options(run_of(instance), logs, spec.images, spec.env, spec.labels, spec.annotations)
    return Assignment(
        id=meta.uid, kind="Claim", name=meta.name, uid=meta.uid, since=now, options=msgspec.to_builtins(options)
    )


def marks_at_begin(claim: Claim, instance: Instance) -> Marks:
    spec, meta = claim.spec, instance.metadata
    return Marks(
        {**meta.labels, **spec.labels} if spec.labels else None,
        {**meta.annotations, **spec.annotations} if spec.annotations else None,
    )


def marks_at_end(instance: Instance, reset: ResetPolicy) -> Marks:
    """What the hold brought goes; and what only goes with the instance is told of."""
    options, meta = options_of(instance), instance.metadata
    labels = {key: value for key, value in meta.labels.items() if options.labels.get(key) != value}
    annotations = {key: value for key, value in meta.annotations.items() if options.annotations.get(key) != value}
    assigned = instance.spec.assignment
    is_used = not has_runner(instance) and (reset != "Keep" or options.changes_runs)
    if is_used and assigned is not None:
        annotations[USED] = assigned.id
    return Marks(
        labels if options.labels else None,
        annotations if options.annotations or is_used else None,
    )
