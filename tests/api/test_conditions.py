"""Changing conditions."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from rota.api import Condition
from rota.api.meta import with_condition, without_condition
from rota.api.model import MESSAGE_LENGTH_MAX

THEN, NOW = 1_600_000_000.0, 1_700_000_000.75
READY = Condition(
    type="Ready",
    status="True",
    reason="R",
    last_transition_time=datetime.fromtimestamp(THEN, UTC),
    observed_generation=1,
)
OTHER = Condition(type="Other", status="Unknown")


def test_a_new_condition_comes_last_with_the_time_in_whole_seconds() -> None:
    placed = with_condition([OTHER], Condition(type="Ready", status="True"), NOW)
    assert [one.type for one in placed] == ["Other", "Ready"]
    assert placed[1].last_transition_time == datetime.fromtimestamp(int(NOW), UTC)


def test_a_condition_whose_status_is_the_same_keeps_its_time_and_place() -> None:
    placed = with_condition(
        [READY, OTHER], Condition(type="Ready", status="True", reason="S", message="m", observed_generation=2), NOW
    )
    assert placed[1] is OTHER
    assert placed[0].last_transition_time == READY.last_transition_time
    assert (placed[0].reason, placed[0].message, placed[0].observed_generation) == ("S", "m", 2)


def test_a_condition_whose_status_is_another_one_has_a_new_time() -> None:
    placed = with_condition([READY], Condition(type="Ready", status="False"), NOW)
    assert placed[0].last_transition_time == datetime.fromtimestamp(int(NOW), UTC)


def test_the_same_condition_again_changes_nothing() -> None:
    assert with_condition([READY, OTHER], READY, NOW) == [READY, OTHER]


def test_a_condition_that_has_lost_its_time_gets_one() -> None:
    bare = Condition(type="Ready", status="True")
    assert with_condition([bare], bare, NOW)[0].last_transition_time is not None


def test_what_is_given_is_left_as_it_is() -> None:
    given_ = [READY]
    with_condition(given_, Condition(type="Ready", status="False"), NOW)
    without_condition(given_, "Ready")
    assert given_ == [READY] and given_[0].status == "True"


def test_a_message_that_is_too_long_is_cut_and_stays_the_same_then() -> None:
    long = Condition(type="Ready", status="True", message="x" * (MESSAGE_LENGTH_MAX + 1))
    placed = with_condition([], long, NOW)
    assert len(placed[0].message) == MESSAGE_LENGTH_MAX and placed[0].message.endswith("x…")
    assert with_condition(placed, long, NOW + 60) == placed
    just = Condition(type="Ready", status="True", message="x" * MESSAGE_LENGTH_MAX)
    assert with_condition([], just, NOW)[0].message == just.message


def test_a_condition_is_taken_out_by_its_type() -> None:
    assert without_condition([READY, OTHER], "Ready") == [OTHER]
    assert without_condition([OTHER], "Ready") == [OTHER]


CONDITIONS = st.builds(Condition, type=st.sampled_from("ABC"), status=st.sampled_from(["True", "False", "Unknown"]))


@given(st.lists(CONDITIONS, max_size=12))
def test_however_many_are_put_there_is_one_of_each_type_and_the_last_one_counts(puts: list[Condition]) -> None:
    placed: list[Condition] = []
    for i, one in enumerate(puts):
        placed = with_condition(placed, one, float(i))
    assert [one.type for one in placed] == list(dict.fromkeys(one.type for one in puts))
    for one in placed:
        same = [(i, put) for i, put in enumerate(puts) if put.type == one.type]
        assert one.status == same[-1][1].status
        since = next(i for n, (i, put) in enumerate(same) if all(p.status == put.status for _, p in same[n:]))
        assert one.last_transition_time == datetime.fromtimestamp(since, UTC)
