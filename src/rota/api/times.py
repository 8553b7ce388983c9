"""Checks of the cron expression and the time zone of a schedule.

They import the cron and zone modules when they first run: the import is slow, and most processes need no schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rota.api.model import Check, Rule, Wrong

BLANK, NO_BLANK = "[ \t]", "[^ \t]"
"""Character classes with a literal tab, which all dialects of patterns read alike."""
_NUMBERS = (
    "0*([0-9]|[1-5][0-9])",
    "0*([0-9]|1[0-9]|2[0-3])",
    "0*([1-9]|[12][0-9]|3[01])",
    "0*([1-9]|1[0-2])|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC",
    "0*[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT",
)
_TEXTS = (
    "minute must be 0 to 59",
    "hour must be 0 to 23",
    "day of the month must be 1 to 31, or L",
    "month must be 1 to 12, or JAN to DEC",
    "day of the week must be 0 to 7, or SUN to SAT",
)


def _rules() -> Iterator[Rule]:
    """Yield a rule for each field alone, as far as a pattern can express it: reversed ranges and 30 FEB pass."""
    for place, (number, text) in enumerate(zip(_NUMBERS, _TEXTS, strict=True)):
        value = f"({number})"
        term = f"([*]|{value}(-{value})?{'|LW?' if place == 2 else ''})(/0*[1-9][0-9]*)?"
        if place == 4:
            term = f"({term}|{value}#0*[1-5]|[0-9]+L)"
        before = f"^{BLANK}*({NO_BLANK}+{BLANK}+){{{place}}}"
        is_there = f"self.cron.matches(r'{before}{NO_BLANK}') && !self.cron.contains('@')"
        is_good = f"self.cron.upperAscii().matches(r'{before}{term}(,{term})*({BLANK}|$)')"
        yield Rule(f"!({is_there}) || {is_good}", text, "cron")


def _find(spec: dict[str, Any]) -> Iterator[Wrong]:
    from rota.api.cron import BadCron, cron
    from rota.api.zones import NoSuchZone, zone

    text, zone_name = spec["cron"], spec["timeZone"]
    try:
        cron(text)
    except BadCron as why:
        yield Wrong("cron", text, str(why))
    try:
        zone(zone_name)
    except NoSuchZone as why:
        yield Wrong("timeZone", zone_name, str(why))


TIMES = Check(_find, ("cron", "timeZone"), tuple(_rules()))
"""Checks that a schedule ticks, and that this machine knows its time zone."""
