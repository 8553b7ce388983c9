"""The ledger as one would write it with lists, so that one can see that it is right."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.pools import Opened, Request, State
from rota.pools.ledger import BEHIND_SECONDS_MAX, LATEST_SHARE

Effect = tuple[str, str, str]
"""The effect (bind, recall, give back, lost), the request, the instance."""


@dataclass(eq=False)
class Instance:
    id: str
    opened: Opened = Opened.CLOSED
    reopened: Opened = Opened.CLOSED
    slots: int = 1
    last: str = ""
    slow: str = ""
    holds: list[Known] = field(default_factory=list)
    changed: int = 0
    """The number of the event by which it got what it has: nothing, or so many holds."""


@dataclass(eq=False)
class Known:
    """A request that is not over, or a cancelled one whose binding is in flight."""

    request: Request
    state: State = State.WAITING
    on: Instance | None = None
    flight: Flight | None = None
    recalled: bool = False
    held: int = 0
    """The number of the event by which it is held."""

    @property
    def behind(self) -> bool:
        return self.state is State.HELD and self.on is not None and self.on.holds[0] is not self


@dataclass(eq=False)
class Flight:
    """A binding."""

    of: Known
    instance: str
    wanted: bool = True
    over: bool = False


@dataclass
class Model:
    depth_max: int = 8
    known: list[Known] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)
    """Bindings whose result is not known."""
    instances: dict[str, Instance] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    mean: float | None = None
    number: int = 0

    # What there is.

    def find(self, id_: str) -> Known | None:
        return next((each for each in self.known if each.request.id == id_ and self.wanted(each)), None)

    def wanted(self, known: Known) -> bool:
        return known.state is not State.BINDING or known.flight is None or known.flight.wanted

    def has(self, holder: str) -> int:
        return sum(each.on is not None and each.request.holder == holder for each in self.known)

    def waiting(self) -> list[Known]:
        found = [each for each in self.known if each.state is State.WAITING]
        return sorted(found, key=lambda each: self.key(each.request, self.has(each.request.holder)))

    def key(self, request: Request, has: int) -> tuple[int, int, float, str]:
        return (-request.priority, has, request.arrival, request.id)

    def in_order(self) -> list[str]:
        """Return the requests in the order in which they would be bound, if instances came one by one."""
        rest, order = [each.request for each in self.waiting()], list[str]()
        has = {request.holder: self.has(request.holder) for request in rest}
        while rest:
            rest.sort(key=lambda request: self.key(request, has[request.holder]))
            has[rest[0].holder] += 1
            order.append(rest.pop(0).id)
        return order

    def free(self, opened: Opened) -> list[Instance]:
        found = [each for each in self.instances.values() if not each.holds and each.opened is opened]
        return sorted(found, key=lambda each: each.changed)

    def depth(self) -> int:
        if self.mean is None:
            return 1
        return next((n for n in range(1, self.depth_max) if n * self.mean > BEHIND_SECONDS_MAX), self.depth_max)

    # Moves.

    def pick(self, request: Request) -> Instance | None:
        whole, jobs = self.free(Opened.WHOLE), self.free(Opened.JOBS) if request.shares else []
        preferred = [each for each in whole + jobs if request.prefers and each.last == request.prefers]
        if preferred or whole or jobs:
            return (preferred + whole + jobs)[0]
        if not request.shares:
            return None
        for holds in range(1, self.depth()):
            partly = [
                each
                for each in self.instances.values()
                if each.opened is not Opened.CLOSED and len(each.holds) == holds < each.slots and not each.slow
                if all(one.request.shares for one in each.holds)
            ]
            if partly:
                return min(partly, key=lambda each: each.changed)
        return None

    def settle(self) -> None:
        while waiting := self.waiting():
            first = waiting[0]
            instance = self.pick(first.request)
            if instance is None:
                self.make_room(first.request.priority)
                return
            self.attach(first, instance)
            first.state = State.BINDING
            first.flight = Flight(first, instance.id)
            self.flights.append(first.flight)
            self.effects.append(("bind", first.request.id, instance.id))

    def make_room(self, priority: int) -> None:
        behind = [each for each in self.known if each.behind]
        if any(each.recalled for each in behind):
            return
        below = [each for each in behind if each.request.priority < priority]
        if below:
            self.recall(min(below, key=lambda each: (each.request.priority, -each.held)))

    def recall(self, known: Known) -> None:
        if not known.recalled:
            assert known.on is not None
            known.recalled = True
            self.effects.append(("recall", known.request.id, known.on.id))

    def change(self, instance: Instance) -> None:
        self.number += 1
        instance.changed = self.number

    def attach(self, known: Known, instance: Instance) -> None:
        known.on = instance
        instance.holds.append(known)
        self.change(instance)

    def detach(self, known: Known) -> Instance:
        instance = known.on
        assert instance is not None
        instance.holds.remove(known)
        if instance.slow == known.request.id:
            instance.slow = ""
        known.on = known.flight = None
        self.change(instance)
        return instance

    def end(self, known: Known) -> None:
        instance = self.detach(known)
        instance.last = known.request.prefers
        instance.opened = min(instance.opened, instance.reopened) if known.request.shares else Opened.CLOSED

    def hold_it(self, known: Known) -> None:
        assert known.on is not None
        self.number += 1
        known.state, known.held = State.HELD, self.number
        if known.on.slow:
            self.recall(known)

    # Events.

    def request(self, request: Request) -> State:
        cancelled = next((each for each in self.flights if each.of.request.id == request.id), None)
        if cancelled is not None:
            cancelled.wanted = True
        known = self.find(request.id)
        if known is None:
            known = Known(request)
            self.known.append(known)
        self.settle()
        return known.state

    def cancel(self, id_: str) -> State | None:
        known = self.find(id_)
        if known is None:
            return None
        state = known.state
        if state is State.WAITING:
            self.known.remove(known)
        elif known.flight is not None and state is State.BINDING:
            known.flight.wanted = False
        self.settle()
        return state

    def land(self, flight: Flight) -> None:
        flight.over = True
        self.flights.remove(flight)

    def bound(self, flight: Flight) -> bool:
        known = flight.of
        if flight.over:
            return known in self.known and known.flight is flight and known.state is State.HELD
        self.land(flight)
        is_there = self.instances.get(flight.instance) is known.on
        if not is_there:
            self.detach(known)
        if not flight.wanted:
            known.state = State.ENDING
            self.effects.append(("give back", known.request.id, flight.instance))
        elif is_there:
            self.hold_it(known)
        else:
            self.known.remove(known)
            self.effects.append(("lost", known.request.id, flight.instance))
        self.settle()
        return is_there and flight.wanted

    def lost(self, flight: Flight, *, instance_taken: bool) -> None:
        if flight.over:
            return
        instance = self.give_up(flight)
        if instance_taken:
            instance.opened = Opened.CLOSED
        self.settle()

    def give_up(self, flight: Flight) -> Instance:
        self.land(flight)
        instance = self.detach(flight.of)
        flight.of.state = State.WAITING
        if not flight.wanted:
            self.known.remove(flight.of)
        return instance

    def refused(self, flight: Flight) -> None:
        if not flight.over:
            flight.wanted = False
            self.lost(flight, instance_taken=False)

    def ending(self, id_: str, *, frees: bool) -> bool:
        known = self.find(id_)
        if known is None or known.state is not State.HELD:
            return False
        known.state = State.ENDING
        if frees:
            self.end(known)
        self.settle()
        return True

    def held_again(self, id_: str) -> None:
        known = self.find(id_)
        if known is None or known.state is not State.ENDING:
            return
        if known.on is None:
            self.known.remove(known)
        else:
            self.number += 1
            known.state, known.held = State.HELD, self.number
        self.settle()

    def ended(self, id_: str) -> None:
        known = self.find(id_)
        if known is not None and known.state in (State.HELD, State.ENDING):
            if known.on is not None:
                self.end(known)
            self.known.remove(known)
            self.settle()

    def open(self, id_: str, opened: Opened, *, reopened: Opened, slots: int, last: str | None) -> None:
        instance = self.instances.setdefault(id_, Instance(id_))
        before = (instance.opened, instance.reopened, instance.slots, instance.last)
        after = (opened, reopened, slots, instance.last if last is None else last)
        if before != after:
            instance.opened, instance.reopened, instance.slots, instance.last = after
            if instance.holds or (before[0], before[3]) != (after[0], after[3]):
                self.change(instance)
        self.settle()

    def gone(self, id_: str) -> None:
        instance = self.instances.pop(id_, None)
        if instance is not None:
            self.dispossess(instance)

    def taken(self, id_: str) -> None:
        instance = self.instances.get(id_)
        if instance is not None:
            instance.opened = Opened.CLOSED
            self.dispossess(instance)

    def dispossess(self, instance: Instance) -> None:
        for known in list(instance.holds):
            if known.state is State.BINDING:
                continue
            if known.state is State.HELD:
                self.effects.append(("lost", known.request.id, instance.id))
            self.end(known)
            self.known.remove(known)
        self.settle()

    def ran(self, seconds: float) -> None:
        self.mean = seconds if self.mean is None else self.mean + LATEST_SHARE * (seconds - self.mean)
        self.settle()

    def runs_long(self, id_: str) -> None:
        known = self.find(id_)
        if known is None or known.state is not State.HELD:
            return
        assert known.on is not None
        known.on.slow = id_
        for other in known.on.holds:
            if other is not known and other.state is State.HELD:
                self.recall(other)
        self.settle()

    def returned(self, id_: str, instance: str) -> str | None:
        known = self.find(id_)
        if known is None or known.state is not State.HELD or known.on is not self.instances.get(instance):
            return None
        self.detach(known)
        known.state, known.recalled = State.WAITING, False
        self.settle()
        return id_

    def hold(self, request: Request, instance_id: str) -> bool:
        instance = self.instances.get(instance_id)
        flight = next((each for each in self.flights if each.of.request.id == request.id), None)
        known = self.find(request.id)
        if known is not None and known.state in (State.HELD, State.ENDING):
            return known.on is instance or known.state is State.ENDING
        if flight is not None and flight.of.on is instance:
            return flight.wanted and self.bound(flight)
        instance = self.instances.setdefault(instance_id, Instance(instance_id))
        against = [each for each in instance.holds if not (each.request.shares and request.shares)]
        if any(each.state is not State.BINDING for each in against):
            return False
        for each in [*(each.flight for each in against), flight]:
            if each is not None:
                self.give_up(each)
        known = self.find(request.id)
        if known is None:
            known = Known(request)
            self.known.append(known)
        self.attach(known, instance)
        self.hold_it(known)
        self.settle()
        return True
