"""The cost of an event, in comparisons of requests and not in time; and the memory of a waiting request."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from rota.pools import Ledger, Opened, Request
from rota.pools.waiting import DEAD_ENTRIES_MAX
from tests.pools.making import decided, request

FEW, MANY = 500, 8_000
GROWTH_MAX = 3.0
"""The growth of the cost of an event with 16 times as many waiting: a scan would be 16, the logarithm is 1.4."""
BYTES_MAX = 240
"""The memory of a waiting request beside itself, where a holder has ten."""


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


def waiting(count: int, holders: int) -> Ledger:
    ledger = Ledger()
    for number in range(count):
        ledger.request(Request(f"r{number}", f"holder-{number % holders}", 0, Counted(number)))
    return ledger


def comparisons(ledger: Ledger, event: Callable[[Ledger, int], object], times: int = 100) -> float:
    before = Counted.compared
    for number in range(times):
        event(ledger, number)
    return (Counted.compared - before) / times


def a_cycle(ledger: Ledger, number: int) -> None:
    ledger.open(f"i{number}", Opened.WHOLE)
    binding = decided(ledger)
    ledger.bound(binding)
    ledger.ended(binding.request.id)
    ledger.request(binding.request)


def a_lost_race(ledger: Ledger, number: int) -> None:
    ledger.open(f"i{number}", Opened.WHOLE)
    ledger.lost(decided(ledger))


def an_arrival_in_the_middle(ledger: Ledger, number: int) -> None:
    ledger.request(Request(f"late-{number}", "holder-0", 0, Counted(number + 0.5)))


def an_urgent_arrival(ledger: Ledger, number: int) -> None:
    ledger.request(Request(f"urgent-{number}", f"holder-{number}", 1, Counted(number)))


def a_cancel(ledger: Ledger, number: int) -> None:
    ledger.cancel(f"r{number * 3}")


EVENTS = [a_cycle, a_lost_race, an_arrival_in_the_middle, an_urgent_arrival, a_cancel]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("each", [1, 10, FEW], ids=["one-each", "ten-each", "five-hundred-each"])
def test_no_event_looks_at_all_who_wait(event: Callable[[Ledger, int], None], each: int) -> None:
    few = comparisons(waiting(FEW, FEW // each), event)
    many = comparisons(waiting(MANY, MANY // each), event)
    assert many <= GROWTH_MAX * few + 4


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_no_event_looks_at_all_that_one_holder_waits_for(event: Callable[[Ledger, int], None]) -> None:
    few = comparisons(waiting(FEW, 1), event)
    many = comparisons(waiting(MANY, 1), event)
    assert many <= GROWTH_MAX * few + 4


def test_the_heap_of_holders_does_not_grow_with_the_number_of_events() -> None:
    ledger = waiting(400, 20)
    for number in range(2_000):
        a_cycle(ledger, number)
        # Each is the first of its holder, if only for a moment.
        ledger.request(Request("first", f"holder-{number % 20}", 0, Counted(-number)))
        ledger.cancel("first")
        assert len(ledger.waiting._heap) <= 2 * len(ledger.waiting.queues) + DEAD_ENTRIES_MAX


def test_a_waiting_request_takes_some_230_bytes_beside_itself() -> None:
    made = [request(f"r{number}", f"holder-{number % 1_000}") for number in range(10_000)]
    gc.collect()
    tracemalloc.start()
    ledger = Ledger()
    for each in made:
        ledger.request(each)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / len(made) <= BYTES_MAX
