"""Instances: opened, gone, there again under the same name, taken by somebody else."""

from __future__ import annotations

from rota.pools import Ledger, Lost, Opened, State
from tests.pools.making import SHORT_SECONDS, bound, decided, job, pairs, request, taken


def test_a_binding_to_an_instance_that_was_replaced_under_its_name_is_lost() -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.WHOLE)
    ledger.request(request("r1"))
    binding = decided(ledger)
    ledger.gone("i1")
    ledger.open("i1", Opened.WHOLE)
    assert not ledger.bound(binding)
    assert taken(ledger) == [Lost(request("r1"), "i1")]
    assert (ledger.state("r1"), ledger.is_used("i1"), ledger.free) == (None, False, 1)


def test_a_binding_to_an_instance_that_was_replaced_leaves_the_new_one_as_it_is() -> None:
    ledger = Ledger()
    ledger.ran(SHORT_SECONDS)
    ledger.open("i1", Opened.WHOLE, slots=8)
    ledger.request(job("r1"))
    old = decided(ledger)
    ledger.gone("i1")
    ledger.open("i1", Opened.WHOLE, slots=8)
    ledger.request(job("r2"))
    assert bound(ledger) == ["r2"]
    ledger.lost(old)
    assert pairs(ledger) == [("r1", "i1")], "more can be handed to the new one"
    assert ledger.state("r1") is State.BINDING


def test_an_instance_that_somebody_else_took_is_not_given_before_it_is_opened() -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.WHOLE, reopened=Opened.JOBS, slots=8)
    ledger.request(job("r1"))
    assert bound(ledger) == ["r1"]
    ledger.request(job("r2"))
    ledger.taken("i1")
    assert taken(ledger) == [Lost(job("r1"), "i1")]
    assert ledger.state("r2") is State.WAITING
    ledger.open("i1", Opened.JOBS, reopened=Opened.JOBS, slots=8)
    assert pairs(ledger) == [("r2", "i1")]


def test_a_free_instance_that_somebody_else_took_is_not_given() -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.WHOLE)
    ledger.taken("i1")
    ledger.request(request("r1"))
    assert (taken(ledger), ledger.free) == ([], 0)
