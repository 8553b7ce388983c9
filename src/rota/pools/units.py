"""The instances of a pool as its ledger knows them, and the indexes by which it finds one to bind."""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from rota.pools.ledger import Entry


class Opened(IntEnum):
    """The kind of requests that an instance can be given to."""

    CLOSED = 0
    """None: the instance is not ready, is draining, or is being replaced."""
    JOBS = 1
    """Requests that share the instance, which resets itself before each."""
    WHOLE = 2
    """Any request."""


class Unit(Struct, eq=False):
    """One instance."""

    id: str
    opened: Opened = Opened.CLOSED
    reopened: Opened = Opened.CLOSED
    """The requests that it can be given to once a shared hold has ended."""
    slots: int = 1
    """Bound on the requests that share it at once."""
    last: str = ""
    """The affinity key of its last holder."""
    holds: dict[str, Entry] = field(default_factory=dict)
    """The requests that hold it or are being bound to it, in the order of the decisions."""
    slow: str = ""
    """The request that turned out to run long, so that no other is handed over behind it; empty if none."""
    free: Free | None = None
    """The index of free instances that contains it; None if it is not free."""
    others: OrderedDict[str, Unit] | None = None
    """The index of instances with as many holds that can take further requests; None if it cannot."""


class Free:
    """Instances without a hold, the one that has been free for the longest first."""

    __slots__ = ("_by_last", "units")

    def __init__(self) -> None:
        # Not plain dicts: after many removals, finding the first item of a dict takes long.
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
        """Return the instance that has been free for the longest, without removing it."""
        return next(iter(self.units.values())) if self.units else None

    def preferred(self, key: str) -> Unit | None:
        """Return a free instance whose last holder had an affinity key."""
        same = self._by_last.get(key)
        return next(iter(same.values())) if same else None


class Partly:
    """Instances with holds that can take further requests, by their number of holds."""

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
        """Return an instance with the fewest holds, fewer than `depth`; None if there is none.

        Of several it is the one that has had so many holds for the longest.
        """
        for units in self._by_holds[1:depth] if self.count else ():
            if units:
                return next(iter(units.values()))
        return None


class Behind:
    """Requests that wait on an instance behind others: they have not begun, and can be recalled."""

    __slots__ = ("by_priority", "recalled")

    def __init__(self) -> None:
        self.by_priority: dict[int, OrderedDict[str, Entry]] = {}
        self.recalled: set[str] = set()
        """Ids of the requests that were recalled and not returned yet."""

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
        """Return the request to recall for one of this priority; None if there is none.

        It is of the lowest priority, which must be lower than this one; of several, the one that was held last.
        """
        lowest = min(self.by_priority, default=priority)
        return next(reversed(self.by_priority[lowest].values())) if lowest < priority else None
