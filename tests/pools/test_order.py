"""Who is next: priority, then the holder with the fewest, then arrival."""

from __future__ import annotations

from collections import Counter

import pytest

from rota.pools import Queue, Request
from tests.pools.making import bound, hold, offer, pair, pairs, request, served


def test_first_come_first_served() -> None:
    queue = Queue()
    for number in range(5):
        queue.add(request(f"r{number}"))
    assert served(queue, 5) == ["r0", "r1", "r2", "r3", "r4"]


def test_it_is_the_arrival_that_counts_and_not_the_order_of_being_told() -> None:
    queue = Queue()
    for number in (3, 0, 4, 1, 2):
        queue.add(request(f"r{number}"))
    assert served(queue, 5) == ["r0", "r1", "r2", "r3", "r4"]


def test_an_arrival_may_be_a_time_and_a_number() -> None:
    queue = Queue()
    for number in (2, 0, 1):
        queue.add(Request(f"r{number}", "someone", 0, (7.0, number)))
    assert served(queue, 3) == ["r0", "r1", "r2"]


def test_those_who_came_at_the_same_instant_go_by_id() -> None:
    queue = Queue()
    for id_ in "cab":
        queue.add(request(id_, f"holder-of-{id_}", at=1.0))
    assert served(queue, 3) == ["a", "b", "c"]


def test_priority_goes_before_everything_else() -> None:
    queue = Queue()
    hold(queue, request("r0", "rich"), "i0")
    for number, (holder, priority) in enumerate([("poor", 0), ("poor", -5), ("rich", 1), ("rich", 1000)], start=1):
        queue.add(request(f"r{number}", holder, priority=priority))
    assert served(queue, 4) == ["r4", "r3", "r1", "r2"]


def test_a_more_urgent_request_of_the_same_holder_overtakes_its_own() -> None:
    queue = Queue()
    queue.add(request("r1"))
    queue.add(request("r2", priority=1))
    assert served(queue, 2) == ["r2", "r1"]


def test_holders_take_turns_however_much_one_asks_for() -> None:
    queue = Queue()
    for number in range(100):
        queue.add(request(f"r{number}", "greedy"))
    for number in range(100, 103):
        queue.add(request(f"r{number}", "modest"))
    assert served(queue, 7) == ["r0", "r100", "r1", "r101", "r2", "r102", "r3"]


def test_what_is_in_flight_counts_as_bound() -> None:
    queue = Queue()
    for id_, holder in (("r1", "a"), ("r2", "a"), ("r3", "b")):
        queue.add(request(id_, holder))
    assert pair(queue.offer(offer("i1"))) == ("r1", "i1")
    assert pair(queue.offer(offer("i2"))) == ("r3", "i2")


def test_who_gives_back_is_sooner_next() -> None:
    queue = Queue()
    for number in range(3):
        hold(queue, request(f"h{number}", "a"), f"i{number}")
    hold(queue, request("h3", "b"), "i3")
    queue.add(request("r1", "b"))
    queue.add(request("r2", "a"))
    for number in range(3):
        queue.released(f"i{number}")
    assert served(queue, 2) == ["r2", "r1"]


def test_a_holder_whose_first_request_is_gone_is_as_late_as_its_second() -> None:
    queue = Queue()
    for id_, holder in (("r1", "a"), ("r2", "b"), ("r3", "a")):
        queue.add(request(id_, holder))
    queue.cancel("r1")
    assert served(queue, 2) == ["r2", "r3"]


def test_a_holder_that_was_served_and_gave_back_is_as_late_as_its_next_request() -> None:
    queue = Queue()
    for id_, holder in (("r1", "a"), ("r2", "b"), ("r3", "a")):
        queue.add(request(id_, holder))
    queue.released(bound(queue, queue.offer(offer("i1"))).instance)
    assert served(queue, 2) == ["r2", "r3"]


def test_no_holder_overtakes_one_that_has_nothing_and_came_before() -> None:
    queue = Queue()
    hold(queue, request("r0", "busy"), "i0")
    queue.add(request("r1", "patient"))
    for number in range(2, 50):
        queue.add(request(f"r{number}", f"holder-{number}"))
    assert served(queue, 1) == ["r1"]


def test_holders_with_endless_demand_have_equal_shares() -> None:
    queue = Queue()
    number = 0

    def demand(holder: str, requests: int) -> None:
        nonlocal number
        for _ in range(requests):
            number += 1
            queue.add(request(f"r{number}", holder))

    # One asks for a hundred times as much as the others, and asked before them.
    demand("greedy", 200)
    for holder in ("b", "c", "d"):
        demand(holder, 2)
    held = [bound(queue, queue.offer(offer(f"i{each}"))) for each in range(8)]
    got = Counter[str]()
    for each in range(400):
        ended = held.pop(each % 8)
        queue.released(ended.instance)
        demand(ended.request.holder, 1)
        binding = bound(queue, queue.offer(offer(ended.instance)))
        got[binding.request.holder] += 1
        held.insert(each % 8, binding)
    assert set(got.values()) == {100}


@pytest.mark.parametrize("depth", [1, 5_000])
def test_who_has_to_try_again_keeps_its_place(depth: int) -> None:
    queue = Queue()
    for number in range(depth):
        queue.add(request(f"r{number}"))
    binding = queue.offer(offer("i1"))
    assert binding is not None
    queue.add(request(f"r{depth}"))
    assert queue.lost(binding) == []
    assert queue.view.position("r0") == 0
    assert served(queue, 1) == ["r0"]


def test_who_has_to_try_again_lets_the_more_urgent_pass_that_came_meanwhile() -> None:
    queue = Queue()
    queue.offer(offer("i1"))
    binding = queue.add(request("r1"))
    assert binding is not None
    queue.add(request("r2", priority=1))
    assert pairs(queue.lost(binding, instance_taken=False)) == [("r2", "i1")]


def test_a_request_that_is_added_again_keeps_its_place() -> None:
    queue = Queue()
    for number in range(3):
        queue.add(request(f"r{number}"))
    queue.cancel("r0")
    assert queue.add(request("r1", at=99.0)) is None
    queue.add(request("r0"))
    assert served(queue, 3) == ["r0", "r1", "r2"]
    assert queue.view.depth == 0


def test_a_request_that_is_made_anew_may_be_somebody_elses() -> None:
    queue = Queue()
    for holder in "abcd":
        queue.add(request("r1", holder))
        queue.cancel("r1")
    queue.add(request("r1", "e"))
    assert served(queue, 2) == ["r1"]
    assert queue.view.bounds() == {"e": 1}
