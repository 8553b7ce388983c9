"""The state of an object and its reason, from its status and the outcome of its last run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from rota.api import Object
from rota.engine.outcome import Blocked, Failed, RequeueAfter
from rota.engine.view import NodeView

State = Literal["Ready", "Pending", "Failed", "Skipped", "Absent", "Deleting"]

SPINNING = "Spinning"
READINESS_CONDITIONS = ("Ready", "Available", "Enforced", "Granted", "ResolvedRefs")
"""The conditions that determine readiness."""


class ConditionSummary(Struct, frozen=True, rename="camel"):
    """A condition of an object, for display."""

    type: str
    status: str
    reason: str
    message: str
    since: str
    """The time of its last change, as RFC 3339; empty if unknown."""


def state_of(obj: Object | None) -> State:
    if obj is None:
        return "Absent"
    return "Deleting" if obj.metadata.deletion_timestamp is not None else obj.readiness().state


def state_and_reason(obj: Object, node: NodeView | None) -> tuple[State, str, str]:
    """Return the state of an object with reason and message, from its status and the outcome of its last run."""
    state, readiness = state_of(obj), obj.readiness()
    if state == "Deleting":
        holders = ", ".join(obj.metadata.finalizers)
        return state, "Deleting", f"it is being deleted{f', held by {holders}' if holders else ''}"
    if is_over(obj):
        return state, readiness.reason, readiness.message
    turning = spinning(obj, node)
    if turning:
        return state, SPINNING, turning
    outcome = node.outcome if node is not None else None
    if isinstance(outcome, Failed) and state != "Ready":
        return "Failed", outcome.reason, outcome.message
    if isinstance(outcome, Blocked | RequeueAfter | Failed) and outcome.reason:
        return state, outcome.reason, outcome.message
    return state, readiness.reason, readiness.message


def is_over(obj: Object) -> bool:
    """Report whether an object is finished, so that its references do not matter any more."""
    ended = getattr(getattr(obj, "status", None), "completion_time", None) is not None
    return ended or obj.readiness().state in ("Failed", "Skipped")


def spinning(obj: Object, node: NodeView | None) -> str:
    """Return the message of an object that is reconciled over and over; empty if it is not."""
    outcome = node.outcome if node is not None else None
    if isinstance(outcome, RequeueAfter) and outcome.reason == SPINNING:
        return outcome.message
    said = next((c for c in _status_conditions(obj) if c.type == SPINNING and c.status == "True"), None)
    return "" if said is None else said.message or SPINNING


def since_of(obj: Object, state: State) -> datetime | None:
    status = getattr(obj, "status", None)
    if state == "Deleting":
        return obj.metadata.deletion_timestamp
    for moment in ("completion_time", "start_time"):
        if (at := getattr(status, moment, None)) is not None:
            return at  # type: ignore[no-any-return]
    for type_ in READINESS_CONDITIONS:
        for condition in _status_conditions(obj):
            if condition.type == type_ and condition.last_transition_time is not None:
                return condition.last_transition_time  # type: ignore[no-any-return]
    return obj.metadata.creation_timestamp


def _status_conditions(obj: Object | None) -> Iterable[Any]:
    return getattr(getattr(obj, "status", None), "conditions", ())


def conditions_of(obj: Object | None) -> list[ConditionSummary]:
    return [
        ConditionSummary(c.type, c.status, c.reason, c.message, written(c.last_transition_time))
        for c in _status_conditions(obj)
    ]


def written(time: datetime | None) -> str:
    return "" if time is None else time.isoformat().replace("+00:00", "Z")
