"""The status of a claim after each event. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from rota.api import Claim, Instance, WorkerPool
from rota.api.conflicts import is_own
from rota.api.instance import Address, Assignment, InstanceTemplate
from rota.api.pool import ClaimStatus
from rota.client import Key
from rota.control.holds.members import PoolKey
from rota.control.holds.options import Options, has_runner, options_of, run_of
from rota.control.instances.states import AHEAD_SECONDS_MAX, USED
from rota.pools import Request
from rota.registry import ApiError

DEFAULT_WAIT_SECONDS = 120
"""Seconds that a claim waits for a pool that does not exist."""

ATTENDED = "rota.dev/attended"
"""Annotation of a claim whose caller waits on a connection. The claim is bound only while a caller does."""

UNPROCESSABLE = 422
REFUSED = (400, 403, 413)

Marks = list[dict[str, Any]]
"""Changes of the labels and annotations of an instance, as operations of a JSON patch."""


def pool_of(claim: Claim) -> PoolKey:
    return PoolKey(claim.metadata.namespace, claim.spec.pool_ref.name)


def key_of(claim: Claim) -> Key:
    return Key(claim.metadata.namespace, claim.metadata.name)


def request(claim: Claim, arrival: float) -> Request:
    spec = claim.spec
    return Request(claim.metadata.uid, spec.holder or "", spec.priority, arrival, kind=Claim.api.name)


def wait_seconds(claim: Claim, pool: WorkerPool | None) -> int:
    if claim.spec.wait_seconds is not None:
        return claim.spec.wait_seconds
    return pool.spec.queue.default_wait_seconds if pool is not None else DEFAULT_WAIT_SECONDS


def deadline(claim: Claim, pool: WorkerPool | None) -> float:
    """Return the time until which a claim waits."""
    created = claim.metadata.creation_timestamp
    began = claim.status.arrival if claim.status is not None and claim.status.arrival is not None else created
    return (began.timestamp() if began is not None else 0.0) + wait_seconds(claim, pool)


def is_attended(claim: Claim) -> bool:
    """Report whether a claim may be bound only while its caller waits on a connection."""
    return ATTENDED in claim.metadata.annotations


def expiry(claim: Claim, now: float) -> datetime | None:
    """Return the end of the lease. A renewal in the future is ignored, since the lease would never end."""
    status, renewed = claim.status, claim.spec.renew_time
    if status is None or status.bound_time is None:
        return None
    since = status.bound_time
    if renewed is not None:
        if renewed.timestamp() > now + AHEAD_SECONDS_MAX:
            return status.expires_at or since + timedelta(seconds=claim.spec.lease_seconds)
        since = max(since, renewed)
    return since + timedelta(seconds=claim.spec.lease_seconds)


def time_of(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def unfit(
    images: Mapping[str, str], labels: Mapping[str, str], annotations: Mapping[str, str], template: InstanceTemplate
) -> str | None:
    """Return the reason why no instance of a template can be claimed with these options; None: one can."""
    names = [container.name for container in template.containers]
    unknown = sorted(set(images) - set(names))
    if unknown:
        return f"images: no container {unknown[0]!r} in the pool's template; there are {', '.join(names)}"
    if images and template.runtime != "container":
        return "images: the pool's instances are no containers (runtime: container), and have no images"
    for field, values in (("labels", labels), ("annotations", annotations)):
        own = next((key for key in sorted(values) if is_own(key)), None)
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
    return msgspec.structs.replace(
        begun, expires_at=expiry(msgspec.structs.replace(claim, status=begun), now.timestamp())
    )


def renewed(claim: Claim, expires: datetime, addresses: list[Address]) -> ClaimStatus:
    assert claim.status is not None
    generation = claim.metadata.generation or 1
    return msgspec.structs.replace(
        claim.status, expires_at=expires, addresses=addresses, observed_generation=generation
    )


def over(status: ClaimStatus, phase: str, now: float, reason: str | None = None, message: str | None = None) -> Any:
    return msgspec.structs.replace(
        status, phase=phase, reason=reason, message=message, addresses=[], expires_at=None, end_time=time_of(now)
    )


# What is written on the instance.


def assignment(claim: Claim, instance: Instance, now: datetime, logs: dict[str, tuple[int, int]]) -> Assignment:
    meta, spec = claim.metadata, claim.spec
    options = Options(
        run_of(instance),
        logs,
        spec.images,
        spec.env,
        spec.labels,
        spec.annotations,
        {key: value for key, value in instance.metadata.labels.items() if key in spec.labels},
        {key: value for key, value in instance.metadata.annotations.items() if key in spec.annotations},
    )
    return Assignment(
        id=meta.uid, kind="Claim", name=meta.name, uid=meta.uid, since=now, options=msgspec.to_builtins(options)
    )


def marks_at_begin(claim: Claim, instance: Instance) -> Marks:
    """Return the changes of labels and annotations key by key, since others may change them at the same time."""
    spec, meta = claim.spec, instance.metadata
    return [*_put("labels", spec.labels, meta.labels), *_put("annotations", spec.annotations, meta.annotations)]


def marks_at_end(instance: Instance, *, is_lost: bool = False, is_untouched: bool = False) -> Marks:
    """Return the patch that undoes the hold's marks, and marks the instance as used if it must be replaced.

    Without a runner, only the runtime can end what a holder left running. So the instance is marked, unless the holder
    certainly never reached it (`is_untouched`). With a runner it is marked if the runner has lost the hold (`is_lost`)
    and therefore does not reset the instance.
    """
    options, meta, assigned = options_of(instance), instance.metadata, instance.spec.assignment
    marks = [
        *_off("labels", options.labels, options.covered_labels, meta.labels),
        *_off("annotations", options.annotations, options.covered_annotations, meta.annotations),
    ]
    if assigned is not None and (is_lost or not (has_runner(instance) or is_untouched)):
        marks += _put("annotations", {USED: assigned.id}, meta.annotations)
    return marks


def can_be_touched(instance: Instance) -> bool:
    """Report whether a holder can change an instance by other ways than commands and files: by ports, or its options.

    Containers that were started with the options of a hold end with it.
    """
    return options_of(instance).changes_runs or any(one.ports for one in instance.spec.containers)


def _put(field: str, values: Mapping[str, str], there: Mapping[str, str]) -> Marks:
    if not values:
        return []
    if not there:
        return [
            {"op": "test", "path": f"/metadata/{field}", "value": None},
            {"op": "add", "path": f"/metadata/{field}", "value": dict(values)},
        ]
    return [{"op": "add", "path": _path(field, key), "value": value} for key, value in values.items()]


def _off(field: str, values: Mapping[str, str], covered: Mapping[str, str], there: Mapping[str, str]) -> Marks:
    """Return the patch that undoes changes, except those that another writer has changed since."""
    marks: Marks = []
    for key, value in values.items():
        if there.get(key) != value:
            continue
        if key in covered:
            marks.append({"op": "add", "path": _path(field, key), "value": covered[key]})
        else:
            marks.append({"op": "remove", "path": _path(field, key)})
    return marks


def _path(field: str, key: str) -> str:
    return f"/metadata/{field}/{key.replace('~', '~0').replace('/', '~1')}"


def is_about_claim(error: ApiError, *, is_new: bool) -> bool:
    """Report whether a write was refused because of the claim or its options, and not because of a conflict."""
    if error.code == UNPROCESSABLE and error.causes:
        return True
    if not is_new:
        return False
    kind = (error.details or {}).get("kind")
    return error.reason == "AlreadyExists" or (error.code in REFUSED and kind in (Claim.api.name, Claim.api.plural))
