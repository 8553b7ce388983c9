"""How bindings go: carried out, lost, taken back; and the ends of holds."""

from __future__ import annotations

from rota.pools import Queue
from tests.pools.making import assert_no_trace, bound, hold, offer, pair, pairs, request, served


def test_the_loser_of_a_race_gets_the_next_instance_at_once() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    queue.offer(offer("i2"))
    binding = queue.add(request("r1"))
    assert binding is not None
    assert pairs(queue.lost(binding)) == [("r1", "i2")]


def test_an_instance_lost_to_another_is_out_until_it_is_offered() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    assert queue.lost(binding) == []
    assert queue.view.free == 0
    assert pair(queue.offer(offer("i1"))) == ("r1", "i1")


def test_an_instance_that_is_still_free_goes_to_whoever_is_next() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    assert pairs(queue.lost(binding, instance_taken=False)) == [("r1", "i1")]


def test_a_lost_race_can_be_two_bindings() -> None:
    queue = Queue()
    queue.offer(offer("i1", "gpu", since=1.0))
    queue.offer(offer("i2", since=2.0))
    binding = queue.add(request("r1"))
    assert pair(binding) == ("r1", "i1")
    assert binding is not None
    queue.add(request("r2", priority=1, needs="gpu"))
    assert pairs(queue.lost(binding, instance_taken=False)) == [("r2", "i1"), ("r1", "i2")]


def test_a_race_lost_with_nothing_else_free_is_not_tried_again_by_itself() -> None:
    queue = Queue()
    binding = queue.add(request("r1")) or queue.offer(offer("i1"))
    assert binding is not None
    assert queue.lost(binding) == []
    assert (queue.view.depth, queue.view.in_flight, queue.view.bound_of("someone")) == (1, 0, 0)


def test_an_instance_withdrawn_while_in_flight_does_not_come_back_by_a_lost_race() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    queue.withdraw("i1")
    assert queue.lost(binding, instance_taken=False) == []
    assert queue.view.free == 0


def test_an_instance_withdrawn_while_in_flight_is_held_if_the_binding_holds() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    queue.withdraw("i1")
    bound(queue, binding)
    assert queue.view.instance_of("r1") == "i1"


def test_an_instance_in_flight_comes_back_as_it_was_last_offered() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    queue.withdraw("i1")
    assert queue.offer(offer("i1", "gpu")) is None
    queue.add(request("r2", needs="gpu", priority=1))
    assert pairs(queue.lost(binding, instance_taken=False)) == [("r2", "i1")]


def test_nothing_ends_a_binding_in_flight_but_its_outcome() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert queue.released("i1") is None
    assert queue.offer(offer("i1")) is None
    assert queue.view.in_flight == 1
    bound(queue, binding)
    assert (queue.view.in_flight, queue.view.bound) == (0, 1)


def test_a_request_cancelled_in_flight_is_not_queued_again_when_the_race_is_lost() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    queue.cancel("r1")
    assert queue.lost(binding) == []
    assert_no_trace(queue)


def test_a_request_cancelled_in_flight_leaves_the_instance_to_the_next_when_the_race_is_lost() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    queue.cancel("r1")
    queue.add(request("r2"))
    assert pairs(queue.lost(binding, instance_taken=False)) == [("r2", "i1")]


def test_what_was_bound_for_nobody_is_not_handed_out_before_it_is_offered() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    queue.add(request("r2"))
    queue.cancel("r1")
    assert not queue.confirmed(binding)
    assert (queue.view.free, queue.view.depth) == (0, 1)
    assert pair(queue.offer(offer("i1"))) == ("r2", "i1")


def test_a_request_cancelled_in_flight_counts_for_its_holder_until_the_outcome() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1", "a"))
    assert binding is not None
    queue.cancel("r1")
    assert queue.view.bound_of("a") == 1
    queue.confirmed(binding)
    assert queue.view.bound_of("a") == 0


def test_a_request_made_anew_while_the_old_one_is_in_flight_is_another() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    old = queue.add(request("r1"))
    assert old is not None
    queue.cancel("r1")
    assert queue.add(request("r1")) is None
    assert not queue.confirmed(old)
    assert pair(queue.offer(offer("i2"))) == ("r1", "i2")


def test_outcomes_that_are_told_again_change_nothing() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    first = queue.add(request("r1"))
    assert first is not None
    queue.lost(first)
    second = bound(queue, queue.offer(offer("i2")))
    assert queue.lost(first, instance_taken=False) == []
    assert not queue.confirmed(first)
    assert queue.lost(second, instance_taken=False) == []
    assert queue.confirmed(second)
    assert (queue.view.bound, queue.view.free, queue.view.depth) == (1, 0, 0)


def test_a_hold_ends_once() -> None:
    queue = Queue()
    hold(queue, request("r1", "a"), "i1")
    hold(queue, request("r2", "a"), "i2")
    ended = queue.released("i1")
    assert ended is not None and ended.id == "r1"
    assert queue.released("i1") is None
    assert queue.cancel("r1") is None
    assert queue.view.bound_of("a") == 1


def test_an_instance_comes_back_only_by_an_offer() -> None:
    queue = Queue()
    hold(queue, request("r1"), "i1")
    queue.add(request("r2"))
    queue.released("i1")
    assert queue.view.depth == 1
    assert pair(queue.offer(offer("i1"))) == ("r2", "i1")


def test_an_offer_of_what_is_held_is_late_news() -> None:
    queue = Queue()
    hold(queue, request("r1"), "i1")
    queue.add(request("r2"))
    assert queue.offer(offer("i1")) is None
    assert queue.view.instance_of("r1") == "i1"


def test_who_lost_its_instance_can_come_again_to_its_old_place() -> None:
    queue = Queue()
    hold(queue, request("r0"), "i0")
    queue.add(request("r1"))
    queue.withdraw("i0")
    lost = queue.released("i0")
    assert lost is not None
    queue.add(lost)
    assert served(queue, 2) == ["r0", "r1"]


def test_cancelling_what_is_not_there_changes_nothing() -> None:
    queue = Queue()
    assert queue.cancel("r1") is None
    assert_no_trace(queue)


def test_a_waiting_request_can_be_cancelled_wherever_it_stands() -> None:
    queue = Queue()
    for number in range(2_000):
        queue.add(request(f"r{number}", f"holder-{number % 3}"))
    for number in range(2_000):
        if number not in (0, 700, 1999):
            queue.cancel(f"r{number}")
    assert served(queue, 5) == ["r0", "r700", "r1999"]
