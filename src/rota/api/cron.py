"""Cron as in Debian: the meaning of its five fields, and the times at which it ticks in a time zone.

The library cronsim parses the expression and decides on which days it ticks: if both the day of the month and the day
of the week are given, either is enough. The instants are computed here, because the clocks of some zones change by half
an hour or at midnight, where stepping through hours gives wrong results.

- Fixed times (neither minute nor hour begins with a star): one in the hour that is left out when the clocks go forward
  ticks right after it, once; one in the hour that is repeated ticks the first time only.
- All others go by the wall clock: nothing ticks in the hour that is left out, and the repeated one counts twice.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rota.api import cron_fields
from rota.api.cron_fields import problem
from rota.api.zones import DAY_SECONDS, DAYS_MAX, date_of, day_of, stretches, zone

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = 5
PARSED_MAX = 4_096
DAYS_AHEAD_MAX = 50 * 366
"""Bound on the days searched for a tick. The rarest useful cron asks for a weekday on a 29th of February."""
DAYS_OF_EACH_MONTH = 28
EXAMPLE = '"*/5 * * * *" or "0 2 * * MON-FRI"'
NAMES = ", ".join(field.name for field in cron_fields.FIELDS)
NEVER = "it never ticks: no month that it names has such a day"
ANYWHEN = datetime(2000, 1, 1, tzinfo=UTC)


class BadCron(ValueError):  # noqa: N818
    """A text that is not a cron expression, or that never ticks. The message does not repeat the text."""


class _Days:
    """The days on which a cron ticks, as bit sets, since there may be many."""

    __slots__ = ("_both", "_days", "_months", "_weekdays", "rule")

    def __init__(self, rule: CronSim) -> None:
        plain = [one for one in rule.weekdays if isinstance(one, int)]
        self._months = _bits(rule.months)
        self._days = _bits(one for one in rule.days if one > 0)
        self._weekdays = _bits(one % 7 for one in plain)
        self._both = rule.day_and
        is_plain = len(plain) == len(rule.weekdays) and 1 <= min(rule.days) <= DAYS_OF_EACH_MONTH
        self.rule = None if is_plain else rule
        """The rule of cronsim, for days that count from the end of the month or are not in every month; else None."""

    def match(self, date: date) -> bool:
        if not self._months >> date.month & 1:
            return False
        if self.rule is not None:
            return bool(self.rule.match_day(date))
        day, weekday = self._days >> date.day & 1, self._weekdays >> date.isoweekday() % 7 & 1
        return bool(day and weekday if self._both else day or weekday)

    def upwards(self, first: int, beyond: int) -> Iterator[int]:
        """Yield the days of its months in order, from `first` until before `beyond`."""
        day = first
        while day < beyond:
            date = date_of(day)
            if self._months >> date.month & 1:
                yield day
                day += 1
            else:
                day += monthrange(date.year, date.month)[1] - date.day + 1

    def downwards(self, first: int, beyond: int) -> Iterator[int]:
        day = first
        while day > beyond:
            date = date_of(day)
            if self._months >> date.month & 1:
                yield day
                day -= 1
            else:
                day -= date.day


def _bits(numbers: Iterable[int]) -> int:
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


class Span(NamedTuple):
    """Times of a day on the wall clock, in seconds, and the instants at which they occur."""

    low: int
    high: int
    shift: int
    """Seconds to add to a time to get its instant."""
    moment: int | None = None
    """The instant at which all these times occur, if the clocks skip them."""


class Cron:
    """A cron expression in a time zone. Instants are whole seconds since 1970."""

    __slots__ = ("_days", "_fixed", "_times", "_zone", "text")

    def __init__(self, text: str, zone_name: str) -> None:
        plain = NICKNAMES.get(text.strip(), text)
        fields = plain.split()
        if text.strip().startswith("@") and plain is text:
            raise BadCron(f"{fields[0]} is not known: there are {', '.join(NICKNAMES)}, and five fields: {EXAMPLE}")
        if len(fields) != FIELDS:
            raise BadCron(f"it has {_counted(len(fields))}, and must have {FIELDS}: {NAMES}; write {EXAMPLE}")
        if why := problem(fields):
            raise BadCron(why)
        try:
            rule = CronSim(plain, ANYWHEN)
        except CronSimError as error:
            raise BadCron(NEVER if "day-of-month" in str(error) else f"{str(error).lower()}; write {EXAMPLE}") from None
        except (ValueError, AssertionError):
            raise BadCron(f"it is not understood; write {EXAMPLE}") from None
        self._zone: ZoneInfo = zone(zone_name)
        self._fixed = not fields[0].startswith("*") and not fields[1].startswith("*")
        self._times = array("i", sorted(3600 * hour + 60 * minute for hour in rule.hours for minute in rule.minutes))
        self._days = _Days(rule)
        self.text = f"{zone_name} {' '.join(fields)}"
        """Normalized text: equal for expressions that differ in spaces only."""

    @property
    def is_rare(self) -> bool:
        """Report whether the cron may never tick."""
        return self._days.rule is not None

    def after(self, time: int) -> int | None:
        """Return the first tick after an instant; None if there is none within `DAYS_AHEAD_MAX`."""
        day = day_of(self._zone, time)
        # Where the clocks are put back over midnight, a day comes twice.
        margin = 1 if len(stretches(self._zone, day)) > 1 else 0
        for at in self._days.upwards(day - margin, day + DAYS_AHEAD_MAX):
            ticks = [*self._first(at, time)]
            if ticks:
                return min([*ticks, *self._first(at + 1, time)]) if len(stretches(self._zone, at)) > 1 else ticks[0]
        return None

    def until(self, time: int, since: int) -> int | None:
        """Return the last tick at or before `time` that is after `since`; None if there is none."""
        day, beyond = day_of(self._zone, time), day_of(self._zone, since) - 2
        margin = 1 if len(stretches(self._zone, day)) > 1 else 0
        for at in self._days.downwards(day + margin, beyond):
            ticks = [*self._last(at, time)]
            if ticks:
                tick = max([*ticks, *self._last(at - 1, time)]) if len(stretches(self._zone, at)) > 1 else ticks[-1]
                return tick if tick > since else None
        return None

    # One day.

    def _first(self, day: int, time: int) -> Iterator[int]:
        """Yield the first tick of each span of a day that is after an instant."""
        times = self._times
        for low, high, shift, moment in self._spans(day):
            at = bisect_left(times, low if moment is not None else max(low, time + 1 - shift))
            if at < len(times) and times[at] < high:
                tick = times[at] + shift if moment is None else moment
                if tick > time:
                    yield tick

    def _last(self, day: int, time: int) -> Iterator[int]:
        """Yield the last tick of each span of a day that is not after an instant."""
        times = self._times
        for low, high, shift, moment in self._spans(day):
            at = bisect_right(times, high - 1 if moment is not None else min(high - 1, time - shift)) - 1
            if at >= 0 and times[at] >= low:
                tick = times[at] + shift if moment is None else moment
                if tick <= time:
                    yield tick

    def _spans(self, day: int) -> tuple[Span, ...]:
        if not self._days.match(date_of(day)):
            return ()
        return (_fixed_spans if self._fixed else _wall_spans)(self._zone, day)


def _counted(count: int) -> str:
    return f"{count} field{'' if count == 1 else 's'}"


@lru_cache(maxsize=PARSED_MAX)
def cron(text: str, zone_name: str = "UTC") -> Cron:
    """Parse a cron expression. Raises BadCron or NoSuchZone."""
    found = Cron(text, zone_name)
    if found.is_rare and found.after(int(ANYWHEN.timestamp())) is None:
        raise BadCron(NEVER)
    return found


@lru_cache(maxsize=DAYS_MAX)
def _wall_spans(zone: ZoneInfo, day: int) -> tuple[Span, ...]:
    """Return the spans of a day on the wall clock. Skipped times are missing, repeated ones are there twice."""
    begin = day * DAY_SECONDS
    found = []
    for one in stretches(zone, day):
        low, high = max(0, one.begin + one.offset - begin), min(DAY_SECONDS, one.end + one.offset - begin)
        if low < high:
            found.append(Span(low, high, begin - one.offset))
    return tuple(found)


@lru_cache(maxsize=DAYS_MAX)
def _fixed_spans(zone: ZoneInfo, day: int) -> tuple[Span, ...]:
    """Return the spans of a day in which each time occurs once: skipped ones right after the gap, repeated ones
    first."""
    begin = day * DAY_SECONDS
    found, reached = [], 0
    for one in stretches(zone, day):
        low, high = one.begin + one.offset - begin, min(DAY_SECONDS, one.end + one.offset - begin)
        if reached < low and reached < DAY_SECONDS:
            found.append(Span(reached, min(low, DAY_SECONDS), 0, one.begin))
        low = max(low, reached)
        if low < high:
            found.append(Span(low, high, begin - one.offset))
        reached = max(reached, high)
    return tuple(found)
