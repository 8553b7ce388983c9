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
"""Bound on the requests that one instance has at once, while runs are short."""
BEHIND_SECONDS_MAX = 0.05
"""Bound on the expected wait of a request that is handed to a busy instance."""
LATEST_SHARE = 0.2
"""The weight of the latest run in the moving mean of run times."""


class State(IntEnum):
    """State of a request. A request that is over has none."""

    WAITING = 0
    BINDING = 1
    HELD = 2
    ENDING = 3
    """The end of the hold is being written."""


WAITING, BINDING, HELD, ENDING = State
CLOSED, _, WHOLE = Opened


class Entry(Struct, eq=False):
    """A request that is not over."""

    request: Request
    state: State = WAITING
    unit: Unit | None = None
    binding: Binding | None = None
    """The decision that bound the request; None for a hold that was read from the store."""
    is_recalled: bool = False
    """True if the instance was asked to return the request: it was handed over ahead of time and has not begun."""


class Recall(NamedTuple):
    """Ask an instance to return a request that it has not begun. If it does, call `Ledger.returned`."""

    request: Request
    instance: str


class GiveBack(NamedTuple):
    """End the hold of a request that was cancelled before its binding was written. Then call `Ledger.ended`."""

    request: Request
    instance: str


class Lost(NamedTuple):
    """A request has lost its instance: the instance is gone, or was assigned outside of this ledger."""

    request: Request
    instance: str


Effect = Binding | Recall | GiveBack | Lost


class Ledger:
    """The holds and the requests of a pool. Each call reports an event; the effects of it are added to `effects`."""

    def __init__(self, depth_max: int = DEPTH_MAX) -> None:
        self.effects: list[Effect] = []
        """Effects to carry out, in order. The executor takes and clears them."""
        self.waiting = Waiting()
        self._entries: dict[str, Entry] = {}
        self._unwanted: dict[str, Entry] = {}
        """Requests that were cancelled while they were being bound."""
        self._units: dict[str, Unit] = {}
        self._whole, self._jobs = Free(), Free()
        """Instances without a hold: those for any request, and those only for requests that share them."""
        self._partly = Partly(depth_max)
        """Instances with holds that can take further requests."""
        self._depth_max = depth_max
        self._depth = 1
        """Bound on the requests that one instance has at once. It follows from recent run times."""
        self._run_seconds: float | None = None
        self._in_flight = 0
        self._behind = Behind()

    # Requests.

    def request(self, request: Request) -> State:
        """Take a request. Return `BINDING` if an instance is free, else `WAITING`. A known request keeps its state."""
        known = self._entries.get(request.id)
        if known is None and self._unwanted and (known := self._unwanted.pop(request.id, None)) is not None:
            # The request was cancelled while it was being bound, and is wanted again.
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
        """Drop a request that holds nothing yet. Return the state that it had; None if it is unknown.

        While a request is being bound, nobody knows whether it will get the instance: `GiveBack` follows if it does. A
        held request is left as it is: end it by `ending` and `ended`.
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
        """Note that a binding is written. Return whether its request now holds the instance.

        If the request was cancelled meanwhile, `GiveBack` is added to the effects, and the ledger waits for `ended`. If
        the instance is gone, `Lost` is added.
        """
        if binding.is_over:
            known = self._entries.get(binding.request.id)
            return known is not None and known.binding is binding and known.state is HELD
        entry = self._resolve(binding)
        is_there = self._units.get(binding.instance) is entry.unit
        if not is_there:
            # The instance went while the binding was written; one of the same name is another.
            self._detach(entry, reopens=False)
        if not binding.is_wanted:
            self._entries[binding.request.id] = entry
            entry.state = ENDING
            self.effects.append(GiveBack(binding.request, binding.instance))
        elif is_there:
            self._mark_held(entry)
        else:
            del self._entries[binding.request.id]
            self.effects.append(Lost(entry.request, binding.instance))
        self._serve()
        return is_there and binding.is_wanted

    def lost(self, binding: Binding, *, instance_taken: bool = True) -> None:
        """Note that a binding could not be written.

        Its request waits again at its old place, unless it was cancelled. With `instance_taken` the instance is closed
        until `open` is called for it; else it stays as free as before.
        """
        if binding.is_over:
            return
        entry = self._resolve(binding)
        unit = entry.unit
        self._detach(entry, reopens=False)
        if unit is not None and instance_taken:
            self._close(unit)
        if binding.is_wanted:
            entry.state = WAITING
            self.waiting.add(entry.request)
        self._serve()

    def refused(self, binding: Binding) -> None:
        """Note that a binding can never be written, because of its request.

        The request is dropped, and the instance stays as free as before.
        """
        if binding.is_over:
            return
        self.cancel(binding.request.id)
        self.lost(binding, instance_taken=False)

    # The end of holds.

    def ending(self, id_: str, *, frees: bool) -> bool:
        """Note that the end of a hold is about to be written. Return False if the request holds nothing.

        With `frees` another request that shares the instance can be bound to it at once.
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
        """Note that the end of a hold could not be written: the request holds its instance again.

        If another request may have the instance already (`frees`), the request is dropped.
        """
        entry = self._entries.get(id_)
        if entry is not None and entry.state is ENDING:
            if entry.unit is None:
                del self._entries[id_]
            else:
                entry.state = HELD
                self._note_if_behind(entry)
                self._serve()

    def ended(self, id_: str) -> None:
        """Note that the end of a hold is written: the request is over."""
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
        """Note an instance and the requests that it can be given to.

        `opened` holds now, `reopened` once a shared hold has ended. `slots` is how many requests may share it at once,
        `last` the affinity key of its last holder.
        """
        unit = self._units.get(id_)
        if unit is None:
            unit = self._units[id_] = Unit(id_)
        same_key = last is None or last == unit.last
        if opened is unit.opened and reopened is unit.reopened and slots == unit.slots and same_key:
            return
        if opened is not unit.opened or not same_key:
            # The index finds an instance by its key: remove it before the key changes.
            self._displace(unit)
        unit.opened, unit.reopened, unit.slots = opened, reopened, slots
        if last is not None:
            unit.last = last
        if unit.free is None:
            self._place(unit)
        self._serve()

    def gone(self, id_: str) -> None:
        """Note that an instance is gone: its holders have lost it.

        A binding to it that is being written stays until its result is reported.
        """
        unit = self._units.pop(id_, None)
        if unit is None:
            return
        self._displace(unit)
        self._end_holds(unit)

    def taken(self, id_: str) -> None:
        """Note that an instance was assigned outside of this ledger.

        Its holders have lost it. It is closed until `open` is called for it.
        """
        unit = self._units.get(id_)
        if unit is not None:
            self._close(unit)
            self._end_holds(unit)

    def _end_holds(self, unit: Unit) -> None:
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
        """Note the run time of a request that shared an instance.

        The mean of run times decides how many requests one instance has at once.
        """
        mean = self._run_seconds
        self._run_seconds = mean = seconds if mean is None else mean + LATEST_SHARE * (seconds - mean)
        behind = min(BEHIND_SECONDS_MAX / mean, self._depth_max) if mean > 0 else self._depth_max
        before, self._depth = self._depth, min(self._depth_max, 1 + int(behind))
        if self._depth > before:
            self._serve()

    def runs_long(self, id_: str) -> None:
        """Note that a request runs for too long for others to wait behind it. The requests behind it are recalled."""
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
        """Note that an instance has returned a request that it had not begun.

        The request waits at its old place, or is bound anew. Returns None if the request does not hold this instance.
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
        """Take a hold from the store. It overrides what was decided since.

        Returns False if the caller must end the hold: it contradicts a known one, or its request was cancelled while it
        was being written.
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
            # The store has the binding that is being written; `bound` will be called for it later.
            assert entry.binding is not None
            return self.bound(entry.binding)
        others = list(unit.holds.values())
        for one in others:
            if one.state is not BINDING and not (request.shares and one.request.shares):
                return False
        for one in others:
            if not (request.shares and one.request.shares):
                self._abandon(one)
        if unwanted is not None:
            self._abandon(unwanted)
        if entry is not None and entry.state is BINDING:
            self._abandon(entry)
        if entry is None:
            entry = self._entries[request.id] = Entry(request)
        else:
            self.waiting.remove(entry.request)
        self._attach(entry, unit)
        self._mark_held(entry)
        self._serve()
        return True

    # What can be asked.

    @property
    def depth(self) -> int:
        """The number of waiting requests."""
        return len(self.waiting)

    @property
    def holders(self) -> int:
        """The number of holders that hold an instance or wait for one."""
        return len(self.waiting.queues)

    @property
    def free(self) -> int:
        """The number of instances that are free for any request."""
        return len(self._whole)

    @property
    def in_flight(self) -> int:
        """The number of bindings whose result is not known yet."""
        return self._in_flight

    @property
    def is_empty(self) -> bool:
        """Report whether the ledger knows no instance and no request."""
        return not self._entries and not self._units and not self._in_flight

    def state(self, id_: str) -> State | None:
        entry = self._entries.get(id_)
        return entry.state if entry is not None else None

    def is_recalled(self, id_: str) -> bool:
        """Report whether an instance was asked to return a request, and has not answered."""
        entry = self._entries.get(id_)
        return entry is not None and entry.is_recalled

    def instance_of(self, id_: str) -> str | None:
        """Return the instance of a request that is held or ending; None without one."""
        entry = self._entries.get(id_)
        return entry.unit.id if entry is not None and entry.unit is not None and entry.state >= HELD else None

    def holders_of(self, instance: str) -> list[str]:
        """Return the requests that hold an instance, in the order in which they were bound to it."""
        unit = self._units.get(instance)
        return [id_ for id_, one in unit.holds.items() if one.state >= HELD] if unit is not None else []

    def is_used(self, instance: str) -> bool:
        """Report whether a request holds an instance, or is being bound to it."""
        unit = self._units.get(instance)
        return unit is not None and bool(unit.holds)

    def position(self, id_: str) -> int | None:
        """Return how many requests are served before a waiting one; None if the request does not wait."""
        return self.waiting.position(id_)

    def depths(self) -> dict[str, int]:
        """Return the number of waiting requests by holder."""
        return {name: len(queue.ranks) for name, queue in self.waiting.queues.items() if queue.ranks}

    def bounds(self) -> dict[str, int]:
        """Return the number of holds and bindings by holder."""
        return {name: queue.has for name, queue in self.waiting.queues.items() if queue.has}

    # Moves.

    def _serve(self) -> None:
        """Bind waiting requests to free instances, in order. Stop at the first request that no instance suits."""
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
        """Recall a request that has not begun, if its priority is lower than that of the first waiting one."""
        if not self._behind.recalled and (found := self._behind.pick(request.priority)) is not None:
            self._recall(found)

    def _recall(self, entry: Entry) -> None:
        if not entry.is_recalled:
            assert entry.unit is not None
            self._behind.discard(entry)
            entry.is_recalled = True
            self._note_if_behind(entry)
            self.effects.append(Recall(entry.request, entry.unit.id))

    def _note_if_behind(self, entry: Entry) -> None:
        """Note that a request can be recalled, if it is behind others on its instance."""
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
        """Remove a hold from its instance. With `reopens`, set which requests the instance can be given to next."""
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

    def _resolve(self, binding: Binding) -> Entry:
        """Mark a binding as resolved. Return the entry of its request."""
        id_ = binding.request.id
        binding.is_over = True
        self._in_flight -= 1
        return self._entries[id_] if binding.is_wanted else self._unwanted.pop(id_)

    def _mark_held(self, entry: Entry) -> None:
        """Mark a request as held. Recall it if its instance turned out to run a long one."""
        assert entry.unit is not None
        entry.state = HELD
        if entry.request.shares:
            self._note_if_behind(entry)
            if entry.unit.slow:
                self._recall(entry)

    def _abandon(self, entry: Entry) -> None:
        """Abandon a binding before its result is known. Its request waits again unless it was cancelled."""
        assert entry.binding is not None
        wanted = entry.binding.is_wanted
        self._resolve(entry.binding)
        self._detach(entry, reopens=False)
        if wanted:
            entry.state = WAITING
            self.waiting.add(entry.request)

    def _place(self, unit: Unit) -> None:
        """Put an instance into the index of those that requests can be bound to, if it may be given to any."""
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
