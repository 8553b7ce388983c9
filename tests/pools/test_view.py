"""What can be asked of a queue."""

from __future__ import annotations

import pytest

from rota.pools import Queue
from tests.pools.making import hold, offer, request, served


def waiting_for(*holders: str) -> Queue:
    """A queue in which one waits for each of these holders, in that order."""
    queue = Queue()
    for number, holder in enumerate(holders):
        queue.add(request(f"r{number}", holder))
    return queue


def test_counts_say_who_waits_and_who_has() -> None:
    queue = waiting_for("a", "a", "b")
    for each in ("i1", "i2"):
        queue.offer(offer(each))
    queue.add(request("r9", "a", needs="gpu"))
    view = queue.view
    assert (view.depth, view.in_flight, view.bound, view.free) == (2, 2, 0, 0)
    assert view.depths() == {"a": 2}
    assert view.bounds() == {"a": 1, "b": 1}
    assert (view.depth_of("a"), view.depth_of("b"), view.depth_of("nobody")) == (2, 0, 0)
    assert (view.bound_of("a"), view.bound_of("nobody")) == (1, 0)


def test_unmet_demand_is_counted_by_needs() -> None:
    queue = Queue()
    queue.offer(offer("i1", "fpga"))
    for number, needs in enumerate(["gpu", "gpu", "gpu big", "fpga"]):
        queue.add(request(f"r{number}", needs=needs))
    assert queue.view.unmet() == {frozenset({"gpu"}): 2, frozenset({"gpu", "big"}): 1}
    queue.offer(offer("i2", "gpu big"))
    assert queue.view.unmet() == {frozenset({"gpu"}): 1, frozenset({"gpu", "big"}): 1}


def test_those_who_wait_are_listed_as_they_will_be_served() -> None:
    queue = waiting_for("a", "a", "a", "b", "c", "b")
    queue.restore(bound=[(request("h1", "c"), "i0")])
    queue.add(request("r6", "b", priority=3))
    order = queue.view.waiting()
    assert order == served(queue, 7)


def test_the_list_is_bounded() -> None:
    queue = waiting_for(*"abc" * 500)
    assert len(queue.view.waiting()) == 1000
    assert queue.view.waiting(4) == ["r0", "r1", "r2", "r3"]
    assert queue.view.waiting(0) == []


def test_a_position_is_the_place_in_the_list() -> None:
    queue = waiting_for(*"aaabcbbaac" * 3)
    for number, (holder, needs, priority) in enumerate([("a", "gpu", 0), ("b", "gpu", 2), ("a", "", 1)], start=100):
        queue.add(request(f"r{number}", holder, needs=needs, priority=priority))
    order = queue.view.waiting()
    assert [queue.view.position(id_) for id_ in order] == list(range(33))


@pytest.mark.parametrize("id_", ["unknown", "in-flight", "held"])
def test_who_does_not_wait_has_no_position(id_: str) -> None:
    queue = Queue()
    hold(queue, request("held", at=1.0), "i1")
    queue.offer(offer("i2"))
    queue.add(request("in-flight", at=2.0))
    assert queue.view.position(id_) is None


def test_an_instance_is_held_for_certain_only_when_that_is_confirmed() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    assert queue.view.instance_of("r1") is None
    queue.confirmed(binding)
    assert queue.view.instance_of("r1") == "i1"
