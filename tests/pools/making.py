"""Requests, offers and pools in few words."""

from __future__ import annotations

from collections.abc import Iterable

from rota.pools import Binding, Offer, Queue, Request


def request(
    id_: str, holder: str = "someone", *, priority: int = 0, at: float | None = None, needs: str = "", prefers: str = ""
) -> Request:
    """A request; it came when its number says, unless told otherwise: `r3` at 3."""
    arrival = float(id_.lstrip("abcdefghijklmnopqrstuvwxyz-")) if at is None else at
    return Request(id_, holder, priority, arrival, frozenset(needs.split()), prefers)


def offer(id_: str, provides: str = "", *, last: str = "", since: float = 0.0) -> Offer:
    return Offer(id_, frozenset(provides.split()), last, since)


def pair(binding: Binding | None) -> tuple[str, str] | None:
    return None if binding is None else (binding.request.id, binding.instance)


def pairs(bindings: Iterable[Binding]) -> list[tuple[str, str]]:
    return [(binding.request.id, binding.instance) for binding in bindings]


def bound(queue: Queue, binding: Binding | None) -> Binding:
    """Confirms a binding that has to be there, and wanted."""
    assert binding is not None
    assert queue.confirmed(binding)
    return binding


def hold(queue: Queue, wanted: Request, instance: str) -> Binding:
    """Has a request hold an instance that is new."""
    queue.offer(offer(instance))
    return bound(queue, queue.add(wanted))


def served(queue: Queue, instances: int) -> list[str]:
    """Who gets so many new instances, one after another, each kept."""
    found = [queue.offer(offer(f"new-{number}")) for number in range(instances)]
    return [bound(queue, binding).request.id for binding in found if binding is not None]


def assert_no_trace(queue: Queue) -> None:
    books = queue._books
    assert not books.waiting and not books.held and not books.instances and not books.free and not books.holders
    assert books.in_flight == 0
    for demand in books.fit.demands.values():
        assert (demand.depth, demand.lines) == (0, 0)
        assert demand.first() is None
    assert not any(supply.free or supply.by_last for supply in books.fit.supplies.values())
