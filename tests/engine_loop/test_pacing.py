"""Pauses after errors, and the brake, by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.pacing import (
    BACKOFF_SECONDS_FIRST,
    BACKOFF_SECONDS_MAX,
    SPIN_CALM_SECONDS,
    SPIN_PAUSE_SECONDS_FIRST,
    SPIN_PAUSE_SECONDS_MAX,
    SPIN_RUNS_MAX,
    SPIN_WINDOW_SECONDS,
    Backoff,
    Brake,
)


@given(st.integers(0, 5_000))
def test_pauses_double_up_to_a_cap_with_jitter(failures: int) -> None:
    backoff = Backoff()
    backoff._failures["a"] = failures
    longest = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2 ** min(failures, 50))
    assert longest / 2 <= backoff.failed("a") <= longest


def test_pauses_of_those_that_failed_together_differ() -> None:
    backoff = Backoff()
    assert len({backoff.failed(str(i)) for i in range(100)}) > 90


def test_each_has_its_own_count_and_a_success_ends_it() -> None:
    backoff = Backoff()
    for _ in range(8):
        backoff.failed("a")
    assert backoff.failed("b") <= BACKOFF_SECONDS_FIRST
    backoff.succeeded("a")
    backoff.succeeded("never seen")
    assert backoff.failed("a") <= BACKOFF_SECONDS_FIRST


def spun(now: float = 0.0) -> Brake:
    """A brake on which `a` has run too often."""
    brake = Brake()
    for _ in range(SPIN_RUNS_MAX):
        assert brake.pause("a", now) == 0
    assert brake.pause("a", now) == SPIN_PAUSE_SECONDS_FIRST
    return brake


def test_so_many_runs_in_a_window_are_free_and_the_next_one_waits() -> None:
    brake = spun()
    assert brake.is_slowed("a")
    assert brake.pause("b", 0.0) == 0 and not brake.is_slowed("b")


def test_as_many_in_two_windows_are_free() -> None:
    brake = Brake()
    for now in (0.0, SPIN_WINDOW_SECONDS, 2 * SPIN_WINDOW_SECONDS):
        for _ in range(SPIN_RUNS_MAX):
            assert brake.pause("a", now) == 0
    assert not brake.is_slowed("a")


def test_whoever_comes_before_its_time_waits_for_the_rest_of_it() -> None:
    brake = spun()
    assert brake.pause("a", 0.05) == pytest.approx(SPIN_PAUSE_SECONDS_FIRST - 0.05)
    assert brake.pause("a", 0.15) == pytest.approx(SPIN_PAUSE_SECONDS_FIRST - 0.15)
    assert brake.pause("a", SPIN_PAUSE_SECONDS_FIRST) == 0


def test_pauses_between_runs_double_up_to_a_cap() -> None:
    brake, now, gaps = spun(), 0.0, []
    for _ in range(12):
        pause = brake.pause("a", now)
        gaps.append(pause)
        now += pause
        assert brake.pause("a", now) == 0
    assert gaps[:3] == pytest.approx([SPIN_PAUSE_SECONDS_FIRST * 2**i for i in range(3)])
    assert max(gaps) == gaps[-1] == pytest.approx(SPIN_PAUSE_SECONDS_MAX)


def test_whoever_was_quiet_for_long_enough_is_slowed_no_more() -> None:
    brake = spun()
    later = SPIN_PAUSE_SECONDS_FIRST + SPIN_CALM_SECONDS
    assert brake.pause("a", later) == 0 and not brake.is_slowed("a")
    for _ in range(SPIN_RUNS_MAX - 1):
        assert brake.pause("a", later) == 0


def test_the_forgotten_begin_anew() -> None:
    brake = spun()
    brake.forget("a")
    brake.forget("never seen")
    assert not brake.is_slowed("a") and brake.pause("a", 0.0) == 0


def test_those_that_rest_are_not_remembered() -> None:
    brake = Brake()
    for i in range(1_000):
        brake.pause(f"n{i}", 0.0)
    brake.pause("busy", 0.0)
    brake.pause("busy", SPIN_WINDOW_SECONDS)
    brake.pause("busy", 2 * SPIN_WINDOW_SECONDS)
    assert len(brake._runs) == 1


@given(st.lists(st.floats(0.0, 3.0), max_size=600))
def test_no_node_ever_has_more_than_two_windows_worth_of_runs_in_one(steps: list[float]) -> None:
    brake, now, runs = Brake(), 0.0, []
    for step in steps:
        now += step / 50
        if brake.pause("a", now) == 0:
            runs.append(now)
    for at in runs:
        assert sum(at <= run < at + SPIN_WINDOW_SECONDS for run in runs) <= 2 * SPIN_RUNS_MAX
