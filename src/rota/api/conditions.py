"""Changing conditions, as Kubernetes' controllers do."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from rota.api.meta import Condition
from rota.api.model import MESSAGE_LENGTH_MAX


def with_condition(conditions: Sequence[Condition], new: Condition, now: float) -> list[Condition]:
    """These conditions with a new one in its place. Its transition time is now only if its status is another one."""
    message = new.message if len(new.message) <= MESSAGE_LENGTH_MAX else new.message[: MESSAGE_LENGTH_MAX - 1] + "…"
    old = next((one for one in conditions if one.type == new.type), None)
    if old is not None and old.status == new.status and old.last_transition_time is not None:
        since = old.last_transition_time
    else:
        since = datetime.fromtimestamp(int(now), UTC)
    placed = msgspec.structs.replace(new, message=message, last_transition_time=since)
    if old is None:
        return [*conditions, placed]
    return [placed if one is old else one for one in conditions]


def without_condition(conditions: Sequence[Condition], type_: str) -> list[Condition]:
    """These conditions but for one."""
    return [one for one in conditions if one.type != type_]
