"""Requests that share an instance: how many are handed to it, and when they are asked back."""

from __future__ import annotations

from rota.pools import Binding, Ledger, Opened, Recall, State
from tests.pools.making import SHORT_SECONDS, bound, decided, job, pairs, recalled, request, sharing, taken


def test_a_request_that_is_written_behind_a_long_one_is_recalled_at_once() -> None:
    ledger = sharing("r1")
    ledger.request(job("r2"))
    binding = decided(ledger)
    ledger.runs_long("r1")
    assert taken(ledger) == [], "whether it is there is not known"
    assert ledger.bound(binding)
    assert taken(ledger) == [Recall(job("r2"), "i1")]


def test_a_stored_request_behind_a_long_one_is_recalled_at_once() -> None:
    ledger = sharing("r1")
    ledger.runs_long("r1")
    assert ledger.hold(job("r2"), "i1")
    assert taken(ledger) == [Recall(job("r2"), "i1")]


def test_a_return_that_is_said_again_does_not_take_a_request_off_another_instance() -> None:
    ledger = sharing("r1", "r2")
    ledger.runs_long("r1")
    taken(ledger)
    ledger.open("i2", Opened.WHOLE)
    assert ledger.returned("r2", "i1") == job("r2")
    assert bound(ledger) == ["r2"]
    assert ledger.returned("r2", "i1") is None
    assert (ledger.state("r2"), ledger.instance_of("r2")) == (State.HELD, "i2")


def test_more_are_handed_on_as_soon_as_run_times_allow_it() -> None:
    ledger = Ledger()
    for id_ in ("i1", "i2"):
        ledger.open(id_, Opened.WHOLE, slots=8)
    for number in range(6):
        ledger.request(job(f"r{number}"))
    assert pairs(ledger) == [("r0", "i1"), ("r1", "i2")]
    ledger.ran(0.05)
    assert pairs(ledger) == [("r2", "i1"), ("r3", "i2")]
    for _ in range(3):
        ledger.ran(0.0)
        assert pairs(ledger) == []
    ledger.ran(0.0)
    assert pairs(ledger) == [("r4", "i1"), ("r5", "i2")]


def test_one_that_is_written_while_a_higher_priority_waits_is_recalled() -> None:
    ledger = sharing("r1", slots=2)
    ledger.request(job("r2"))
    binding = decided(ledger)
    ledger.request(job("r3", priority=1))
    assert taken(ledger) == [], "whether it is there is not known"
    assert ledger.bound(binding)
    assert taken(ledger) == [Recall(job("r2"), "i1")]


def test_one_is_recalled_at_a_time() -> None:
    ledger = sharing("r1", "r2", "r3", slots=3)
    ledger.request(job("r4", priority=1))
    assert taken(ledger) == [Recall(job("r3"), "i1")]
    ledger.request(job("r5", priority=1))
    assert taken(ledger) == []
    ledger.returned("r3", "i1")
    first, second = taken(ledger)
    assert isinstance(first, Binding) and (first.request.id, first.instance) == ("r4", "i1")
    assert second == Recall(job("r2"), "i1")
    assert list(ledger.waiting.in_order()) == ["r5", "r3"]


def test_the_lowest_priority_is_recalled_first_and_of_those_the_one_that_was_held_last() -> None:
    ledger = Ledger()
    ledger.ran(SHORT_SECONDS)
    for id_ in ("i1", "i2"):
        ledger.open(id_, Opened.WHOLE, slots=3)
    for id_, priority in (("r1", 0), ("r2", 0), ("r3", 1), ("r4", 0), ("r5", 0), ("r6", 1)):
        ledger.request(job(id_, priority=priority))
    bound(ledger)
    assert [ledger.holders_of(id_) for id_ in ("i1", "i2")] == [["r1", "r3", "r5"], ["r2", "r4", "r6"]]
    ledger.request(request("r7", priority=2))
    order = []
    while found := recalled(ledger):
        order += found
        ledger.returned(found[0], ledger.instance_of(found[0]) or "")
    assert order == ["r5", "r4", "r6", "r3"], "an exclusive one waits until an instance has nothing left"
