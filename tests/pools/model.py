"""The queue as one would write it with lists, so that one can see that it is right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rota.pools import Offer, Request

Pair = tuple[str, str]


@dataclass
class Flight:
    """A binding that is being carried out."""

    request: Request
    instance: str
    offer: Offer | None
    wanted: bool = True


@dataclass
class Model:
    waiting: list[Request] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)
    bound: list[tuple[Request, str]] = field(default_factory=list)
    free: list[tuple[object, int, Offer]] = field(default_factory=list)
    number: int = 0

    # What there is.

    def has(self, holder: str) -> int:
        held = [request for request, _ in self.bound] + [flight.request for flight in self.flights]
        return sum(request.holder == holder for request in held)

    def known(self, request: str) -> bool:
        held = [each for each, _ in self.bound] + [flight.request for flight in self.flights if flight.wanted]
        return any(each.id == request for each in held + self.waiting)

    def flight_of(self, instance: str) -> Flight | None:
        return next((flight for flight in self.flights if flight.instance == instance), None)

    def holds(self, instance: str) -> bool:
        return any(held == instance for _, held in self.bound)

    def in_turn(self) -> list[str]:
        """The order in which those who wait are served when instances for anyone come one by one."""
        rest, gained, order = list(self.waiting), dict.fromkeys((each.holder for each in self.waiting), 0), []
        while rest:
            rest.sort(key=lambda r: (-r.priority, self.has(r.holder) + gained[r.holder], r.arrival, r.id))
            gained[rest[0].holder] += 1
            order.append(rest.pop(0).id)
        return order

    # What happens.

    def settle(self) -> list[Pair]:
        """Serves the first in order for whom something is free, again and again."""
        pairs: list[Pair] = []
        while True:
            self.waiting.sort(key=lambda r: (-r.priority, self.has(r.holder), r.arrival, r.id))
            for request in self.waiting:
                fitting = sorted(place for place in self.free if request.needs <= place[2].provides)
                preferred = [place for place in fitting if request.prefers and place[2].last == request.prefers]
                if fitting:
                    place = (preferred or fitting)[0]
                    break
            else:
                return pairs
            self.waiting.remove(request)
            self.free.remove(place)
            self.flights.append(Flight(request, place[2].id, place[2]))
            pairs.append((request.id, place[2].id))

    def put(self, offer: Offer) -> None:
        self.number += 1
        self.free.append((offer.since, self.number, offer))

    def add(self, request: Request) -> list[Pair]:
        if not self.known(request.id):
            self.waiting.append(request)
        return self.settle()

    def cancel(self, request: str) -> str | None:
        self.waiting = [each for each in self.waiting if each.id != request]
        for flight in self.flights:
            if flight.request.id == request:
                flight.wanted = False
        instances = [instance for each, instance in self.bound if each.id == request]
        self.bound = [hold for hold in self.bound if hold[0].id != request]
        return instances[0] if instances else None

    def offer(self, offer: Offer) -> list[Pair]:
        flight = self.flight_of(offer.id)
        if flight is not None:
            flight.offer = offer
        elif not self.holds(offer.id) and offer not in [place[2] for place in self.free]:
            self.free = [place for place in self.free if place[2].id != offer.id]
            self.put(offer)
        return self.settle()

    def withdraw(self, instance: str) -> None:
        self.free = [place for place in self.free if place[2].id != instance]
        flight = self.flight_of(instance)
        if flight is not None:
            flight.offer = None

    def released(self, instance: str) -> str | None:
        requests = [request.id for request, held in self.bound if held == instance]
        self.bound = [hold for hold in self.bound if hold[1] != instance]
        return requests[0] if requests else None

    def confirmed(self, instance: str) -> bool:
        flight = self.flight_of(instance)
        assert flight is not None
        self.flights.remove(flight)
        if flight.wanted:
            self.bound.append((flight.request, instance))
        return flight.wanted

    def lost(self, instance: str, *, taken: bool) -> list[Pair]:
        flight = self.flight_of(instance)
        assert flight is not None
        self.flights.remove(flight)
        if flight.wanted:
            self.waiting.append(flight.request)
        if flight.offer is not None and not taken:
            self.put(flight.offer)
        return self.settle()

    def restore(
        self, bound: Iterable[tuple[Request, str]], waiting: Iterable[Request], free: Iterable[Offer]
    ) -> tuple[list[Pair], list[Pair]]:
        surplus = []
        for request, instance in sorted(bound, key=lambda hold: (hold[0].id, hold[1])):
            if (request.id, instance) in [(each.id, held) for each, held in self.bound]:
                continue
            if request.id in [each.id for each, _ in self.bound] or self.holds(instance):
                surplus.append((request.id, instance))
                continue
            for flight in list(self.flights):
                if flight.instance == instance or (flight.wanted and flight.request.id == request.id):
                    self.flights.remove(flight)
                    if flight.wanted:
                        self.waiting.append(flight.request)
            self.waiting = [each for each in self.waiting if each.id != request.id]
            self.free = [place for place in self.free if place[2].id != instance]
            self.bound.append((request, instance))
        for offer in sorted(free, key=lambda offer: (offer.since, offer.id)):
            known = self.holds(offer.id) or self.flight_of(offer.id)
            if not known and offer.id not in [place[2].id for place in self.free]:
                self.put(offer)
        for request in waiting:
            if not self.known(request.id):
                self.waiting.append(request)
        return self.settle(), surplus
