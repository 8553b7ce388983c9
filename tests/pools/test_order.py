"""The order of requests: priority, then the holder with the fewest, then arrival; and the instance each prefers."""

from __future__ import annotations

from collections import Counter

import pytest

from rota.pools import Ledger, Opened, State
from tests.pools.making import bound, decided, hold, job, pairs, request, served, taken


def test_first_come_first_served() -> None:
    ledger = Ledger()
    for number in (3, 0, 4, 1, 2):
        ledger.request(request(f"r{number}"))
    assert served(ledger, 5) == ["r0", "r1", "r2", "r3", "r4"]


def test_those_who_came_at_the_same_instant_go_by_id() -> None:
    ledger = Ledger()
    for id_ in "cab":
        ledger.request(request(id_, f"holder-of-{id_}", at=1.0))
    assert served(ledger, 3) == ["a", "b", "c"]


def test_priority_goes_before_everything_else() -> None:
    ledger = Ledger()
    hold(ledger, request("r0", "rich"), "i0")
    for number, (holder, priority) in enumerate([("poor", 0), ("poor", -5), ("rich", 1), ("rich", 1000)], start=1):
        ledger.request(request(f"r{number}", holder, priority=priority))
    assert served(ledger, 4) == ["r4", "r3", "r1", "r2"]


def test_holders_alternate_however_much_one_asks_for() -> None:
    ledger = Ledger()
    for number in range(100):
        ledger.request(request(f"r{number}", "greedy"))
    for number in range(100, 103):
        ledger.request(request(f"r{number}", "modest"))
    assert served(ledger, 7) == ["r0", "r100", "r1", "r101", "r2", "r102", "r3"]


def test_what_is_being_bound_counts_for_its_holder() -> None:
    ledger = Ledger()
    for id_, holder in (("r1", "a"), ("r2", "a"), ("r3", "b")):
        ledger.request(request(id_, holder))
    ledger.open("i1", Opened.WHOLE)
    ledger.open("i2", Opened.WHOLE)
    assert pairs(ledger) == [("r1", "i1"), ("r3", "i2")]


def test_a_holder_that_gives_back_is_sooner_next() -> None:
    ledger = Ledger()
    for number in range(3):
        hold(ledger, request(f"h{number}", "a"), f"i{number}")
    hold(ledger, request("h3", "b"), "i3")
    ledger.request(request("r1", "b"))
    ledger.request(request("r2", "a"))
    for number in range(3):
        ledger.ended(f"h{number}")
    assert served(ledger, 2) == ["r2", "r1"]


def test_a_holder_whose_first_request_is_gone_is_as_late_as_its_second() -> None:
    ledger = Ledger()
    for id_, holder in (("r1", "a"), ("r2", "b"), ("r3", "a")):
        ledger.request(request(id_, holder))
    ledger.cancel("r1")
    assert served(ledger, 2) == ["r2", "r3"]


def test_holders_with_endless_demand_have_equal_shares() -> None:
    ledger = Ledger()
    number = 0

    def demand(holder: str, requests: int) -> None:
        nonlocal number
        for _ in range(requests):
            number += 1
            ledger.request(request(f"r{number}", holder))

    demand("greedy", 200)
    for holder in ("b", "c", "d"):
        demand(holder, 2)
    held = []
    for each in range(8):
        ledger.open(f"i{each}", Opened.WHOLE)
        held.append(decided(ledger))
        assert ledger.bound(held[-1])
    got = Counter[str]()
    for each in range(400):
        ended = held.pop(each % 8)
        ledger.ended(ended.request.id)
        demand(ended.request.holder, 1)
        ledger.open(ended.instance, Opened.WHOLE)
        binding = decided(ledger)
        assert ledger.bound(binding)
        got[binding.request.holder] += 1
        held.insert(each % 8, binding)
    assert set(got.values()) == {100}


@pytest.mark.parametrize("depth", [1, 5_000])
def test_a_request_that_has_to_try_again_keeps_its_place(depth: int) -> None:
    ledger = Ledger()
    for number in range(depth):
        ledger.request(request(f"r{number}"))
    ledger.open("i1", Opened.WHOLE)
    binding = decided(ledger)
    ledger.request(request(f"r{depth}"))
    ledger.lost(binding)
    assert ledger.position("r0") == 0
    assert served(ledger, 1) == ["r0"]


def test_a_request_that_is_made_again_keeps_its_place() -> None:
    ledger = Ledger()
    for number in range(3):
        ledger.request(request(f"r{number}"))
    ledger.cancel("r0")
    assert ledger.request(request("r1", at=99.0)) is State.WAITING
    ledger.request(request("r0"))
    assert served(ledger, 3) == ["r0", "r1", "r2"]


def test_no_shared_request_passes_an_exclusive_one_that_is_first() -> None:
    ledger = Ledger()
    ledger.ran(0.0)
    ledger.open("i1", Opened.JOBS, reopened=Opened.JOBS, slots=8)
    ledger.request(job("r1"))
    assert bound(ledger) == ["r1"]
    ledger.request(request("r2"))
    ledger.request(job("r3"))
    ledger.ending("r1", frees=True)
    ledger.ended("r1")
    assert (taken(ledger), list(ledger.waiting.in_order())) == ([], ["r2", "r3"])
    ledger.open("i1", Opened.WHOLE, reopened=Opened.JOBS, slots=8)
    assert bound(ledger) == ["r2"]
    ledger.ended("r2")
    ledger.open("i1", Opened.WHOLE)
    assert bound(ledger) == ["r3"]


def test_what_waited_behind_an_exclusive_one_is_served_when_that_is_cancelled() -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.JOBS)
    ledger.request(request("r1"))
    ledger.request(job("r2"))
    assert taken(ledger) == []
    ledger.cancel("r1")
    assert pairs(ledger) == [("r2", "i1")]


def test_the_instance_that_had_the_same_key_last_is_taken_first() -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.WHOLE)
    ledger.open("i2", Opened.WHOLE, last="main")
    ledger.request(request("r1", prefers="main"))
    ledger.request(request("r2", prefers="main"))
    assert pairs(ledger) == [("r1", "i2"), ("r2", "i1")]


def test_the_instance_that_is_free_for_the_longest_is_taken_first() -> None:
    ledger = Ledger()
    for id_ in ("i1", "i2"):
        ledger.open(id_, Opened.WHOLE)
    ledger.open("i1", Opened.WHOLE, slots=2)
    ledger.request(request("r1"))
    assert pairs(ledger) == [("r1", "i1")]
