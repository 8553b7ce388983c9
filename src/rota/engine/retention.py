"""Retention of Events: those of a namespace that must be deleted, and the time of the next check."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rota.api import Event

EVENT_KEEP_SECONDS = 3600.0
"""Seconds that an Event is kept after its last occurrence."""
EVENTS_PER_NAMESPACE_MAX = 1_000
AHEAD_SECONDS_MAX = 60.0
"""Bound on the clock skew of writers. Times beyond it are ignored: they would keep an Event for ever."""
LOOK_SECONDS_MIN = 1.0


def last_occurrence(event: Event, now: float) -> float:
    """Return the time of an Event's last occurrence, in seconds since 1970; `now` if it has none."""
    times = (
        event.last_timestamp,
        event.series.last_observed_time if event.series else None,
        event.event_time,
        event.metadata.creation_timestamp,
    )
    seconds = (time.timestamp() for time in times if isinstance(time, datetime))
    return max((at for at in seconds if at <= now + AHEAD_SECONDS_MAX), default=now)


def expired(event: Event, now: float) -> bool:
    """Report whether an Event is too old to be kept."""
    return now - last_occurrence(event, now) >= EVENT_KEEP_SECONDS


def overdue(events: Sequence[Event], now: float) -> tuple[list[Event], float | None]:
    """Return the Events of a namespace to delete, oldest first, and the seconds until the next check.

    The seconds are None if no Event remains.
    """
    there = [event for event in events if event.metadata.deletion_timestamp is None]
    there.sort(key=lambda event: (last_occurrence(event, now), event.metadata.name))
    beyond = len(there) - EVENTS_PER_NAMESPACE_MAX
    gone = [event for place, event in enumerate(there) if place < beyond or expired(event, now)]
    if len(gone) == len(there):
        return gone, None
    # The ones to delete are the first, as they are the oldest.
    due = last_occurrence(there[len(gone)], now) + EVENT_KEEP_SECONDS
    return gone, max(LOOK_SECONDS_MIN, due - now)
