"""The ledger of a pool: events in, effects out. The contract is in the package's docstring."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

from rota.pools.request import Binding, Request
from rota.pools.units import Behind, Free, Opened, Partly, Unit
from rota.pools.waiting import Waiting

DEPTH_MAX = 16
"""Requests that are handed to one instance at once, where they are short."""
BEHIND_SECONDS_MAX = 0.05
"""A request may be expected to stand behind others on an instance for at most so long."""
LATEST_SHARE = 0.2
"""The share of the latest run in the mean of run times."""


class State(IntEnum):
    """State of a request. A request that is over has none."""

    WAITING = 0
    BINDING = 1
    HELD = 2
    ENDING = 3
    """The end of its hold is being written."""


WAITING, BINDING, HELD, ENDING = State
CLOSED, _, WHOLE = Opened


class Entry(Struct, eq=False):
    """A request that is not over."""

    request: Request
    state: State = WAITING
    unit: Unit | None = None
    binding: Binding | None = None
    """The decision by which it is on the instance, unless that is from the store."""
    is_recalled: bool = False
    """True if it is being recalled: it was handed to an instance ahead of time and has not begun."""


class Recall(NamedTuple):
    """Ask an instance to return a request that it has not begun; then call `Ledger.returned`, if it does."""

    request: Request
    instance: str


class GiveBack(NamedTuple):
    """End a hold that was written after its request had been cancelled; then call `Ledger.ended`."""

    request: Request
    instance: str


class Lost(NamedTuple):
    """An instance is gone, or somebody else has taken it: the request has lost what it held."""

    request: Request
    instance: str


Effect = Binding | Recall | GiveBack | Lost


class Ledger:
    """The holds and the requests of a pool. Each call is an event; its effects are in `effects`."""

    def __init__(self, depth_max: int = DEPTH_MAX) -> None:
        self.effects: list[Effect] = []
        """Effects that are to be carried out, in order. The executor takes and clears them."""
        self.waiting = Waiting()
        self._entries: dict[str, Entry] = {}
        self._unwanted: dict[str, Entry] = {}
        """Requests that were cancelled while an instance was being given to them."""
        self._units: dict[str, Unit] = {}
        self._whole, self._jobs = Free(), Free()
        """Instances without a hold, that can be given for anything, or for requests that share them."""
        self._partly = Partly(depth_max)
        """Instances with holds to which more can be handed."""
        self._depth_max = depth_max
        self._depth = 1
        """Requests that may be handed to one instance at once, by how long they ran lately."""
        self._run_seconds: float | None = None
        self._in_flight = 0
        self._behind = Behind()

    # Requests.

    def request(self, request: Request) -> State:
        """Take a request. Return its state: `BINDING` if an instance is free, else `WAITING`. Known ones stay."""
        known = self._entries.get(request.id)
        if known is None and self._unwanted and (known := self._unwanted.pop(request.id, None)) is not None:
            # It was cancelled while an instance was being given to it, and is wanted again.
            assert known.binding is not None
            known.binding.is_wanted = True
            self._entries[request.id] = known
        if known is not None:
            return known.state
        entry = self._entries[request.id] = Entry(request)
        unit = self._pick(request) if not self.waiting.requests else None
        if unit is not None:
            self._bind(entry, unit)
        else:
            self.waiting.add(request)
            self._serve()
        return entry.state

    def cancel(self, id_: str) -> State | None:
        """Drop a request that has nothing yet. Return the state that it had.

        While it is being bound it is not known whether it will hold an instance: `GiveBack` follows if it does. A held
        one is left as it is: end it by `ending` and `ended`.
        """
        entry = self._entries.get(id_)
        if entry is None:
            return None
        state = entry.state
        if state is WAITING:
            del self._entries[id_]
            self.waiting.remove(entry.request)
            self._serve()
        elif state is BINDING:
            assert entry.binding is not None
            entry.binding.is_wanted = False
            self._unwanted[id_] = self._entries.pop(id_)
        return state

    # The results of what was decided.

    def bound(self, binding: Binding) -> bool:
        """A binding is written. Return whether its request holds the instance by it.

        If the request was cancelled since, `GiveBack` is among the effects, and its end is awaited. Else, if the
        instance is gone, `Lost` is.
        """
        if binding.is_over:
            known = self._entries.get(binding.request.id)
            return known is not None and known.binding is binding and known.state is HELD
        entry = self._landed(binding)
        is_there = self._units.get(binding.instance) is entry.unit
        if not is_there:
            # The instance went while that was written; one of the same name is another.
            self._detach(entry, reopens=False)
        if not binding.is_wanted:
            self._entries[binding.request.id] = entry
            entry.state = ENDING
            self.effects.append(GiveBack(binding.request, binding.instance))
        elif is_there:
            self._held(entry)
        else:
            del self._entries[binding.request.id]
            self.effects.append(Lost(entry.request, binding.instance))
        self._serve()
        return is_there and binding.is_wanted

    def lost(self, binding: Binding, *, instance_taken: bool = True) -> None:
        """A binding could not be written: the request goes back to its place.

        The instance is closed until `open` is called for it again, unless it is free as before.
        """
        if binding.is_over:
            return
        entry = self._landed(binding)
        unit = entry.unit
        self._detach(entry, reopens=False)
        if unit is not None and instance_taken:
            self._close(unit)
        if binding.is_wanted:
            entry.state = WAITING
            self.waiting.add(entry.request)
        self._serve()

    def refused(self, binding: Binding) -> None:
        """A binding can never be written, because of the request: drop it. The instance is as free as before."""
        if binding.is_over:
            return
        self.cancel(binding.request.id)
        self.lost(binding, instance_taken=False)

    # The end of holds.

    def ending(self, id_: str, *, frees: bool) -> bool:
        """A held request has come to its end, which is about to be written. False: it is not held.

        With `frees` the instance can be given to another that shares it at once.
        """
        entry = self._entries.get(id_)
        if entry is None or entry.state is not HELD:
            return False
        entry.state = ENDING
        if frees:
            self._detach(entry)
        else:
            self._behind.discard(entry)
        self._serve()
        return True

    def held_again(self, id_: str) -> None:
        """The end of a hold could not be written, and does not count."""
        entry = self._entries.get(id_)
        if entry is not None and entry.state is ENDING:
            if entry.unit is None:
                del self._entries[id_]
            else:
                entry.state = HELD
                self._note(entry)
                self._serve()

    def ended(self, id_: str) -> None:
        """The end of a hold is written: the request is over."""
        entry = self._entries.get(id_)
        if entry is not None and entry.state >= HELD:
            if entry.unit is not None:
                self._detach(entry)
            del self._entries[id_]
            self._serve()

    # Instances.

    def open(
        self, id_: str, opened: Opened, *, reopened: Opened = CLOSED, slots: int = 1, last: str | None = None
    ) -> None:
        """An instance is there, and can be given for this. `last`: the affinity key of its last holder."""
        unit = self._units.get(id_)
        if unit is None:
            unit = self._units[id_] = Unit(id_)
        same_key = last is None or last == unit.last
        if opened is unit.opened and reopened is unit.reopened and slots == unit.slots and same_key:
            return
        if opened is not unit.opened or not same_key:
            # Its place is found by its key: it leaves it before that changes.
            self._displace(unit)
        unit.opened, unit.reopened, unit.slots = opened, reopened, slots
        if last is not None:
            unit.last = last
        if unit.free is None:
            self._place(unit)
        self._serve()

    def gone(self, id_: str) -> None:
        """An instance is gone: whoever held it has lost it. A binding to it is awaited."""
        unit = self._units.pop(id_, None)
        if unit is None:
            return
        self._displace(unit)
        self._dispossess(unit)

    def taken(self, id_: str) -> None:
        """Note that an instance was assigned outside of this ledger, which ends its hold. It is closed until `open`."""
        unit = self._units.get(id_)
        if unit is not None:
            self._close(unit)
            self._dispossess(unit)

    def _dispossess(self, unit: Unit) -> None:
        for entry in list(unit.holds.values()):
            if entry.state in (HELD, ENDING):
                was = entry.state
                self._detach(entry)
                del self._entries[entry.request.id]
                if was is HELD:
                    self.effects.append(Lost(entry.request, unit.id))
        self._serve()

    # Handing several requests to one instance.

    def ran(self, seconds: float) -> None:
        """A request that shared an instance ran for so long: how many are handed to one at once follows from that."""
        mean = self._run_seconds
        self._run_seconds = mean = seconds if mean is None else mean + LATEST_SHARE * (seconds - mean)
        behind = min(BEHIND_SECONDS_MAX / mean, self._depth_max) if mean > 0 else self._depth_max
        before, self._depth = self._depth, min(self._depth_max, 1 + int(behind))
        if self._depth > before:
            self._serve()

    def runs_long(self, id_: str) -> None:
        """Note that a request runs for too long for others to be behind it. Those are recalled."""
        entry = self._entries.get(id_)
        unit = entry.unit if entry is not None else None
        if entry is None or unit is None or entry.state is not HELD:
            return
        unit.slow = id_
        self._place(unit)
        for other in unit.holds.values():
            if other is not entry and other.state is HELD:
                self._recall(other)
        self._serve()

    def returned(self, id_: str, instance: str) -> Request | None:
        """An instance has returned a request that it had not begun: it is back at its place, or bound to another.

        None: that instance does not hold it, or not any more.
        """
        entry = self._entries.get(id_)
        if entry is None or entry.state is not HELD or entry.unit is not self._units.get(instance):
            return None
        self._detach(entry, reopens=False)
        entry.state, entry.is_recalled = WAITING, False
        self.waiting.add(entry.request)
        self._serve()
        return entry.request

    # What is stored.

    def hold(self, request: Request, instance: str) -> bool:
        """Take a hold from the store, which counts more than what was decided since.

        False: it is to be ended. It contradicts a hold that is known, or its request was cancelled before it was
        written.
        """
        unit = self._units.get(instance)
        entry = self._entries.get(request.id)
        if entry is not None and entry.state >= HELD:
            return entry.unit is unit or entry.state is ENDING
        unwanted = self._unwanted.get(request.id)
        if unit is None:
            unit = self._units[instance] = Unit(instance)
        elif unwanted is not None and unwanted.unit is unit:
            return False
        elif entry is not None and entry.unit is unit:
            # It is the binding in flight, whose result comes later.
            assert entry.binding is not None
            return self.bound(entry.binding)
        others = list(unit.holds.values())
        for one in others:
            if one.state is not BINDING and not (request.shares and one.request.shares):
                return False
        for one in others:
            if not (request.shares and one.request.shares):
                self._void(one)
        if unwanted is not None:
            self._void(unwanted)
        if entry is not None and entry.state is BINDING:
            self._void(entry)
        if entry is None:
            entry = self._entries[request.id] = Entry(request)
        else:
            self.waiting.remove(entry.request)
        self._attach(entry, unit)
        self._held(entry)
        self._serve()
        return True

    # What can be asked.

    @property
    def depth(self) -> int:
        """The number of requests that wait."""
        return len(self.waiting)

    @property
    def holders(self) -> int:
        """The number of holders that have or want something."""
        return len(self.waiting.queues)

    @property
    def free(self) -> int:
        """Instances that any request could have at once."""
        return len(self._whole)

    @property
    def in_flight(self) -> int:
        """Bindings whose result is not known."""
        return self._in_flight

    @property
    def is_empty(self) -> bool:
        """Report whether nothing is known: no instance, no request."""
        return not self._entries and not self._units and not self._in_flight

    def state(self, id_: str) -> State | None:
        entry = self._entries.get(id_)
        return entry.state if entry is not None else None

    def is_recalled(self, id_: str) -> bool:
        """Report whether a request was asked back from its instance, which has not answered."""
        entry = self._entries.get(id_)
        return entry is not None and entry.is_recalled

    def instance_of(self, id_: str) -> str | None:
        """Return the instance that a request holds, or whose end on it is being written."""
        entry = self._entries.get(id_)
        return entry.unit.id if entry is not None and entry.unit is not None and entry.state >= HELD else None

    def holders_of(self, instance: str) -> list[str]:
        """Return the requests that hold an instance, in the order in which they were given it."""
        unit = self._units.get(instance)
        return [id_ for id_, one in unit.holds.items() if one.state >= HELD] if unit is not None else []

    def is_used(self, instance: str) -> bool:
        """Report whether a request holds an instance, or is being given it."""
        unit = self._units.get(instance)
        return unit is not None and bool(unit.holds)

    def position(self, id_: str) -> int | None:
        """Count those that are served before one that waits. None: it does not wait."""
        return self.waiting.position(id_)

    def depths(self) -> dict[str, int]:
        """Count those that wait, by holder."""
        return {name: len(queue.ranks) for name, queue in self.waiting.queues.items() if queue.ranks}

    def bounds(self) -> dict[str, int]:
        """Count what holders have, and what is being given to them."""
        return {name: queue.has for name, queue in self.waiting.queues.items() if queue.has}

    # Moves.

    def _serve(self) -> None:
        """Give what is free to those that wait, in order. Nobody is served before the one that is first."""
        waiting = self.waiting
        if not (self._whole.units or self._jobs.units or self._partly.count or self._behind.by_priority):
            return
        while waiting.requests and (request := waiting.first()) is not None:
            unit = self._pick(request)
            if unit is None:
                self._make_room(request)
                return
            waiting.remove_first(request)
            self._bind(self._entries[request.id], unit)

    def _bind(self, entry: Entry, unit: Unit) -> None:
        self._attach(entry, unit)
        entry.state = BINDING
        entry.binding = binding = Binding(entry.request, unit.id)
        self._in_flight += 1
        self.effects.append(binding)

    def _pick(self, request: Request) -> Unit | None:
        whole, jobs, key = self._whole, self._jobs, request.prefers
        if not request.shares:
            return (whole.preferred(key) if key else None) or whole.first()
        preferred = (whole.preferred(key) or jobs.preferred(key)) if key else None
        return preferred or whole.first() or jobs.first() or self._partly.pick(self._depth)

    def _make_room(self, request: Request) -> None:
        """Recall a request of lower priority that has not begun, if the first in line has a higher one."""
        if not self._behind.recalled and (found := self._behind.pick(request.priority)) is not None:
            self._recall(found)

    def _recall(self, entry: Entry) -> None:
        if not entry.is_recalled:
            assert entry.unit is not None
            self._behind.discard(entry)
            entry.is_recalled = True
            self._note(entry)
            self.effects.append(Recall(entry.request, entry.unit.id))

    def _note(self, entry: Entry) -> None:
        """Note a hold that stands behind others, if it does."""
        assert entry.unit is not None
        if entry is not next(iter(entry.unit.holds.values())):
            self._behind.put(entry)

    def _attach(self, entry: Entry, unit: Unit) -> None:
        self._displace(unit)
        request = entry.request
        entry.unit = unit
        unit.holds[request.id] = entry
        self.waiting.gained(request.holder)
        if request.shares:
            self._place(unit)

    def _detach(self, entry: Entry, *, reopens: bool = True) -> None:
        """Take a hold off its instance; what the instance can be given for then follows."""
        unit, request = entry.unit, entry.request
        assert unit is not None
        self._displace(unit)
        del unit.holds[request.id]
        entry.unit = entry.binding = None
        if request.shares:
            self._behind.discard(entry)
            if unit.holds:
                # The first of them begins now.
                self._behind.discard(next(iter(unit.holds.values())))
        self.waiting.gave_back(request.holder)
        if unit.slow == request.id:
            unit.slow = ""
        if reopens:
            unit.last = request.prefers
            unit.opened = min(unit.opened, unit.reopened) if request.shares else CLOSED
        self._place(unit)

    def _landed(self, binding: Binding) -> Entry:
        """Take the result of a binding; return the entry of its request."""
        id_ = binding.request.id
        binding.is_over = True
        self._in_flight -= 1
        return self._entries[id_] if binding.is_wanted else self._unwanted.pop(id_)

    def _held(self, entry: Entry) -> None:
        """A hold is written."""
        assert entry.unit is not None
        entry.state = HELD
        if entry.request.shares:
            self._note(entry)
            if entry.unit.slow:
                self._recall(entry)

    def _void(self, entry: Entry) -> None:
        """Give up a binding in flight before its result is known: its request waits again, if it is wanted."""
        assert entry.binding is not None
        wanted = entry.binding.is_wanted
        self._landed(entry.binding)
        self._detach(entry, reopens=False)
        if wanted:
            entry.state = WAITING
            self.waiting.add(entry.request)

    def _place(self, unit: Unit) -> None:
        """Put an instance where it is found by those it can be given to."""
        self._displace(unit)
        if unit.opened is CLOSED or self._units.get(unit.id) is not unit:
            return
        if not unit.holds:
            (self._whole if unit.opened is WHOLE else self._jobs).put(unit)
        elif len(unit.holds) < unit.slots and not unit.slow and _all_share(unit.holds.values()):
            self._partly.put(unit)

    def _close(self, unit: Unit) -> None:
        self._displace(unit)
        unit.opened = CLOSED

    def _displace(self, unit: Unit) -> None:
        if unit.free is not None:
            unit.free.take(unit)
        elif unit.others is not None:
            self._partly.discard(unit)


def _all_share(entries: Iterable[Entry]) -> bool:
    return all(entry.request.shares for entry in entries)
