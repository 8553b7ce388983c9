"""The state that follows from the results of a probe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.runtime.probes import PASSED, ProbeState, Result, Role, Verdict, failed, unknown
from rota.runtime.probes.state import DRIFT, FIRST_SPREAD_SECONDS_MAX, WHY_LENGTH_MAX, first_in_seconds, next_in_seconds
from tests.probes.probing import asking

FAILED, UNKNOWN = failed("it says no"), unknown("no descriptor is free")
RESULTS = st.lists(st.sampled_from([PASSED, FAILED, UNKNOWN]), max_size=30)


def after(role: Role, *results: Result, threshold: int = 3, passed_before: bool = False) -> ProbeState:
    state = ProbeState.first(role, threshold, passed_before=passed_before)
    for result in results:
        state = state.after(result)
    return state


@pytest.mark.parametrize(("role", "verdict"), [("readiness", "Waiting"), ("liveness", "Passing")])
def test_it_begins_alive_but_not_ready(role: Role, verdict: Verdict) -> None:
    assert after(role).verdict == verdict


def test_what_is_known_to_have_been_ready_begins_ready() -> None:
    assert after("readiness", passed_before=True).verdict == "Passing"


@pytest.mark.parametrize("role", ["readiness", "liveness"])
def test_as_many_failures_in_a_row_as_the_threshold_says_count(role: Role) -> None:
    assert after(role, PASSED, FAILED, FAILED).verdict == "Passing"
    assert after(role, PASSED, FAILED, FAILED, FAILED).verdict == "Failing"
    assert after(role, FAILED, threshold=1).verdict == "Failing"


def test_a_success_begins_the_count_again() -> None:
    assert after("liveness", FAILED, FAILED, PASSED, FAILED, FAILED).verdict == "Passing"


def test_one_success_makes_good_whatever_failed_before() -> None:
    assert after("readiness", *[FAILED] * 50, PASSED).verdict == "Passing"
    assert after("readiness", *[FAILED] * 50, PASSED).why == ""


def test_the_last_failure_says_why() -> None:
    assert after("readiness", failed("first"), failed("second")).why == "second"


def test_what_could_not_be_tried_counts_for_nothing_but_is_told() -> None:
    state = after("liveness", FAILED, FAILED, *[UNKNOWN] * 50)
    assert (state.verdict, state.why) == ("Passing", UNKNOWN.why)
    assert after("liveness", FAILED, FAILED, UNKNOWN, FAILED).verdict == "Failing"


def test_failures_without_end_come_to_a_state_that_stays() -> None:
    assert after("liveness", *[FAILED] * 3) == after("liveness", *[FAILED] * 300)


def test_a_long_reason_is_cut() -> None:
    assert len(failed("x" * 10_000).why) == WHY_LENGTH_MAX


@given(results=RESULTS, threshold=st.integers(1, 5), role=st.sampled_from(["readiness", "liveness"]))
def test_the_verdict_is_that_of_the_results_in_a_row(results: list[Result], threshold: int, role: Role) -> None:
    counted = [result.outcome for result in results if result.outcome != "Unknown"]
    expected = "Waiting" if role == "readiness" else "Passing"
    for end in range(1, len(counted) + 1):
        if counted[end - 1] == "Passed":
            expected = "Passing"
        elif end >= threshold and set(counted[end - threshold : end]) == {"Failed"}:
            expected = "Failing"
    assert after(role, *results, threshold=threshold).verdict == expected


def test_the_first_probe_comes_after_the_delay_that_was_asked_for() -> None:
    probe = asking(initial_delay_seconds=30)
    assert first_in_seconds(probe, 0, 0, awaited=True) == 30
    assert first_in_seconds(probe, 20, 0, awaited=True) == 10
    assert first_in_seconds(probe, 9999, 0, awaited=True) == 0


def test_a_clock_that_was_set_back_does_not_prolong_the_delay() -> None:
    assert first_in_seconds(asking(initial_delay_seconds=30), -9999, 0, awaited=True) == 30


def test_first_probes_are_spread_briefly_if_waited_for_and_over_the_period_else() -> None:
    probe = asking(period_seconds=10)
    assert first_in_seconds(probe, 0, 1, awaited=True) == FIRST_SPREAD_SECONDS_MAX
    assert first_in_seconds(probe, 0, 1, awaited=False) == 10


def test_periods_are_counted_from_start_to_start_and_are_never_shorter() -> None:
    probe = asking(period_seconds=10)
    assert next_in_seconds(probe, 4, 0) == 6
    assert next_in_seconds(probe, 0, 1) == 10 * (1 + DRIFT)
    assert next_in_seconds(probe, 25, 0) == 0
