"""How long Events are kept: which of a namespace's must go, and when to look again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rota.api import Event

EVENT_KEEP_SECONDS = 3600.0
"""After an Event was last seen."""
EVENTS_PER_NAMESPACE_MAX = 1_000
AHEAD_SECONDS_MAX = 60.0
"""How far a writer's clock may be ahead. A time beyond that says nothing: it would keep its Event for ever."""
LOOK_SECONDS_MIN = 1.0


def seen_at(event: Event, now: float) -> float:
    """When an Event was last seen, in seconds since 1970; now, if it does not say."""
    times = (
        event.last_timestamp,
        event.series.last_observed_time if event.series else None,
        event.event_time,
        event.metadata.creation_timestamp,
    )
    seconds = (time.timestamp() for time in times if isinstance(time, datetime))
    return max((at for at in seconds if at <= now + AHEAD_SECONDS_MAX), default=now)


def expired(event: Event, now: float) -> bool:
    """Whether an Event is too old to be kept."""
    return now - seen_at(event, now) >= EVENT_KEEP_SECONDS


def overdue(events: Sequence[Event], now: float) -> tuple[list[Event], float | None]:
    """Of the Events of one namespace: those that must go, the oldest first, and in how many seconds to look again.

    None is to look again only when there are others.
    """
    there = [event for event in events if event.metadata.deletion_timestamp is None]
    there.sort(key=lambda event: (seen_at(event, now), event.metadata.name))
    beyond = len(there) - EVENTS_PER_NAMESPACE_MAX
    gone = [event for place, event in enumerate(there) if place < beyond or expired(event, now)]
    if len(gone) == len(there):
        return gone, None
    # Those that go are the first, for they are the oldest.
    due = seen_at(there[len(gone)], now) + EVENT_KEEP_SECONDS
    return gone, max(LOOK_SECONDS_MIN, due - now)
