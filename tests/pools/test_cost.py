"""What an event costs, in comparisons of requests and not in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.pools import Queue, Request
from rota.pools.demand import DEAD_ENTRIES_MAX
from tests.pools.making import offer

FEW, MANY = 500, 8_000
GROWTH_MAX = 3.0
"""How many times as much an event may cost with 16 times as many waiting: a scan would be 16, the logarithm is 1.4."""


class Counted(float):
    """An arrival that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        Counted.compared += 1
        return float.__lt__(self, other)

    def __gt__(self, other: float) -> bool:
        Counted.compared += 1
        return float.__gt__(self, other)

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return float.__eq__(self, other)

    __hash__ = float.__hash__


def waiting(count: int, holders: int) -> Queue:
    queue = Queue()
    for number in range(count):
        queue.add(Request(f"r{number}", f"holder-{number % holders}", 0, Counted(number)))
    return queue


def comparisons(queue: Queue, event: Callable[[Queue, int], object], times: int = 100) -> float:
    before = Counted.compared
    for number in range(times):
        event(queue, number)
    return (Counted.compared - before) / times


def a_cycle(queue: Queue, number: int) -> None:
    binding = queue.offer(offer(f"i{number}"))
    assert binding is not None
    queue.confirmed(binding)
    queue.released(binding.instance)
    queue.add(binding.request)


def a_lost_race(queue: Queue, number: int) -> None:
    binding = queue.offer(offer(f"i{number}"))
    assert binding is not None
    queue.lost(binding)


def an_arrival_in_the_middle(queue: Queue, number: int) -> None:
    queue.add(Request(f"late-{number}", "holder-0", 0, Counted(number + 0.5)))


def an_urgent_arrival(queue: Queue, number: int) -> None:
    queue.add(Request(f"urgent-{number}", f"holder-{number}", 1, Counted(number)))


def a_cancel(queue: Queue, number: int) -> None:
    queue.cancel(f"r{number * 3}")


EVENTS = [a_cycle, a_lost_race, an_arrival_in_the_middle, an_urgent_arrival, a_cancel]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("each", [1, 10, FEW], ids=["one-each", "ten-each", "five-hundred-each"])
def test_no_event_looks_at_all_who_wait(event: Callable[[Queue, int], None], each: int) -> None:
    few = comparisons(waiting(FEW, FEW // each), event)
    many = comparisons(waiting(MANY, MANY // each), event)
    assert many <= GROWTH_MAX * few + 4


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_no_event_looks_at_all_that_one_holder_waits_for(event: Callable[[Queue, int], None]) -> None:
    few = comparisons(waiting(FEW, 1), event)
    many = comparisons(waiting(MANY, 1), event)
    assert many <= GROWTH_MAX * few + 4


def test_those_with_needs_that_cannot_be_met_are_not_looked_at() -> None:
    queue = Queue()
    for number in range(2_000):
        needs = frozenset({f"image-{number}"})
        queue.add(Request(f"r{number}", f"holder-{number}", 5, Counted(number), needs))
    for number in range(200):
        queue.add(Request(f"plain-{number}", "someone", 0, Counted(number)))
    assert comparisons(queue, a_cycle) <= 20


def test_the_heap_of_holders_does_not_grow_with_the_number_of_events() -> None:
    queue = waiting(400, 20)
    [demand] = queue._books.fit.demands.values()
    for number in range(2_000):
        a_cycle(queue, number)
        # Each is the first of its line, if only for a moment.
        queue.add(Request("first", f"holder-{number % 20}", 0, Counted(-number)))
        queue.cancel("first")
        assert len(demand.heap) <= 2 * demand.lines + DEAD_ENTRIES_MAX
