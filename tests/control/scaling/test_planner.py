"""The size of a pool that scales by demand, a rule at a time."""

from __future__ import annotations

from typing import Any

from rota.api.pool import PoolScale
from rota.control.scaling import Decision, Load, Peak, decide, initial_history, needed
from rota.control.scaling.planner import BATCHES, History

WINDOW = 300
LATE = WINDOW / BATCHES


def a_scale(least: int = 0, most: int = 10, **more: Any) -> PoolScale:
    return PoolScale(min=least, max=most, **{"target_idle": 0, "scale_down_seconds": WINDOW, **more})


def replay(scale: PoolScale, *levels: tuple[float, int]) -> Decision:
    """Return the decisions when so many were needed at these times."""
    history: History = ()
    for now, level in levels:
        decision = decide(scale, level, history, now)
        history = decision.history
    return decision


# What is needed.


def test_each_that_waits_needs_one_besides_those_that_are_held() -> None:
    assert needed(a_scale(), Load(waiting=3, held=2)) == 5


def test_some_are_kept_idle_ahead_of_the_demand() -> None:
    assert needed(a_scale(target_idle=2), Load()) == 2
    assert needed(a_scale(target_idle=2), Load(held=3, waiting=1)) == 6


def test_the_bounds_hold_whatever_the_demand() -> None:
    assert needed(a_scale(2, 4), Load()) == 2
    assert needed(a_scale(2, 4), Load(waiting=100_000)) == 4


def test_one_that_crashes_has_a_stand_in_while_another_is_at_work() -> None:
    assert needed(a_scale(), Load(waiting=1, held=1, crashing=1)) == 3


def test_where_nothing_works_no_more_are_made_than_are_needed() -> None:
    assert needed(a_scale(), Load(waiting=2, crashing=2)) == 2


# Growing and shrinking.


def test_it_grows_at_once_by_all_that_is_lacking() -> None:
    assert replay(a_scale(), (0, 1), (1, 8)).replicas == 8


def test_it_does_not_shrink_before_its_time() -> None:
    decision = replay(a_scale(), (0, 8), (10, 1), (10 + WINDOW - 1, 1))
    assert decision.replicas == 8
    assert decision.again_after is not None and 1 <= decision.again_after <= 1 + LATE


def test_it_shrinks_when_told_to_look_again_by_all_that_is_too_much() -> None:
    before = replay(a_scale(), (0, 8), (10, 1))
    assert before.again_after is not None and WINDOW <= before.again_after <= WINDOW + LATE
    after = decide(a_scale(), 1, before.history, 10 + before.again_after)
    assert (after.replicas, after.again_after) == (1, None)


def test_what_falls_idle_one_after_the_other_goes_together() -> None:
    before = replay(a_scale(), (0, 8), (1, 7), (2, 6), (3, 5), (4, 4))
    assert before.again_after is not None
    after = decide(a_scale(), 4, before.history, 4 + before.again_after)
    assert (before.replicas, after.replicas) == (8, 4)


def test_what_was_needed_meanwhile_stays() -> None:
    """Eight were idle for long enough, but not all of them all the time."""
    before = replay(a_scale(), (0, 9), (10, 1), (200, 5), (210, 1))
    after = decide(a_scale(), 1, before.history, 10 + WINDOW + LATE)
    assert after.replicas == 5
    assert decide(a_scale(), 1, after.history, 210 + WINDOW + LATE).replicas == 1


def test_a_new_demand_as_high_starts_the_time_anew() -> None:
    before = replay(a_scale(), (0, 8), (10, 1), (300, 8), (301, 1))
    assert decide(a_scale(), 1, before.history, 599).replicas == 8


def test_without_a_time_it_shrinks_at_once() -> None:
    scale = a_scale(scale_down_seconds=0)
    decision = replay(scale, (0, 8), (1, 2))
    assert (decision.replicas, decision.again_after) == (2, None)


def test_of_what_is_there_at_the_beginning_nothing_goes_before_its_time() -> None:
    first = decide(a_scale(), 1, initial_history(6, 50.0), 50.0)
    assert first.replicas == 6
    assert first.again_after is not None and first.again_after >= WINDOW


def test_bounds_that_change_hold_at_once() -> None:
    before = replay(a_scale(), (0, 8), (10, 1))
    assert decide(a_scale(most=4), 1, before.history, 11).replicas == 4
    assert decide(a_scale(least=9), 9, before.history, 11).replicas == 9


def test_no_more_is_remembered_than_there_are_numbers_between_the_bounds() -> None:
    decision = replay(a_scale(), *((float(at), at * 7 % 11) for at in range(200)))
    levels = [peak.level for peak in decision.history]
    assert levels == sorted(set(levels), reverse=True) and len(levels) <= 11


def test_a_steady_load_needs_no_second_look() -> None:
    assert replay(a_scale(), (0, 4), (1, 4)) == Decision(4, (Peak(4, 1),), None)
