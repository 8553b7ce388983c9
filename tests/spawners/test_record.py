"""The record of items that had a task, within a bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.control.spawners.items import extended_record

NAMES = st.lists(st.integers(0, 30).map(str), unique=True, max_size=20)


def test_the_newest_is_last_and_nothing_is_there_twice() -> None:
    assert extended_record(["a", "b"], ["c", "a"], (), 10) == ["a", "b", "c"]


def test_past_the_bound_the_oldest_go() -> None:
    assert extended_record(["a", "b", "c"], ["d"], (), 3) == ["b", "c", "d"]


def test_what_is_listed_stays_however_old_it_is() -> None:
    assert extended_record(["a", "b", "c"], ["d"], {"a", "b", "d"}, 3) == ["a", "b", "d"]


@given(known=NAMES, new=NAMES, listed=st.sets(st.integers(0, 30).map(str), max_size=10), most=st.integers(10, 20))
def test_a_listing_that_fits_is_never_forgotten(known: list[str], new: list[str], listed: set[str], most: int) -> None:
    record = extended_record(known, new, listed, most)
    there = {*known, *new}
    assert len(record) == min(most, len(there)) and len(set(record)) == len(record)
    assert listed & there <= set(record)
    assert record == [one for one in dict.fromkeys((*known, *new)) if one in set(record)], "in order"
