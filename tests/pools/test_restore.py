"""A queue made from what is stored."""

from __future__ import annotations

import itertools

from rota.pools import Queue
from tests.pools.making import assert_no_trace, hold, offer, pair, pairs, request, served


def test_a_restart_fails_none_of_those_who_wait() -> None:
    queue = Queue()
    assert queue.restore(waiting=[request("r2"), request("r1")]).bindings == []
    assert served(queue, 2) == ["r1", "r2"]


def test_what_is_stored_may_come_in_any_order() -> None:
    held = [(request("h1", "a"), "i1"), (request("h2", "b"), "i2")]
    waiting = [request("r1", "a"), request("r2", "b", needs="gpu"), request("r3", "c")]
    free = [offer("i3", since=3.0), offer("i4", since=2.0), offer("i5", since=2.0)]
    answers = set()
    for order in itertools.permutations(range(3)):
        queue = Queue()
        found = queue.restore(
            bound=[held[at] for at in order if at < 2],
            waiting=[waiting[at] for at in order],
            free=[free[at] for at in order],
        )
        answers.add((tuple(pairs(found.bindings)), tuple(queue.view.waiting()), queue.view.free))
    assert answers == {((("r3", "i4"), ("r1", "i5")), ("r2",), 1)}


def test_restoring_again_changes_nothing() -> None:
    queue = Queue()
    facts = {
        "bound": [(request("h1", "a"), "i1")],
        "waiting": [request("r1", needs="gpu"), request("r2")],
        "free": [offer("i2"), offer("i3")],
    }
    first = queue.restore(**facts)  # type: ignore[arg-type]
    assert pairs(first.bindings) == [("r2", "i2")]
    again = queue.restore(**facts)  # type: ignore[arg-type]
    assert again == ([], [])
    view = queue.view
    assert (view.depth, view.free, view.in_flight, view.bound) == (1, 1, 1, 1)


def test_a_hold_counts_more_than_a_wait() -> None:
    queue = Queue()
    queue.add(request("r1", "a"))
    queue.add(request("r2", "a"))
    queue.restore(bound=[(request("r1", "a"), "i1")], waiting=[request("r1", "a")], free=[offer("i1")])
    view = queue.view
    assert (view.depth, view.free, view.bound_of("a"), view.instance_of("r1")) == (1, 0, 1, "i1")


def test_a_binding_in_flight_that_is_stored_has_been_carried_out() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    queue.restore(bound=[(request("r1"), "i1")])
    assert queue.view.instance_of("r1") == "i1"
    assert queue.confirmed(binding)


def test_a_binding_in_flight_whose_request_holds_another_is_not_wanted() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    queue.restore(bound=[(request("r1"), "i2")])
    assert not queue.confirmed(binding)
    assert queue.view.instance_of("r1") == "i2"


def test_a_binding_in_flight_whose_instance_another_holds_is_lost() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    queue.offer(offer("i2"))
    found = queue.restore(bound=[(request("r2"), "i1")])
    assert pairs(found.bindings) == [("r1", "i2")]
    assert queue.lost(binding) == []
    assert queue.view.instance_of("r2") == "i1"


def test_a_request_cancelled_in_flight_whose_instance_another_holds_stays_cancelled() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    queue.add(request("r1"))
    queue.cancel("r1")
    queue.restore(bound=[(request("r2"), "i1")])
    assert (queue.view.depth, queue.view.bound) == (0, 1)


def test_a_request_never_holds_two() -> None:
    queue = Queue()
    found = queue.restore(bound=[(request("r1"), "i2"), (request("r1"), "i1")])
    assert [(each.id, instance) for each, instance in found.surplus] == [("r1", "i2")]
    assert queue.view.instance_of("r1") == "i1"


def test_an_instance_is_never_held_by_two() -> None:
    queue = Queue()
    hold(queue, request("r2"), "i1")
    found = queue.restore(bound=[(request("r1"), "i1")])
    assert [(each.id, instance) for each, instance in found.surplus] == [("r1", "i1")]
    assert queue.view.instance_of("r2") == "i1"


def test_what_is_restored_can_end() -> None:
    queue = Queue()
    queue.restore(bound=[(request("r1"), "i1"), (request("r2"), "i2")], waiting=[request("r3")], free=[])
    queue.released("i1")
    assert queue.cancel("r2") == "i2"
    queue.cancel("r3")
    assert_no_trace(queue)


def test_after_a_restart_the_shares_are_what_they_were() -> None:
    queue = Queue()
    queue.restore(
        bound=[(request(f"h{number}", "a"), f"i{number}") for number in range(3)],
        waiting=[request("r1", "a"), *(request(f"r{number}", "b") for number in range(2, 6))],
    )
    assert served(queue, 5) == ["r2", "r3", "r4", "r1", "r5"]


def test_after_a_restart_instances_go_in_the_same_order() -> None:
    queue, again = Queue(), Queue()
    free = [offer(f"i{number}", since=float(number * 7 % 5)) for number in range(5)]
    for each in free:
        queue.offer(each)
    again.restore(free=reversed(free))
    asked = [request(f"r{number}") for number in range(5)]
    assert [pair(queue.add(each)) for each in asked] == [pair(again.add(each)) for each in asked]
