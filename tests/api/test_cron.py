"""Cron equals an oracle that walks through every minute, wherever and whenever clocks change."""

from __future__ import annotations

import os
import random
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from rota.api.cron import BadCron, Cron, cron
from rota.api.zones import NoSuchZone, zone
from tests.amount import amount
from tests.schedules import oracle
from tests.schedules.zones import AUTUMN, DAYS, HOURS, MINUTES, MONTH_SECONDS, MONTHS, SPRING, WEEKDAYS, ZONES

BERLIN = "Europe/Berlin"
CRONS_PER_ZONE = int(os.environ.get("ROTA_CRONS_PER_ZONE", amount(2, 25)))
"""25 makes it 1,000 schedules, for each of the two months; with fewer, each zone has one of them."""
MANY = 25
MONTHS_OF_ZONES = [
    (name, begin)
    for number, name in enumerate(ZONES)
    for begin in (SPRING, AUTUMN)
    if CRONS_PER_ZONE >= MANY or number % 2 == (begin == AUTUMN)
]


def moment(text: str, zone_name: str = BERLIN) -> int:
    """A moment by what the wall clock shows; * after it: the second time."""
    naive = datetime.fromisoformat(text.rstrip("*"))
    return int(naive.replace(tzinfo=ZoneInfo(zone_name), fold=int(text.endswith("*"))).timestamp())


def ticks(text: str, zone_name: str, begin: int, end: int) -> list[int]:
    found, at = [], begin - 1
    while (tick := cron(text, zone_name).after(at)) is not None and tick < end:
        found.append(tick)
        at = tick
    return found


def ticks_backwards(text: str, zone_name: str, begin: int, end: int) -> list[int]:
    found, at = [], end
    while (tick := cron(text, zone_name).until(at - 1, begin - 1)) is not None:
        found.append(tick)
        at = tick
    return found[::-1]


def any_cron(chance: random.Random) -> str:
    return " ".join(chance.choice(field) for field in (MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS))


@pytest.mark.parametrize(("zone_name", "begin"), MONTHS_OF_ZONES)
def test_a_month_in_which_clocks_change_is_as_the_oracle_says(zone_name: str, begin: int) -> None:
    chance = random.Random(f"{zone_name} {begin}")
    end = begin + MONTH_SECONDS
    for _ in range(CRONS_PER_ZONE):
        text = any_cron(chance)
        expected = oracle.ticks(text, zone_name, begin, end)
        assert ticks(text, zone_name, begin, end) == expected, text
        assert ticks_backwards(text, zone_name, begin, end) == expected, text


@pytest.mark.parametrize("zone_name", ["UTC", BERLIN, "America/New_York", "Asia/Kolkata"])
def test_where_clocks_change_by_the_hour_it_is_as_cronsim_says(zone_name: str) -> None:
    chance = random.Random(zone_name)
    end = SPRING + MONTH_SECONDS
    for _ in range(10):
        text = any_cron(chance)
        found = []
        for tick in CronSim(text, datetime.fromtimestamp(SPRING - 1, ZoneInfo(zone_name))):
            if tick.timestamp() >= end:
                break
            found.append(int(tick.timestamp()))
        assert ticks(text, zone_name, SPRING, end) == found, text


@given(st.sampled_from(ZONES), st.integers(SPRING, AUTUMN + MONTH_SECONDS), st.randoms(use_true_random=False))
def test_looking_forth_and_back_find_the_same_ticks(zone_name: str, at: int, chance: random.Random) -> None:
    text = any_cron(chance)
    ticking = cron(text, zone_name)
    following = ticking.after(at)
    assert following is not None and following > at
    assert ticking.until(following, at) == following
    assert ticking.until(following - 1, at) is None
    assert ticking.after(following - 1) == following


@pytest.mark.parametrize(
    ("text", "begin", "found"),
    [
        ("30 2 * * *", "2026-03-29T00:00", ["2026-03-29T03:00"]),
        ("15,45 2 * * *", "2026-03-29T00:00", ["2026-03-29T03:00"]),
        ("0 3 * * *", "2026-03-29T00:00", ["2026-03-29T03:00"]),
        ("*/30 2 * * *", "2026-03-29T00:00", []),
        ("0 * * * *", "2026-03-29T01:00", ["2026-03-29T01:00", "2026-03-29T03:00", "2026-03-29T04:00"]),
        ("30 2 * * *", "2026-10-25T00:00", ["2026-10-25T02:30"]),
        ("30 * * * *", "2026-10-25T02:00", ["2026-10-25T02:30", "2026-10-25T02:30*", "2026-10-25T03:30"]),
    ],
)
def test_where_clocks_change_it_is_as_debian_has_it(text: str, begin: str, found: list[str]) -> None:
    first = moment(begin)
    end = max([moment(one) for one in found], default=first + 6 * 3600) + 60
    assert ticks(text, BERLIN, first, end) == [moment(one) for one in found]


@pytest.mark.parametrize(
    ("nickname", "text"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_a_nickname_is_what_it_stands_for(nickname: str, text: str) -> None:
    assert cron(nickname).text == cron(text).text


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("0 0 13 * FRI", "2026-01-09"),
        ("0 0 */2 * FRI", "2026-01-09"),
        ("0 0 10 * */2", "2026-01-10"),
        ("0 0 29 2 *", "2028-02-29"),
        ("0 0 L * *", "2026-01-31"),
        ("0 0 * * MON#2", "2026-01-12"),
        ("0 0 * * 7", "2026-01-11"),
    ],
)
def test_days_are_as_debian_has_them(text: str, first: str) -> None:
    assert cron(text).after(moment("2026-01-05T12:00", "UTC")) == moment(first, "UTC")


def test_a_day_that_a_zone_left_out_ticks_right_after_it() -> None:
    begin = moment("2011-12-29T12:00", "Pacific/Apia")
    assert cron("0 10 30 12 *", "Pacific/Apia").after(begin) == moment("2011-12-31T00:00", "Pacific/Apia")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("0 * * * * *", "has 6 fields"),
        ("60 * * * *", "minute 60 is too high"),
        ("* 24 * * *", "hour 24 is too high"),
        ("* * 0 * *", "day of the month 0 is too low"),
        ("* * * 13 *", "month 13 is too high"),
        ("* * * * 8", "day of the week 8 is too high"),
        ("*/0 * * * *", "minute: the step is 0"),
        ("5-1 * * * *", "minute 5-1 goes backwards"),
        ("0 0 31 4 *", "never ticks"),
        ("@reboot", "@reboot is not known"),
        ("L/2 * * * *", "minute 'L' is not known"),
        ("0 0 */31 2 MON#5", "never ticks"),
    ],
)
def test_what_is_no_cron_is_told(text: str, why: str) -> None:
    with pytest.raises(BadCron, match=why):
        cron(text)


@pytest.mark.parametrize(
    "name", ["Europe/Atlantis", "Europe", "localtime", "posix/Europe/Berlin", "right/UTC", "../etc/passwd", "a" * 64]
)
def test_what_is_no_zone_is_told(name: str) -> None:
    with pytest.raises(NoSuchZone, match="IANA name such as Europe/Berlin"):
        zone(name)


def test_whatever_is_written_is_understood_or_refused() -> None:
    chance = random.Random(7)
    for _ in range(3_000):
        text = " ".join("".join(chance.choices("0123456789*/-,L#WMONJAN?", k=chance.randint(1, 4))) for _ in range(5))
        try:
            ticking = Cron(text, "UTC")
        except BadCron:
            continue
        following = ticking.after(SPRING)
        assert following is None or following <= SPRING + timedelta(days=51 * 366).total_seconds()
