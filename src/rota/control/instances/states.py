"""What an instance is found to be: small questions that planning and counting ask."""

from __future__ import annotations

from datetime import UTC, datetime

from rota.api import Instance
from rota.control.instances.backoff import RESTART_SECONDS_MIN, restarts

DRAINING = "rota.dev/draining"
"""Annotation, with the time since when: whoever hands out instances hands out this one no more."""
USED = "rota.dev/used"
"""Annotation, with the hold that has ended: somebody had it, and before anybody else does it is replaced, or what runs
in it is started anew if the pool keeps what is there."""
AHEAD_SECONDS_MAX = 60.0
"""How far another clock may be ahead. A time beyond that says nothing: it would put off what hangs on it for ever."""
NOT_ISOLATED = "is not isolated"
MORE_NETWORK = "has more network than this server gives to all"


def is_leaving(instance: Instance) -> bool:
    """Whether it was asked to go. Until it is gone, it has its ordinal."""
    return instance.metadata.deletion_timestamp is not None


def is_held(instance: Instance) -> bool:
    """Whether someone works with it."""
    return instance.spec.assignment is not None


def is_draining(instance: Instance) -> bool:
    """Whether it is handed out no more."""
    return DRAINING in instance.metadata.annotations


def is_used(instance: Instance) -> bool:
    """Whether what its last holder left in it is only gone with it."""
    return USED in instance.metadata.annotations


def is_isolated(instance: Instance) -> bool:
    """Report whether it is known to be kept apart from the host, and to have no more network than anybody may have."""
    if instance.status is None:
        return False
    isolated = instance.status.condition("Isolated")
    return isolated is not None and isolated.status == "True" and not _is_beyond_policy(instance)


def why_open(instance: Instance) -> str:
    """Say why an instance that is not isolated is not."""
    return MORE_NETWORK if _is_beyond_policy(instance) else NOT_ISOLATED


def _is_beyond_policy(instance: Instance) -> bool:
    confined = instance.status.condition("NetworkConfined") if instance.status is not None else None
    return confined is not None and confined.reason == "BeyondPolicy"


def draining_since(instance: Instance, now: float) -> float | None:
    """Since when it is handed out no more. None if it is not, or if what is written there is no time that has come."""
    written = instance.metadata.annotations.get(DRAINING)
    try:
        since = datetime.fromisoformat(written) if written is not None else None
    except ValueError:
        return None
    if since is None or since.tzinfo is None or since.timestamp() > now + AHEAD_SECONDS_MAX:
        return None
    return min(since.timestamp(), now)


def draining_mark(now: float) -> str:
    """The annotation's value for one that is handed out no more from now on."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def is_programmed(instance: Instance) -> bool:
    """Whether the runtime has taken it on."""
    condition = instance.status.condition("Programmed") if instance.status else None
    return condition is not None and condition.status == "True"


def has_ended(instance: Instance) -> bool:
    """Whether it runs no more, and its restart policy does not bring it back."""
    phase = instance.status.phase if instance.status else None
    if phase not in ("Failed", "Succeeded"):
        return False
    return not restarts(instance.spec.restart_policy, failed=phase == "Failed")


def replaced_at(instance: Instance, now: float) -> float:
    """When another one takes the place of one that has ended: not so soon that they chase each other."""
    ended = instance.status.last_exit.time if instance.status and instance.status.last_exit else None
    known = [time.timestamp() for time in (ended, instance.metadata.creation_timestamp) if time is not None]
    return max((time for time in known if time <= now + AHEAD_SECONDS_MAX), default=0.0) + RESTART_SECONDS_MIN
