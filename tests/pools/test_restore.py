"""A ledger made from what is stored, and brought up to it."""

from __future__ import annotations

from rota.pools import GiveBack, Ledger, Opened, State
from tests.pools.making import assert_no_trace, decided, job, request, taken


def test_a_binding_that_is_found_in_the_store_is_written() -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.WHOLE)
    ledger.request(request("r1"))
    binding = decided(ledger)
    assert ledger.hold(request("r1"), "i1")
    assert (ledger.state("r1"), ledger.in_flight) == (State.HELD, 0)
    assert ledger.bound(binding), "its result comes later, and is the same"
    assert (taken(ledger), ledger.instance_of("r1")) == ([], "i1")


def test_a_binding_that_is_found_in_the_store_keeps_its_place_on_its_instance() -> None:
    ledger = Ledger()
    ledger.ran(0.0)
    ledger.open("i1", Opened.WHOLE, slots=2)
    ledger.request(job("r1"))
    ledger.request(job("r2"))
    first, second = taken(ledger)
    assert ledger.hold(job("r1"), "i1")
    assert ledger.bound(second)  # type: ignore[arg-type]
    assert ledger.bound(first)  # type: ignore[arg-type]
    assert ledger.holders_of("i1") == ["r1", "r2"]


def test_a_request_cancelled_before_its_binding_was_found_in_the_store_stays_cancelled() -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.WHOLE)
    ledger.request(request("r1"))
    binding = decided(ledger)
    ledger.cancel("r1")
    assert not ledger.hold(request("r1"), "i1"), "it is to be ended"
    assert ledger.state("r1") is None
    assert not ledger.bound(binding)
    assert taken(ledger) == [GiveBack(request("r1"), "i1")]
    ledger.ended("r1")
    assert_no_trace(ledger)


def test_a_stored_hold_that_contradicts_another_leaves_no_trace() -> None:
    ledger = Ledger()
    assert ledger.hold(request("r1"), "i1")
    assert not ledger.hold(request("r1"), "i2")
    ledger.gone("i1")
    assert ledger.is_empty
