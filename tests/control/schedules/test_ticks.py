"""When a tick is due: jitter is the same for the same tick, and keeps ticks in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.api.cron import cron
from rota.control.schedules.making import manual_name, task_name
from rota.control.schedules.ticks import due_at, fraction
from tests.schedules.subjects import schedule

MINUTELY = cron("* * * * *")
HOURLY = cron("0 * * * *")


def test_without_jitter_a_tick_is_due_at_its_moment() -> None:
    assert due_at(schedule(), MINUTELY, 600) == 600.0


@given(st.integers(0, 10**6), st.integers(1, 3600))
def test_jitter_is_the_same_each_time_and_no_more_than_the_schedule_says(number: int, jitter: int) -> None:
    subject = schedule("0 * * * *", jitterSeconds=jitter)
    tick = 3600 * number
    assert tick <= due_at(subject, HOURLY, tick) == due_at(subject, HOURLY, tick) < tick + jitter


@given(st.integers(0, 10**6), st.integers(1, 3600))
def test_jitter_never_reaches_the_next_tick(number: int, jitter: int) -> None:
    subject = schedule(jitterSeconds=jitter)
    assert due_at(subject, MINUTELY, 60 * number) < 60 * (number + 1)


def test_schedules_of_one_cron_are_spread_evenly() -> None:
    found = sorted(fraction(f"uid-{number}", 600) for number in range(1_000))
    assert max(abs(one - at / 1_000) for at, one in enumerate(found)) < 0.06


def test_a_tick_has_a_task_name_of_its_own_for_ever() -> None:
    subject = schedule()
    assert task_name(subject, 600) == task_name(schedule(), 600) == "tick-197001010010-5b9a421538d2"
    names = {task_name(schedule(uid=uid), 60 * number) for uid in ("uid-1", "uid-2") for number in range(500)}
    assert len(names) == 1_000


def test_a_run_by_hand_has_a_name_that_no_tick_has() -> None:
    subject = schedule()
    assert manual_name(subject, "a") != manual_name(subject, "b")
    assert manual_name(subject, "a").startswith("tick-run-")
