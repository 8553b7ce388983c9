"""The states of an instance, read from its object."""

from __future__ import annotations

from datetime import UTC, datetime

from rota.api import Instance
from rota.control.instances.backoff import RESTART_SECONDS_MIN, restarts

DRAINING = "rota.dev/draining"
"""Annotation with the time since which an instance is draining: it gets no new holder."""
USED = "rota.dev/used"
"""Annotation with the id of an ended hold, on an instance that must not be given away as it is.

It is replaced before the next hold or, if the pool's reset policy is Keep, what runs in it is started anew.
"""
AHEAD_SECONDS_MAX = 60.0
"""The most by which another clock may be ahead. Later times are ignored, since they would delay an action for ever."""
NOT_ISOLATED = "is not isolated"
MORE_NETWORK = "has more network than this server gives to all"


def is_leaving(instance: Instance) -> bool:
    """Report whether an instance is being deleted. It keeps its ordinal until it is gone."""
    return instance.metadata.deletion_timestamp is not None


def is_held(instance: Instance) -> bool:
    return instance.spec.assignment is not None


def is_draining(instance: Instance) -> bool:
    return DRAINING in instance.metadata.annotations


def is_used(instance: Instance) -> bool:
    """Report whether an instance still has data or processes of its last holder."""
    return USED in instance.metadata.annotations


def is_isolated(instance: Instance) -> bool:
    """Report whether an instance is known to be sandboxed, with no more network than the policy gives to all."""
    if instance.status is None:
        return False
    isolated = instance.status.condition("Isolated")
    return isolated is not None and isolated.status == "True" and not _is_beyond_policy(instance)


def why_open(instance: Instance) -> str:
    """Say why an instance is not isolated."""
    return MORE_NETWORK if _is_beyond_policy(instance) else NOT_ISOLATED


def _is_beyond_policy(instance: Instance) -> bool:
    confined = instance.status.condition("NetworkConfined") if instance.status is not None else None
    return confined is not None and confined.reason == "BeyondPolicy"


def draining_since(instance: Instance, now: float) -> float | None:
    """Return the time since which an instance drains; None: it does not, or the annotation is invalid or ahead."""
    written = instance.metadata.annotations.get(DRAINING)
    try:
        since = datetime.fromisoformat(written) if written is not None else None
    except ValueError:
        return None
    if since is None or since.tzinfo is None or since.timestamp() > now + AHEAD_SECONDS_MAX:
        return None
    return min(since.timestamp(), now)


def draining_mark(now: float) -> str:
    """Return the value of the draining annotation."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def is_programmed(instance: Instance) -> bool:
    """Report whether the runtime has accepted an instance."""
    condition = instance.status.condition("Programmed") if instance.status else None
    return condition is not None and condition.status == "True"


def has_ended(instance: Instance) -> bool:
    """Report whether an instance has ended for good, by its restart policy."""
    phase = instance.status.phase if instance.status else None
    if phase not in ("Failed", "Succeeded"):
        return False
    return not restarts(instance.spec.restart_policy, failed=phase == "Failed")


def replaced_at(instance: Instance, now: float) -> float:
    """Return the time at which an ended instance is replaced: after a pause, so that a fast failure does not loop."""
    ended = instance.status.last_exit.time if instance.status and instance.status.last_exit else None
    known = [time.timestamp() for time in (ended, instance.metadata.creation_timestamp) if time is not None]
    return max((time for time in known if time <= now + AHEAD_SECONDS_MAX), default=0.0) + RESTART_SECONDS_MIN
