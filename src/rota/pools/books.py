"""What a queue knows, and the moves from one place to another that every event is made of.

A request is in one place: it waits, is in a binding, or is unknown. So is an instance: free, in a binding, or out.
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.pools.demand import Demand, Holder, Line, first_of
from rota.pools.fit import Fit, pick
from rota.pools.request import BOUND, IN_FLIGHT, OVER, Binding, Offer, Request
from rota.pools.supply import Place


class Books:
    """The state of a queue. No event leaves somebody waiting who could have what is free."""

    def __init__(self) -> None:
        self.waiting: dict[str, Request] = {}
        self.held: dict[str, Binding] = {}
        """Bindings by request: those confirmed, and those in flight that are still wanted."""
        self.instances: dict[str, Binding] = {}
        """Bindings by instance: those confirmed, and all that are in flight."""
        self.free: dict[str, Place] = {}
        self.holders: dict[str, Holder] = {}
        self.fit = Fit()
        self.in_flight = 0
        self.offers = 0

    # Requests.

    def join(self, request: Request, demand: Demand) -> None:
        name = request.holder
        holder = self.holders.get(name)
        if holder is None:
            holder = self.holders[name] = Holder(name)
        self.waiting[request.id] = request
        demand.join(request, holder)

    def leave(self, request: Request) -> None:
        holder = self.holders[request.holder]
        del self.waiting[request.id]
        self.fit.demands[request.needs].leave(request, holder)
        self.forget(holder)

    def next(self, line: Line) -> Request:
        return self.waiting.pop(line.demand.take(line))

    # Instances.

    def put(self, offer: Offer) -> None:
        self.offers = number = self.offers + 1
        place = self.free[offer.id] = (offer.since, number, offer)
        supply = self.fit.supplies.get(offer.provides) or self.fit.supply(offer.provides)
        supply.put(place)

    def take(self, place: Place) -> Offer:
        offer = place[2]
        del self.free[offer.id]
        self.fit.supplies[offer.provides].take(place)
        return offer

    # Both.

    def bind(self, request: Request, offer: Offer) -> Binding:
        name = request.holder
        holder = self.holders.get(name)
        if holder is None:
            holder = self.holders[name] = Holder(name)
        holder.bound += 1
        self.in_flight += 1
        binding = Binding(request, offer.id, holder, offer)
        self.held[request.id] = self.instances[offer.id] = binding
        return binding

    def end(self, binding: Binding) -> None:
        """The instance is out, and whose it was has one less. Where the request goes is another matter."""
        if binding.state != BOUND:
            self.in_flight -= 1
        binding.state = OVER
        del self.instances[binding.instance]
        holder = binding.holder
        holder.gave_back()
        self.forget(holder)

    def forget(self, holder: Holder) -> None:
        if not holder.bound and not holder.waiting:
            del self.holders[holder.name]

    def settle(self, demands: Iterable[Demand]) -> list[Binding]:
        """Serves whom it can, in order, of those with these needs."""
        bindings: list[Binding] = []
        servable = list(demands)
        while True:
            # What is free only gets less here: who cannot be served now is not looked at again.
            servable = [demand for demand in servable if demand.depth and demand.can_be_met()]
            entry = first_of(servable)
            if entry is None:
                return bindings
            demand = entry[4].demand
            request = self.next(entry[4])
            place = pick(request, demand)
            assert place is not None, request.id
            bindings.append(self.bind(request, self.take(place)))

    def hold(self, request: Request, instance: str) -> bool:
        """Takes a hold from the store. Whatever else was thought of the two gives way, but for another hold."""
        mine, its = self.held.get(request.id), self.instances.get(instance)
        if mine is not None and mine is its:
            if mine.state == IN_FLIGHT:
                mine.state = BOUND
                self.in_flight -= 1
            return True
        if (mine is not None and mine.state == BOUND) or (its is not None and its.state == BOUND):
            return False
        if its is not None:
            self.void(its)
        if mine is not None:
            self.void(mine)
        if request.id in self.waiting:
            self.leave(self.waiting[request.id])
        place = self.free.get(instance)
        binding = self.bind(request, self.take(place) if place is not None else Offer(instance))
        binding.state = BOUND
        self.in_flight -= 1
        return True

    def void(self, binding: Binding) -> None:
        """Gives up a binding in flight before its outcome is told. Its request, if it is wanted, waits again."""
        wanted = binding.state == IN_FLIGHT
        self.end(binding)
        if wanted:
            del self.held[binding.request.id]
            self.join(binding.request, self.fit.demand(binding.request.needs))
