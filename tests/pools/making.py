"""Requests, instances and ledgers in few words."""

from __future__ import annotations

from rota.pools import Binding, Effect, Ledger, Opened, Recall, Request

SHORT_SECONDS = 0.001
"""A run time with which as many requests as possible are handed to one instance."""


def request(
    id_: str,
    holder: str = "someone",
    *,
    priority: int = 0,
    at: float | None = None,
    prefers: str = "",
    shares: bool = False,
) -> Request:
    """Make a request; its arrival is the number in its id, unless given: `r3` came at 3."""
    arrival = float(id_.lstrip("abcdefghijklmnopqrstuvwxyz-")) if at is None else at
    return Request(id_, holder, priority, arrival, prefers, shares)


def job(id_: str, holder: str = "someone", *, priority: int = 0, at: float | None = None, prefers: str = "") -> Request:
    """Make a request that shares its instance."""
    return request(id_, holder, priority=priority, at=at, prefers=prefers, shares=True)


def taken(ledger: Ledger) -> list[Effect]:
    """Take the effects, as an executor does."""
    effects = list(ledger.effects)
    ledger.effects.clear()
    return effects


def pairs(ledger: Ledger) -> list[tuple[str, str]]:
    """Take the effects, which are bindings; return who gets what."""
    return [(each.request.id, each.instance) for each in bindings(ledger)]


def bindings(ledger: Ledger) -> list[Binding]:
    effects = taken(ledger)
    found = [each for each in effects if isinstance(each, Binding)]
    assert len(found) == len(effects), effects
    return found


def recalled(ledger: Ledger) -> list[str]:
    """Take the effects, which are recalls; return which requests are asked back."""
    effects = taken(ledger)
    found = [each.request.id for each in effects if isinstance(each, Recall)]
    assert len(found) == len(effects), effects
    return found


def decided(ledger: Ledger) -> Binding:
    """Take the one effect that there is, a binding."""
    [binding] = bindings(ledger)
    return binding


def bound(ledger: Ledger) -> list[str]:
    """Have all bindings written; return whose they are."""
    found = bindings(ledger)
    for each in found:
        assert ledger.bound(each)
    return [each.request.id for each in found]


def hold(ledger: Ledger, wanted: Request, instance: str) -> None:
    """Have a request hold an instance that is new."""
    ledger.open(instance, Opened.WHOLE)
    ledger.request(wanted)
    assert bound(ledger) == [wanted.id]
    assert ledger.instance_of(wanted.id) == instance


def sharing(*ids: str, instance: str = "i1", reopened: Opened = Opened.JOBS, slots: int = 8) -> Ledger:
    """Make a ledger in which these requests share an instance."""
    ledger = Ledger()
    ledger.ran(SHORT_SECONDS)
    ledger.open(instance, Opened.WHOLE, reopened=reopened, slots=slots)
    for id_ in ids:
        ledger.request(job(id_))
    assert bound(ledger) == list(ids)
    assert ledger.holders_of(instance) == list(ids)
    return ledger


def served(ledger: Ledger, instances: int) -> list[str]:
    """Open so many new instances, one after another, each kept; return who gets them."""
    found = []
    for number in range(instances):
        ledger.open(f"new-{number}", Opened.WHOLE)
        found += bound(ledger)
    return found


def assert_no_trace(ledger: Ledger) -> None:
    """Nothing is known of any request; instances are known, and none is used."""
    assert not ledger._entries and not ledger._unwanted
    assert not ledger.waiting.requests and not ledger.waiting.queues and ledger.waiting.first() is None
    assert ledger.in_flight == 0
    for unit in ledger._units.values():
        assert (unit.holds, unit.slow) == ({}, "")
