"""A store with instances and requests, and a caller that does with a queue what a controller does.

Decisions are carried out some time after they are made, and their outcomes told some time after that, or never.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rota.pools import Binding, Offer, Queue, Request

STRANGER = "stranger"
"""Whoever takes instances without asking the queue."""


@dataclass
class Instance:
    id: str
    provides: frozenset[str]
    ready: bool = True
    assigned: str = ""
    since: float = 0.0

    def offer(self) -> Offer:
        return Offer(self.id, self.provides, since=self.since)


@dataclass
class World:
    queue: Queue = field(default_factory=Queue)
    instances: dict[str, Instance] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    """Those that are not over."""
    told: dict[str, str] = field(default_factory=dict)
    """Which instance a request was told that it has; it is stored with it."""
    decided: list[Binding] = field(default_factory=list)
    carried_out: list[tuple[Binding, bool]] = field(default_factory=list)
    now: float = 0.0

    # What the caller does.

    def take(self, bindings: Iterable[Binding | None]) -> None:
        decided = [binding for binding in bindings if binding is not None]
        for binding in decided:
            self.check_turn(binding.request)
        if len(decided) == 1:
            # Of several, what their holders had when each was decided is not known any more.
            self.check_share(decided[0].request)
        self.decided += decided

    def check_turn(self, request: Request) -> None:
        """First come, first served: none of the same holder with the same needs came before and still waits."""
        for id_ in self.queue.view.waiting():
            other = self.requests[id_]
            if (other.holder, other.needs) == (request.holder, request.needs):
                assert (-other.priority, other.arrival) >= (-request.priority, request.arrival)

    def check_share(self, request: Request) -> None:
        """None of another holder with the same needs waits that is no less urgent, and has less than this one had."""
        view = self.queue.view
        had = view.bound_of(request.holder) - 1
        for id_ in view.waiting():
            other = self.requests[id_]
            if other.needs == request.needs and other.holder != request.holder:
                assert (-other.priority, view.bound_of(other.holder)) >= (-request.priority, had), "one is starved"

    def carry_out(self, binding: Binding) -> None:
        self.decided.remove(binding)
        instance = self.instances[binding.instance]
        landed = instance.ready and not instance.assigned
        if landed:
            instance.assigned = binding.request.id
        self.carried_out.append((binding, landed))

    def tell(self, binding: Binding, landed: bool) -> None:
        self.carried_out.remove((binding, landed))
        if not landed:
            self.take(self.queue.lost(binding))
        elif not self.queue.confirmed(binding):
            self.give_back(binding.instance, binding.request.id)
        self.look(binding.instance)

    def tell_wrongly(self, binding: Binding, landed: bool) -> None:
        """It landed, but the answer to that did not come through."""
        self.carried_out.remove((binding, landed))
        self.take(self.queue.lost(binding))

    def tell_holder(self, request: str, instance: str) -> None:
        if request in self.requests:
            assert self.told.setdefault(request, instance) == instance, "one request was given two instances"

    def give_back(self, instance: str, request: str) -> None:
        if request and self.instances[instance].assigned == request and self.told.get(request) != instance:
            self.instances[instance].assigned = ""
            self.instances[instance].since = self.now

    def look(self, id_: str) -> None:
        """Brings the queue to know of an instance what is stored of it."""
        instance = self.instances[id_]
        held = self.queue.view.request_of(id_)
        if held is not None and held.id != instance.assigned:
            self.queue.released(id_)
            self.told.pop(held.id, None)
            if held.id in self.requests:
                self.take([self.queue.add(held)])
        if instance.assigned in self.requests and self.told.get(instance.assigned, id_) == id_:
            found = self.queue.restore(bound=[(self.requests[instance.assigned], id_)])
            assert not found.surplus
            self.tell_holder(instance.assigned, id_)
            self.take(found.bindings)
        elif instance.assigned != STRANGER:
            self.give_back(id_, instance.assigned)
        if instance.ready and not instance.assigned:
            self.take([self.queue.offer(instance.offer())])
        else:
            self.queue.withdraw(id_)

    def restart(self) -> None:
        """What was decided is forgotten, and so are outcomes that nobody was told of."""
        self.decided, self.carried_out = [], []
        for instance in self.instances.values():
            known = instance.assigned in self.requests and self.told.get(instance.assigned, instance.id) == instance.id
            if not known and instance.assigned != STRANGER:
                self.give_back(instance.id, instance.assigned)
        self.queue = Queue()
        found = self.queue.restore(
            bound=[
                (self.requests[each.assigned], each.id)
                for each in self.instances.values()
                if each.assigned in self.requests
            ],
            waiting=self.requests.values(),
            free=[each.offer() for each in self.instances.values() if each.ready and not each.assigned],
        )
        for request, id_ in found.surplus:
            self.give_back(id_, request.id)
        self.take(found.bindings)
        for id_ in self.instances:
            self.look(id_)

    # What others do.

    def come(self, request: Request) -> None:
        self.requests[request.id] = request
        self.take([self.queue.add(request)])

    def over(self, request: str) -> None:
        """A request ends, done or cancelled, wherever it is."""
        del self.requests[request]
        held = self.queue.cancel(request)
        told = self.told.pop(request, None)
        assert told in (None, held), "the queue does not know of a hold that was told of"
        if held is not None:
            self.give_back(held, request)

    def die(self, id_: str) -> None:
        """Nothing of what it was assigned to is left."""
        self.instances[id_].ready = False
        self.instances[id_].assigned = ""
        self.look(id_)

    def revive(self, id_: str) -> None:
        if not self.instances[id_].ready:
            self.instances[id_].ready = True
            self.instances[id_].since = self.now
        self.look(id_)

    def settle(self) -> None:
        """All goes well until nothing is under way."""
        for instance in self.instances.values():
            if instance.assigned == STRANGER:
                instance.assigned = ""
            self.revive(instance.id)
        while self.decided or self.carried_out:
            for binding in list(self.decided):
                self.carry_out(binding)
            for binding, landed in list(self.carried_out):
                self.tell(binding, landed)
            for id_ in self.instances:
                self.look(id_)
