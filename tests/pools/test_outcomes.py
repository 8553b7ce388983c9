"""The outcomes of bindings: written, lost, refused, not wanted any more; and the ends of holds."""

from __future__ import annotations

import pytest

from rota.pools import GiveBack, Ledger, Opened, State
from tests.pools.making import assert_no_trace, decided, pairs, request, taken


@pytest.mark.parametrize("shares", [False, True])
def test_a_request_that_was_cancelled_is_on_its_instance_until_its_end_is_written(shares: bool) -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.WHOLE, reopened=Opened.JOBS)
    wanted = request("r1", shares=shares)
    ledger.request(wanted)
    binding = decided(ledger)
    ledger.cancel("r1")
    assert not ledger.bound(binding)
    assert taken(ledger) == [GiveBack(wanted, "i1")]
    assert (ledger.state("r1"), ledger.instance_of("r1")) == (State.ENDING, "i1")

    ledger.open("i2", Opened.WHOLE)
    assert ledger.request(wanted) is State.ENDING, "it is on one instance at most"
    ledger.request(request("r2", shares=shares))
    assert pairs(ledger) == [("r2", "i2")], "the instance is not free yet"
    ledger.ended("r1")
    assert (ledger.state("r1"), ledger.is_used("i1")) == (None, False)
    ledger.cancel("r2")
    assert ledger.in_flight == 1


def test_a_request_that_was_cancelled_counts_for_its_holder_until_its_end_is_written() -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.WHOLE)
    ledger.request(request("r1", "a"))
    binding = decided(ledger)
    ledger.cancel("r1")
    ledger.bound(binding)
    assert ledger.bounds() == {"a": 1}
    ledger.ended("r1")
    assert ledger.bounds() == {}
    assert_no_trace(ledger)


def test_a_cancelled_request_whose_instance_went_has_its_end_written() -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.WHOLE)
    ledger.request(request("r1"))
    binding = decided(ledger)
    ledger.cancel("r1")
    ledger.gone("i1")
    assert not ledger.bound(binding)
    assert taken(ledger) == [GiveBack(request("r1"), "i1")]
    assert (ledger.state("r1"), ledger.instance_of("r1")) == (State.ENDING, None)
    ledger.ended("r1")
    assert ledger.is_empty
