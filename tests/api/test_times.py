"""When something is to happen: what is no cron or no time zone is refused, in words, and nothing else is."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from cronsim import CronSim, CronSimError

from rota.api import KINDS, cel
from rota.api.cron import ANYWHEN, BadCron, Cron, cron
from rota.api.form import form
from rota.api.times import TIMES
from tests.examples import example

ANY = "0123456789*/-,L#WMONJANDEC?"
LIKELY = ("*", "*/5", "0", "59", "60", "1-5", "5-1", "1-5/2", "7", "8", "L", "LW", "MON", "mon-fri", "JAN", "dec", "31")


def schedule(cron: str, zone: str = "UTC") -> dict[str, Any]:
    spec = {"cron": cron, "timeZone": zone, "target": {"functionRef": {"name": "f"}}}
    return example("Schedule", spec)


def found(cron: str, zone: str = "UTC") -> list[str]:
    shape, obj = form(KINDS["Schedule"]), schedule(cron, zone)
    _, problems = shape.conform(obj)
    return [str(problem) for problem in shape.break_rules(obj, None, problems)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("61 * * * *", "minute 61 is too high: it must be 0 to 59"),
        ("* 24 * * *", "hour 24 is too high: it must be 0 to 23"),
        ("* * 0 * *", "day of the month 0 is too low: it must be 1 to 31, or L for the last"),
        ("* * * 13 *", "month 13 is too high: it must be 1 to 12, or JAN to DEC"),
        ("* * * * FOO", "day of the week 'FOO' is not known: it must be 0 to 7, or SUN to SAT (0 and 7 are Sunday)"),
        ("*/0 * * * *", "minute: the step is 0, and must be 1 or more"),
        ("@fortnightly", "@fortnightly is not known: there are @hourly, @daily, "),
        ("* * * *", "it has 4 fields, and must have 5: minute, hour, day of the month, month, day of the week"),
        ("0 0 30 2 *", "it never ticks: no month that it names has such a day"),
    ],
)
def test_a_bad_cron_is_refused_with_the_number_that_is_wrong_and_the_range(text: str, why: str) -> None:
    (problem,) = found(text)
    assert problem.startswith(f'spec.cron: Invalid value: "{text}": {why}')


def test_a_zone_that_there_is_not_is_refused() -> None:
    (problem,) = found("* * * * *", "Mars/Base")
    assert problem == (
        'spec.timeZone: Invalid value: "Mars/Base": it is no time zone; write an IANA name such as Europe/Berlin or UTC'
    )


def test_a_bad_zone_does_not_hide_a_bad_cron() -> None:
    assert [problem.partition(":")[0] for problem in found("61 * * * *", "Mars/Base")] == ["spec.cron", "spec.timeZone"]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT-2", "EST5EDT"])
def test_zones_with_and_without_summer_time_are_taken(zone: str) -> None:
    assert not found("30 2 * * *", zone)


def test_a_schedule_that_was_stored_with_a_bad_cron_can_still_be_paused() -> None:
    old, new = schedule("61 * * * *"), schedule("61 * * * *")
    new["spec"]["enabled"] = False
    assert not form(KINDS["Schedule"]).break_rules(new, old, [])
    new["spec"]["timeZone"] = "Europe/Berlin"
    assert form(KINDS["Schedule"]).break_rules(new, old, [])


def crons() -> list[str]:
    chance = random.Random(11)

    def text() -> str:
        if chance.random() < 0.5:
            return ",".join(chance.choice(LIKELY) for _ in range(chance.randint(1, 2)))
        return "".join(chance.choices(ANY, k=chance.randint(1, 4)))

    return [" ".join("*" if chance.random() < 0.6 else text() for _ in range(5)) for _ in range(4_000)]


def _never_ticks(text: str) -> bool:
    return Cron(text, "UTC").after(0) is None


def test_what_is_refused_is_what_cronsim_does_not_read() -> None:
    refused = 0
    for text in crons():
        try:
            CronSim(text, ANYWHEN)
        except (CronSimError, AssertionError, ValueError):
            refused += 1
            with pytest.raises(BadCron):
                cron(text)
        else:
            with contextlib.suppress(BadCron) if _never_ticks(text) else contextlib.nullcontext():
                cron(text)
    assert 500 < refused < 3_500


def test_a_cluster_refuses_nothing_that_is_a_cron_and_most_of_what_is_none() -> None:
    rules = [cel.compile(rule.cel) for rule in TIMES.rules]
    missed = refused = 0
    for text in crons():
        holds = all(rule({"cron": text}, None) is True for rule in rules)
        try:
            cron(text)
        except BadCron:
            refused += 1
            missed += holds
        else:
            assert holds, text
    assert missed < refused / 4
