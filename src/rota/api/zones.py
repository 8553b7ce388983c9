"""Local days: how the wall clock of a time zone runs through a day, as stretches of time with one offset each."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAY_SECONDS = 86_400
MARGIN_SECONDS = 26 * 3600
"""On both sides of a day in UTC, what may belong to that day somewhere."""
PROBE_SECONDS = 6 * 3600
"""No zone changes its clocks twice within this."""
ZONES_MAX = 1_024
DAYS_MAX = 4_096
NOT_ZONES = ("posix/", "right/", "localtime", "posixrules", "Factory")
"""Files beside the zones, whose meaning depends on the machine or on leap seconds."""


class NoSuchZone(ValueError):  # noqa: N818
    """Why a name is no time zone that this machine knows. The name itself is not repeated in it."""


class Stretch(NamedTuple):
    """Time in which a wall clock runs evenly. All of it in seconds, since 1970 or since 1970 on the wall clock."""

    begin: int
    end: int
    offset: int
    """What the wall clock is ahead of UTC."""


@lru_cache(maxsize=ZONES_MAX)
def zone(name: str) -> ZoneInfo:
    """A time zone by its IANA name. Raises NoSuchZone."""
    if not name.startswith(NOT_ZONES):
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    raise NoSuchZone("it is no time zone; write an IANA name such as Europe/Berlin or UTC")


def offset_at(zone: ZoneInfo, time: int) -> int:
    """By how many seconds the wall clock is ahead of UTC at a moment."""
    offset = datetime.fromtimestamp(time, zone).utcoffset()
    assert offset is not None
    return offset.days * DAY_SECONDS + offset.seconds


@lru_cache(maxsize=DAYS_MAX)
def stretches(zone: ZoneInfo, day: int) -> tuple[Stretch, ...]:
    """The stretches around a day, which is counted from 1970: one where no clock is changed on it or beside it."""
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
    """The first second between two moments at which the offset is another one."""
    while after - before > 1:
        middle = (before + after) // 2
        if offset_at(zone, middle) == offset:
            before = middle
        else:
            after = middle
    return after


def day_of(zone: ZoneInfo, time: int) -> int:
    """The day that a calendar on the wall shows, counted from 1970."""
    return (time + offset_at(zone, time)) // DAY_SECONDS


@lru_cache(maxsize=DAYS_MAX)
def date_of(day: int) -> date:
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC).date()
