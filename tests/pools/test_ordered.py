"""The sorted sequence under everything."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.pools.ordered import CHUNK_ITEMS_MAX, Ordered
from tests.amount import amount

MANY = 5 * CHUNK_ITEMS_MAX


def filled(numbers: list[int]) -> Ordered[tuple[int, str]]:
    ordered: Ordered[tuple[int, str]] = Ordered()
    for number in numbers:
        ordered.add((number, "x"))
    return ordered


@pytest.mark.parametrize("step", [1, -1, 0])
def test_it_is_sorted_however_items_come(step: int) -> None:
    numbers = list(range(MANY))[:: step or 1]
    if not step:
        random.Random(1).shuffle(numbers)
    ordered = filled(numbers)
    assert [number for number, _ in ordered] == list(range(MANY))
    assert len(ordered) == MANY
    assert max(map(len, ordered.chunks)) <= CHUNK_ITEMS_MAX


def test_the_first_is_taken_until_there_is_none() -> None:
    ordered = filled(list(range(MANY)))
    assert [ordered.pop_first()[0] for _ in range(MANY)] == list(range(MANY))
    assert not ordered


def test_only_what_is_in_it_can_be_taken_out() -> None:
    with pytest.raises(AssertionError, match="only what is in it"):
        filled([1, 3]).remove((2, "x"))


def test_there_is_nothing_past_the_end() -> None:
    with pytest.raises(IndexError):
        filled([1]).at(1)


@settings(max_examples=amount(20, 500), deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.lists(st.tuples(st.sampled_from(["add", "remove", "pop", "burst"]), st.integers(0, MANY)), max_size=60),
)
def test_it_is_what_a_sorted_list_is(chance: random.Random, steps: list[tuple[str, int]]) -> None:
    numbers = chance.sample(range(MANY), MANY // 2)
    ordered, model = filled(numbers), sorted(numbers)
    for step, number in steps:
        if step == "add" and number not in model:
            ordered.add((number, "x"))
            model = sorted([*model, number])
        elif step == "remove" and model:
            gone = model.pop(number % len(model))
            ordered.remove((gone, "x"))
        elif step == "pop" and model:
            assert ordered.pop_first() == (model.pop(0), "x")
        elif step == "burst":
            for gone in model[number : number + CHUNK_ITEMS_MAX]:
                ordered.remove((gone, "x"))
            del model[number : number + CHUNK_ITEMS_MAX]
        assert ordered.before((number,)) == sum(each < number for each in model)
        if model:
            assert ordered.at(number % len(model)) == (model[number % len(model)], "x")
    assert list(ordered) == [(number, "x") for number in model]
    assert bool(ordered) == bool(model)
    assert len(ordered.chunks) == 1 or all(ordered.chunks)
