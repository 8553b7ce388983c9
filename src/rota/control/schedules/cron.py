"""Cron as Debian has it: what its five fields mean, and at which moments it ticks in a time zone.

What is written is read by cronsim, as is the rule for days: where both the day of the month and the day of the week
are given, either is enough. The moments are found here, because the clocks of some zones change by half an hour or at
midnight, where stepping through hours goes astray.

- Fixed times (neither minute nor hour begins with a star): one in the hour that is left out when the clocks go forward
  ticks right after it, once; one in the hour that is repeated ticks the first time only.
- All others go by the wall clock: nothing ticks in the hour that is left out, and the repeated one counts twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rota.control.schedules.zones import DAY_SECONDS, date_of, day_of, zone

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
PARSED_MAX = 8_192
DAYS_AHEAD_MAX = 50 * 366
"""Days within which a cron ticks, if it ever does: the rarest that are of use are weekdays on a 29th of February."""
EXAMPLE = '"*/5 * * * *" or "0 2 * * MON-FRI"'
ANYWHEN = datetime(2000, 1, 1, tzinfo=UTC)
_WHOLE_DAY = (0, DAY_SECONDS)


class BadCron(ValueError):  # noqa: N818
    """Something that is no cron, or that never ticks."""


class Cron:
    """When something ticks. Moments are whole seconds since 1970."""

    __slots__ = ("_fixed", "_hours", "_rule", "_seconds", "_zone", "text")

    def __init__(self, text: str, zone_name: str = "UTC") -> None:
        """Raises BadCron or NoSuchZone."""
        plain = NICKNAMES.get(text.strip(), text)
        fields = plain.split()
        if len(fields) != FIELDS:
            raise BadCron(f'cron "{text}" has {len(fields)} fields and not {FIELDS}; write {EXAMPLE}')
        try:
            self._rule = CronSim(plain, ANYWHEN)
        except CronSimError as error:
            raise BadCron(f'cron "{text}" is not understood: {str(error).lower()}; write {EXAMPLE}') from None
        self.text = f"{zone_name} {' '.join(fields)}"
        """The same for what ticks at the same moments, as far as that can be seen from how it is written."""
        self._zone: ZoneInfo = zone(zone_name)
        self._fixed = not fields[0].startswith("*") and not fields[1].startswith("*")
        rule = self._rule
        self._seconds = sorted(60 * minute + 3600 * hour for hour in rule.hours for minute in rule.minutes)

    def after(self, time: int) -> int | None:
        """The first tick after a moment; None if there is none for a lifetime."""
        day = day_of(self._zone, time)
        for at in self._days(day - 1, day + DAYS_AHEAD_MAX, 1):
            ticks = [tick for near in (at, at + 1) for tick in self._first(near, time)]
            if ticks:
                return min(ticks)
        return None

    def until(self, time: int, since: int) -> int | None:
        """The last tick up to a moment, that moment included, and after another."""
        day, first = day_of(self._zone, time), day_of(self._zone, since)
        for at in self._days(day + 1, first - 2, -1):
            ticks = [tick for near in (at, at - 1) for tick in self._last(near, time)]
            if ticks:
                tick = max(ticks)
                return tick if tick > since else None
        return None

    def _days(self, first: int, beyond: int, step: int) -> Iterator[int]:
        """Days on which something may tick, in order."""
        for day in range(first, beyond, step):
            if self._is_on(day):
                yield day

    def _is_on(self, day: int) -> bool:
        date = date_of(day)
        return date.month in self._rule.months and self._rule.match_day(date)

    # One day.

    def _first(self, day: int, time: int) -> Iterator[int]:
        """Of the ticks of a day that come after a moment, the first of each stretch."""
        if self._is_on(day):
            for low, high, shift in self._runs(day):
                at = bisect_left(self._seconds, max(low, time + 1 - shift)) if shift is not None else 0
                raise NotImplementedError(at, high)
        return iter(())

    def _last(self, day: int, time: int) -> Iterator[int]:
        raise NotImplementedError
