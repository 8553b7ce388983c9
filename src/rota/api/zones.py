"""Local days: the wall clock of a time zone during a day, as stretches of one UTC offset each."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAY_SECONDS = 86_400
MARGIN_SECONDS = 26 * 3600
"""Seconds on both sides of a UTC day that may belong to that day in some zone."""
PROBE_SECONDS = 6 * 3600
"""Seconds within which no zone changes its clocks twice."""
ZONES_MAX = 1_024
DAYS_MAX = 4_096
NOT_ZONES = ("posix/", "right/", "localtime", "posixrules", "Factory")
"""Files beside the zones, whose meaning depends on the machine or on leap seconds."""


class NoSuchZone(ValueError):  # noqa: N818
    """A name that is not a time zone known to this machine. The message does not repeat the name."""


class Stretch(NamedTuple):
    """A stretch of time of one UTC offset, in seconds since 1970."""

    begin: int
    end: int
    offset: int
    """Seconds by which the wall clock is ahead of UTC."""


@lru_cache(maxsize=ZONES_MAX)
def zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name. Raises NoSuchZone."""
    if not name.startswith(NOT_ZONES):
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    raise NoSuchZone("it is no time zone; write an IANA name such as Europe/Berlin or UTC")


def offset_at(zone: ZoneInfo, time: int) -> int:
    """Return the seconds by which the wall clock is ahead of UTC at an instant."""
    offset = datetime.fromtimestamp(time, zone).utcoffset()
    assert offset is not None
    return offset.days * DAY_SECONDS + offset.seconds


@lru_cache(maxsize=DAYS_MAX)
def stretches(zone: ZoneInfo, day: int) -> tuple[Stretch, ...]:
    """Return the stretches around a day, counted from 1970. There is one unless the clocks change near it."""
    begin, end = day * DAY_SECONDS - MARGIN_SECONDS, (day + 1) * DAY_SECONDS + MARGIN_SECONDS
    found: list[Stretch] = []
    at, offset = begin, offset_at(zone, begin)
    while at < end:
        then = min(at + PROBE_SECONDS, end)
        after = offset_at(zone, then)
        if after == offset:
            at = then
            continue
        change = _change(zone, at, then, offset)
        found.append(Stretch(found[-1].end if found else begin, change, offset))
        at, offset = change, after
    found.append(Stretch(found[-1].end if found else begin, end, offset))
    return tuple(found)


def _change(zone: ZoneInfo, before: int, after: int, offset: int) -> int:
    """Return the first second between two instants at which the offset differs."""
    while after - before > 1:
        middle = (before + after) // 2
        if offset_at(zone, middle) == offset:
            before = middle
        else:
            after = middle
    return after


def day_of(zone: ZoneInfo, time: int) -> int:
    """Return the local day of an instant, counted from 1970."""
    return (time + offset_at(zone, time)) // DAY_SECONDS


@lru_cache(maxsize=DAYS_MAX)
def date_of(day: int) -> date:
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC).date()
