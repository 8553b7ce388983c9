"""The instances of a pool, as its ledger knows them, and those of them that are free."""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from rota.pools.ledger import Entry


class Opened(IntEnum):
    """The requests that an instance can be given to."""

    CLOSED = 0
    """No request: the instance is not ready, is draining, or is being replaced."""
    JOBS = 1
    """Requests that share it: it resets itself before each."""
    WHOLE = 2
    """Any request."""


class Unit(Struct, eq=False):
    """One instance."""

    id: str
    opened: Opened = Opened.CLOSED
    reopened: Opened = Opened.CLOSED
    """The requests that it can be given to when one that shares it has ended."""
    slots: int = 1
    """Requests that share it and may be handed to it at once."""
    last: str = ""
    """The affinity key of the request that had it last."""
    holds: dict[str, Entry] = field(default_factory=dict)
    """The requests that hold it, or are being given it, in the order in which that was decided."""
    slow: str = ""
    """The request that has run on it for long: nothing is handed to it behind that."""
    free: Free | None = None
    """The free ones that it is among, while it is."""
    others: OrderedDict[str, Unit] | None = None
    """The instances with as many holds to which more can be handed, while it is one of them."""


class Free:
    """Instances that nobody holds, the one that is free for the longest first."""

    __slots__ = ("_by_last", "units")

    def __init__(self) -> None:
        # Ordered ones, since what is taken out of a dict costs those who look for its first item.
        self.units: OrderedDict[str, Unit] = OrderedDict()
        self._by_last: dict[str, OrderedDict[str, Unit]] = {}

    def __len__(self) -> int:
        return len(self.units)

    def put(self, unit: Unit) -> None:
        unit.free = self
        self.units[unit.id] = unit
        if unit.last:
            self._by_last.setdefault(unit.last, OrderedDict())[unit.id] = unit

    def take(self, unit: Unit) -> None:
        unit.free = None
        del self.units[unit.id]
        if unit.last:
            same = self._by_last[unit.last]
            del same[unit.id]
            if not same:
                del self._by_last[unit.last]

    def first(self) -> Unit | None:
        """Return the instance that is free for the longest; its place is not taken."""
        return next(iter(self.units.values())) if self.units else None

    def preferred(self, key: str) -> Unit | None:
        """Return a free instance that had a key last."""
        same = self._by_last.get(key)
        return next(iter(same.values())) if same else None


class Partly:
    """Instances with holds to which more can be handed, by how many holds they have."""

    __slots__ = ("_by_holds", "count")

    def __init__(self, depth_max: int) -> None:
        self._by_holds: list[OrderedDict[str, Unit]] = [OrderedDict() for _ in range(depth_max)]
        self.count = 0

    def put(self, unit: Unit) -> None:
        if len(unit.holds) < len(self._by_holds):
            unit.others = self._by_holds[len(unit.holds)]
            unit.others[unit.id] = unit
            self.count += 1

    def discard(self, unit: Unit) -> None:
        if unit.others is not None:
            del unit.others[unit.id]
            unit.others = None
            self.count -= 1

    def pick(self, depth: int) -> Unit | None:
        """Return one with the fewest holds, and fewer than that; of several the one that has them for the longest."""
        for units in self._by_holds[1:depth] if self.count else ():
            if units:
                return next(iter(units.values()))
        return None


class Behind:
    """Requests that stand behind others on an instance: they have not begun, and can be asked back."""

    __slots__ = ("by_priority", "recalled")

    def __init__(self) -> None:
        self.by_priority: dict[int, OrderedDict[str, Entry]] = {}
        self.recalled: set[str] = set()
        """The requests that are asked back already."""

    def put(self, entry: Entry) -> None:
        request = entry.request
        if entry.is_recalled:
            self.recalled.add(request.id)
        else:
            self.by_priority.setdefault(request.priority, OrderedDict())[request.id] = entry

    def discard(self, entry: Entry) -> None:
        request = entry.request
        self.recalled.discard(request.id)
        same = self.by_priority.get(request.priority)
        if same is not None and same.pop(request.id, None) is not None and not same:
            del self.by_priority[request.priority]

    def pick(self, priority: int) -> Entry | None:
        """Return the one to recall for a request of that priority: of the lowest, the one that was held last."""
        lowest = min(self.by_priority, default=priority)
        return next(reversed(self.by_priority[lowest].values())) if lowest < priority else None
