"""When cron ticks, found by walking through every minute: slow, plain, and written without a look at the real thing.

As Debian's cron does it. A clock on the wall is read every minute. A job that goes by the wall clock runs when that
shows a matching time. A job at fixed times runs when the wall clock reaches, or has jumped over, a matching time that
it has not shown before.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
LOOK_BACK_MINUTES = 3 * 60
"""Before the first minute that is asked for: what the wall clock has shown already."""


class Minute(NamedTuple):
    """A minute that passes."""

    time: int
    wall: datetime
    """The time that the wall clock shows."""
    new: tuple[datetime, ...]
    """The times that it shows for the first time, or has jumped over."""


@lru_cache(maxsize=4)
def minutes(zone: str, begin: int, end: int) -> list[Minute]:
    """Every minute between two moments."""
    where = ZoneInfo(zone)
    found, reached = [], None
    for time in range(begin - LOOK_BACK_MINUTES * 60, end, 60):
        wall = datetime.fromtimestamp(time, where).replace(tzinfo=None, fold=0)
        new: list[datetime] = []
        if reached is None:
            reached = wall
        while reached < wall:
            reached += timedelta(minutes=1)
            new.append(reached)
        if time >= begin:
            found.append(Minute(time, wall, tuple(new)))
    return found


class Fields:
    """The five fields."""

    def __init__(self, text: str) -> None:
        fields = NICKNAMES.get(text, text).lower().split()
        minute, hour, day, month, weekday = fields
        self.minute = set(_values(minute, 0, 59))
        self.hour = set(_values(hour, 0, 23))
        self.day = set(_values(day, 1, 31))
        self.month = set(_values(month, 1, 12, MONTHS, 1))
        self.weekday = {value % 7 for value in _values(weekday, 0, 7, DAYS, 0)}
        self.by_wall = minute[0] == "*" or hour[0] == "*"
        self.both = day[0] == "*" or weekday[0] == "*"

    def match(self, wall: datetime) -> bool:
        if wall.minute not in self.minute or wall.hour not in self.hour or wall.month not in self.month:
            return False
        day = wall.day in self.day
        weekday = (calendar.weekday(wall.year, wall.month, wall.day) + 1) % 7 in self.weekday
        return (day and weekday) if self.both else (day or weekday)


def _values(field: str, low: int, high: int, names: Sequence[str] = (), first: int = 0) -> Iterator[int]:
    for part in field.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            begin, end = low, high
        else:
            begin, end = (_value(one, names, first) for one in (span.split("-") * 2)[:2])
        yield from range(begin, end + 1, int(step or 1))


def _value(text: str, names: Sequence[str], first: int) -> int:
    return names.index(text) + first if text in names else int(text)


def ticks(text: str, zone: str, begin: int, end: int) -> list[int]:
    """The moments at which a cron ticks, from a full minute until before another one."""
    fields = Fields(text)
    if fields.by_wall:
        return [minute.time for minute in minutes(zone, begin, end) if fields.match(minute.wall)]
    return [minute.time for minute in minutes(zone, begin, end) if any(map(fields.match, minute.new))]
