"""The queue of a pool: events in, bindings out. The contract is in the package's docstring."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rota.pools.books import Books
from rota.pools.demand import first_of, rank_of
from rota.pools.fit import pick
from rota.pools.request import BOUND, IN_FLIGHT, OVER, UNWANTED, Binding, Offer, Request
from rota.pools.view import View


class Restored(NamedTuple):
    """What is to be done after a restart."""

    bindings: list[Binding]
    """To be carried out, as always."""
    surplus: list[tuple[Request, str]]
    """Holds that contradict one that was kept, on the same request or the same instance: to be given back."""


class Queue:
    """Assigns free instances to requests. Each call tells of an event, which has taken effect when it returns."""

    def __init__(self) -> None:
        self._books = Books()
        self.view = View(self._books)

    # Requests.

    def add(self, request: Request) -> Binding | None:
        """A request comes. Nothing happens if it is known already, wherever it is.

        The answer is the instance it gets, if one is free: nobody who waits could have used that.
        """
        books = self._books
        id_ = request.id
        if id_ in books.held or id_ in books.waiting:
            return None
        demand = books.fit.demands.get(request.needs) or books.fit.demand(request.needs)
        place = pick(request, demand)
        if place is not None:
            return books.bind(request, books.take(place))
        books.join(request, demand)
        return None

    def cancel(self, request: str) -> str | None:
        """A request is over, wherever it is. The answer is the instance that it held, to be given back.

        While its binding is carried out it is not known whether it will hold one; `confirmed` says what to do then.
        """
        books = self._books
        waiting = books.waiting.get(request)
        if waiting is not None:
            books.leave(waiting)
            return None
        binding = books.held.pop(request, None)
        if binding is None:
            return None
        if binding.state == IN_FLIGHT:
            binding.state = UNWANTED
            return None
        books.end(binding)
        return binding.instance

    # Instances.

    def offer(self, offer: Offer) -> Binding | None:
        """An instance is ready and free. The answer is who gets it.

        For one in flight it is taken note of. One that is held stays so: tell that its hold has ended, then offer it.
        """
        books = self._books
        binding = books.instances.get(offer.id)
        if binding is not None:
            binding.offer = offer
            return None
        place = books.free.get(offer.id)
        if place is not None:
            if place[2] == offer:
                return None
            books.take(place)
        if books.waiting:
            supply = books.fit.supplies.get(offer.provides) or books.fit.supply(offer.provides)
            entry = first_of(supply.demands)
            if entry is not None:
                return books.bind(books.next(entry[4]), offer)
        books.put(offer)
        return None

    def withdraw(self, instance: str) -> None:
        """An instance is not to be had: gone, draining or unready. Who holds it goes on holding it."""
        books = self._books
        place = books.free.get(instance)
        if place is not None:
            books.take(place)
            return
        binding = books.instances.get(instance)
        if binding is not None:
            binding.offer = None

    def released(self, instance: str) -> Request | None:
        """The hold on an instance has ended, however it did. The answer is whose it was.

        The instance comes back by an offer, when it is ready for the next. For one in flight the outcome is awaited.
        """
        books = self._books
        binding = books.instances.get(instance)
        if binding is None or binding.state != BOUND:
            return None
        del books.held[binding.request.id]
        books.end(binding)
        return binding.request

    # Outcomes.

    def confirmed(self, binding: Binding) -> bool:
        """A binding has been carried out. False: it is not wanted any more, and the instance is to be given back.

        After that the instance is looked at anew, and offered if it is free: what was offered in between is not kept.
        """
        state = binding.state
        if state == IN_FLIGHT:
            binding.state = BOUND
            self._books.in_flight -= 1
            return True
        if state == UNWANTED:
            self._books.end(binding)
        return state == BOUND

    def lost(self, binding: Binding, *, instance_taken: bool = True) -> list[Binding]:
        """A binding could not be carried out. Its request goes back to its place, or to the next instance at once.

        The instance is out until it is offered again. If it is told to be free still, the answer may be the very same
        pair: this is for a race that was lost, not for an error that stays.
        """
        state = binding.state
        if state in (BOUND, OVER):
            return []
        books = self._books
        books.end(binding)
        wanted = state == IN_FLIGHT
        if wanted:
            del books.held[binding.request.id]
        offer = None if instance_taken else binding.offer
        if offer is not None and wanted:
            # Both go back before anyone is chosen: each may find another now.
            books.put(offer)
            demand = books.fit.demand(binding.request.needs)
            books.join(binding.request, demand)
            return books.settle([demand, *books.fit.supplies[offer.provides].demands])
        again = None
        if wanted:
            again = self.add(binding.request)
        elif offer is not None:
            again = self.offer(offer)
        return [] if again is None else [again]

    # All at once.

    def restore(
        self, *, bound: Iterable[tuple[Request, str]] = (), waiting: Iterable[Request] = (), free: Iterable[Offer] = ()
    ) -> Restored:
        """Takes what is stored: who holds which instance, who waits, what is free. In any order, and again at any time.

        A hold that is stored counts more than what is thought to wait, to be free or in flight. What is known and not
        mentioned is left as it is.
        """
        books = self._books
        holds = sorted(bound, key=lambda hold: (hold[0].id, hold[1]))
        surplus = [(request, instance) for request, instance in holds if not books.hold(request, instance)]
        for offer in sorted(free, key=lambda offer: (offer.since, offer.id)):
            if offer.id not in books.instances and offer.id not in books.free:
                books.put(offer)
        for request in sorted(waiting, key=rank_of):
            if request.id not in books.held and request.id not in books.waiting:
                books.join(request, books.fit.demand(request.needs))
        return Restored(books.settle(books.fit.demands.values()), surplus)
