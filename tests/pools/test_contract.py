"""The contract of the package, a test a bullet."""

from __future__ import annotations

from rota.pools import GiveBack, Ledger, Opened, Recall, State
from tests.pools.making import assert_no_trace, bound, decided, hold, job, pairs, request, served, sharing, taken


def test_nothing_waits_that_could_be_served() -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.WHOLE)
    assert ledger.request(request("r1")) is State.BINDING
    assert ledger.request(request("r2")) is State.WAITING
    ledger.open("i2", Opened.WHOLE)
    assert pairs(ledger) == [("r1", "i1"), ("r2", "i2")]
    assert (ledger.depth, ledger.free) == (0, 0)


def test_in_order() -> None:
    ledger = Ledger()
    hold(ledger, request("r0", "has-one"), "i0")
    ledger.request(request("r1", "has-one"))
    ledger.request(request("r2", "has-none"))
    ledger.request(request("r3", "has-none"))
    ledger.request(request("r4", "has-one", priority=1))
    assert served(ledger, 4) == ["r4", "r2", "r3", "r1"]


def test_never_twice() -> None:
    ledger = Ledger()
    ledger.open("i1", Opened.WHOLE)
    ledger.request(request("r1"))
    binding = decided(ledger)
    ledger.open("i2", Opened.WHOLE)
    for state in (State.BINDING, State.HELD):
        assert ledger.request(request("r1")) is state
        ledger.open("i1", Opened.WHOLE)
        assert (taken(ledger), ledger.free) == ([], 1)
        assert ledger.bound(binding)
    ledger.ending("r1", frees=False)
    assert ledger.request(request("r1")) is State.ENDING
    assert taken(ledger) == []


def test_not_behind_a_long_one() -> None:
    ledger = sharing("r1", "r2", "r3")
    ledger.runs_long("r1")
    assert taken(ledger) == [Recall(job("r2"), "i1"), Recall(job("r3"), "i1")]
    assert ledger.request(job("r4")) is State.WAITING, "nothing is handed on behind it"
    ledger.ended("r1")
    assert pairs(ledger) == [("r4", "i1")]


def test_an_idle_instance_goes_before_one_that_works() -> None:
    ledger = sharing("r1")
    ledger.open("i2", Opened.JOBS, reopened=Opened.JOBS, slots=8)
    ledger.request(job("r2"))
    assert pairs(ledger) == [("r2", "i2")]


def test_cancelled_at_any_instant() -> None:
    ledger = Ledger()
    ledger.request(request("r1"))
    assert ledger.cancel("r1") is State.WAITING
    ledger.open("i1", Opened.WHOLE)
    ledger.request(request("r2"))
    binding = decided(ledger)
    assert ledger.cancel("r2") is State.BINDING
    assert not ledger.bound(binding)
    assert taken(ledger) == [GiveBack(request("r2"), "i1")]
    assert ledger.cancel("r2") is State.ENDING
    ledger.ended("r2")
    hold(ledger, request("r3"), "i3")
    assert ledger.cancel("r3") is State.HELD
    assert ledger.state("r3") is State.HELD, "its end is for the executor to write"
    assert ledger.ending("r3", frees=False)
    ledger.ended("r3")
    assert ledger.cancel("r3") is None
    assert_no_trace(ledger)


def test_forgets_nothing() -> None:
    waiting = [request(f"r{number}", holder) for number, holder in enumerate("aaabbc")]
    held = [(request("h1", "a"), "i1"), (request("h2", "a"), "i2"), (request("h3", "c"), "i3")]
    orders = []
    for step in (1, -1):
        ledger = Ledger()
        for each, instance in held[::step]:
            assert ledger.hold(each, instance)
        for each in waiting[::step]:
            ledger.request(each)
        orders.append(served(ledger, 6))
    assert orders == [["r3", "r4", "r5", "r0", "r1", "r2"]] * 2


def test_keeps_nothing() -> None:
    ledger = Ledger()
    for number in range(500):
        hold(ledger, request(f"r{number}", f"holder-{number}", prefers=f"key-{number}"), f"i{number}")
        ledger.request(request(f"w{number}", f"holder-{number}"))
        ledger.cancel(f"w{number}")
        ledger.ended(f"r{number}")
        ledger.open(f"i{number}", Opened.WHOLE)
        ledger.gone(f"i{number}")
    assert ledger.is_empty
    assert_no_trace(ledger)
    assert not ledger._whole._by_last


def test_what_is_said_of_something_unknown_changes_nothing() -> None:
    ledger = Ledger()
    assert ledger.cancel("r1") is None
    assert not ledger.ending("r1", frees=True)
    ledger.ended("r1")
    ledger.held_again("r1")
    ledger.runs_long("r1")
    assert ledger.returned("r1", "i1") is None
    ledger.gone("i1")
    ledger.taken("i1")
    assert bound(ledger) == [] and ledger.is_empty
