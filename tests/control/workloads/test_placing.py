"""The placer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.control.workloads.placing import NO_BOUND, Candidate, Placing, place, rebalance

NAMES = [f"cell-{i}" for i in range(6)]


def cells(*names: str) -> list[Candidate]:
    return [Candidate(name) for name in names]


def test_two_cells_of_a_city_divide_what_is_wanted() -> None:
    placed = place("w", "dfw", 5, cells("a", "b"), {})
    assert sorted(placed.cells.values()) == [2, 3] and placed.unplaced == 0


def test_weights_are_shares() -> None:
    placed = place("w", "dfw", 12, [Candidate("a", weight=100), Candidate("b", weight=300)], {})
    assert placed.cells == {"a": 3, "b": 9}


def test_a_new_cell_and_another_weight_move_nothing() -> None:
    there = {"a": 5}
    assert place("w", "dfw", 5, [Candidate("a", weight=1), *cells("b", "c")], there).cells == there


def test_what_is_added_goes_where_it_lacks() -> None:
    assert place("w", "dfw", 6, cells("a", "b"), {"a": 4}).cells == {"a": 4, "b": 2}


def test_what_is_taken_away_comes_from_cordoned_cells_first() -> None:
    found = place("w", "dfw", 3, [Candidate("a", is_cordoned=True), Candidate("b")], {"a": 2, "b": 3})
    assert found.cells == {"b": 3}


def test_a_lost_cell_keeps_what_it_has() -> None:
    found = place("w", "dfw", 4, [Candidate("a", is_ready=False), Candidate("b")], {"a": 2})
    assert found.cells == {"a": 2, "b": 2}


def test_a_draining_cell_keeps_what_it_has_until_others_are_ready() -> None:
    drained = [Candidate("a", is_draining=True), Candidate("b")]
    assert place("w", "dfw", 3, drained, {"a": 3}).cells == {"a": 3, "b": 3}
    assert place("w", "dfw", 3, drained, {"a": 3, "b": 3}, {"b": 2}).cells == {"a": 1, "b": 3}
    assert place("w", "dfw", 3, drained, {"a": 1, "b": 3}, {"b": 3}).cells == {"b": 3}


def test_a_draining_cell_keeps_what_finds_no_room_elsewhere() -> None:
    drained = [Candidate("a", is_draining=True), Candidate("b", room=1)]
    found = place("w", "dfw", 3, drained, {"a": 3})
    assert found.cells == {"a": 3, "b": 1} and found.unplaced == 0
    full = [Candidate("a", is_draining=True), Candidate("b", room=0)]
    assert place("w", "dfw", 3, full, found.cells, {"b": 1}) == Placing({"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("there", "is_known", "reason"),
    [
        ([], False, "LocationNotFound"),
        ([], True, "NoCellInCity"),
        ([Candidate("a", is_ready=False)], True, "CellsLost"),
        ([Candidate("a", is_cordoned=True), Candidate("b", is_ready=False)], True, "CellsCordoned"),
        ([Candidate("a", weight=0)], True, "CellsCordoned"),
        ([Candidate("a", room=1), Candidate("b", room=0)], True, "CellsFull"),
    ],
)
def test_what_finds_no_room_has_a_reason(there: list[Candidate], is_known: bool, reason: str) -> None:
    found = place("w", "dfw", 2, there, {}, is_known=is_known)
    assert found.reason == reason and "dfw" in found.message
    assert found.unplaced == (1 if reason == "CellsFull" else 2)


def test_workloads_spread_over_equal_cells() -> None:
    first = [next(iter(place(f"w{i}", "dfw", 1, cells(*NAMES), {}).cells)) for i in range(300)]
    assert all(20 < first.count(name) < 90 for name in NAMES)


def test_rebalancing_moves_one_at_a_time_until_it_is_even() -> None:
    there, most, seen = {"a": 6}, 0, []
    while (step := rebalance("w", 6, cells("a", "b", "c"), there, there)) is not None:
        most = max(most, sum(step.values()))
        seen.append(step)
        there = dict(place("w", "dfw", 6, cells("a", "b", "c"), step, step).cells)
    assert there == {"a": 2, "b": 2, "c": 2} and len(seen) == 4 and most == 7


def test_rebalancing_takes_nothing_away_before_its_replacement_is_ready() -> None:
    assert rebalance("w", 4, cells("a", "b"), {"a": 4, "b": 1}, {"a": 4}) == {"a": 4, "b": 1}
    assert rebalance("w", 4, cells("a", "b"), {"a": 4}, {"a": 3}) == {"a": 4}


def test_rebalancing_leaves_alone_what_is_in_cells_that_are_closed_or_lost() -> None:
    lost, cordoned = Candidate("a", is_ready=False), Candidate("b", is_cordoned=True)
    assert rebalance("w", 8, [lost, cordoned, Candidate("c")], {"a": 4, "b": 4}, {"b": 4}) is None
    there = {"a": 4, "c": 4}
    assert rebalance("w", 8, [lost, *cells("c", "d")], there, there) == {"a": 4, "c": 4, "d": 1}


weighed = st.tuples(st.sampled_from(NAMES), st.sampled_from([1, 50, 100, 150])).map(lambda one: Candidate(*one))


@given(
    st.lists(weighed, min_size=1, max_size=6, unique_by=lambda one: one.name),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 6), max_size=6),
)
def test_rebalancing_comes_to_an_end(there: list[Candidate], given_before: dict[str, int]) -> None:
    names = {one.name for one in there}
    now = {name: count for name, count in given_before.items() if name in names and count}
    wanted = sum(now.values())
    for _ in range(wanted + 1):
        step = rebalance("w", wanted, there, now, now)
        if step is None:
            break
        assert sum(step.values()) == wanted + 1
        now = dict(place("w", "dfw", wanted, there, step, step).cells)
        assert sum(now.values()) == wanted
    assert rebalance("w", wanted, there, now, now) is None


candidates = st.builds(
    Candidate,
    name=st.sampled_from(NAMES),
    weight=st.sampled_from([0, 1, 50, 100]),
    room=st.sampled_from([0, 1, 3, NO_BOUND]),
    is_ready=st.booleans(),
    is_cordoned=st.booleans(),
    is_draining=st.booleans(),
)
sites = st.lists(candidates, max_size=6, unique_by=lambda one: one.name)
counts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 6), max_size=6)


@given(sites, st.integers(0, 12), counts)
def test_placing_is_stable_bounded_and_complete(
    there: list[Candidate], wanted: int, given_before: dict[str, int]
) -> None:
    found = place("w", "dfw", wanted, there, given_before)
    by_name = {cell.name: cell for cell in there}
    before = {name: count for name, count in given_before.items() if count and name in by_name}
    assert all(count > 0 and name in by_name for name, count in found.cells.items())
    for name, count in found.cells.items():
        added = count - before.get(name, 0)
        assert added <= 0 or (by_name[name].is_open and added <= by_name[name].room)
    steady = {name: count for name, count in found.cells.items() if not by_name[name].is_draining}
    assert sum(steady.values()) <= max(wanted, 0)
    assert found.unplaced == max(0, wanted - sum(found.cells.values()))
    assert bool(found.reason) == bool(found.unplaced)
    if found.unplaced:
        assert all(
            found.cells.get(cell.name, 0) - before.get(cell.name, 0) >= cell.room for cell in there if cell.is_open
        ), "there is room left"
    # Placed again, with the room that is left, nothing changes.
    left = [
        one._replace(room=one.room - max(0, found.cells.get(one.name, 0) - before.get(one.name, 0))) for one in there
    ]
    assert place("w", "dfw", wanted, left, found.cells).cells == found.cells
    # The order of cells does not matter.
    assert place("w", "dfw", wanted, there[::-1], given_before).cells == found.cells
