"""A bound on how much goes on at once, with a share of it for everybody."""

from __future__ import annotations

from rota.runtime.probes.fair_queue import FairQueue


def a_lane(at_once_max: int, share_max: int) -> tuple[FairQueue[str], list[str]]:
    """Make a queue of things that are named by their holder's letter and a number."""
    begun: list[str] = []
    return FairQueue(at_once_max, share_max, lambda one: one[0], begun.append), begun


def test_what_waits_of_one_holder_is_begun_in_the_order_it_came() -> None:
    lane, begun = a_lane(1, 1)
    for one in ("a1", "a2", "a3"):
        lane.enter(one)
    assert begun == ["a1"]
    lane.leave("a1")
    lane.leave("a2")
    assert begun == ["a1", "a2", "a3"]


def test_holders_take_turns() -> None:
    lane, begun = a_lane(1, 1)
    for one in ("a1", "a2", "a3", "b1", "b2"):
        lane.enter(one)
    for _ in range(4):
        lane.leave(begun[-1])
    assert begun == ["a1", "a2", "b1", "a3", "b2"]


def test_nobody_holds_more_than_a_share_though_there_is_room() -> None:
    lane, begun = a_lane(4, 2)
    for one in ("a1", "a2", "a3", "b1"):
        lane.enter(one)
    assert begun == ["a1", "a2", "b1"]
    lane.leave("b1")
    assert begun == ["a1", "a2", "b1"]
    lane.leave("a1")
    assert begun == ["a1", "a2", "b1", "a3"]


def test_what_is_dropped_while_it_waits_is_passed_over() -> None:
    lane, begun = a_lane(1, 1)
    for one in ("a1", "a2", "a3"):
        lane.enter(one)
    lane.drop("a2")
    lane.drop("never seen")
    lane.leave("a1")
    assert begun == ["a1", "a3"]
