"""The placer: it divides the instances of one placement in one city among the city's cells.

- *Stable.* A placed instance stays. A new cell, another weight or more room moves nothing.
- *Fair.* An added instance goes to the cell that is furthest below its share by weight; a removed one comes from the
  cell that is furthest above it. A hash of workload and cell orders equal cells, so that workloads spread.
- *Never more than wanted.* The cells of a city divide the wanted number among them.
- *Replaced first.* A draining cell keeps its instances until as many are ready in other cells.
- *Explained.* Instances without a place are counted, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple

NO_BOUND = 1 << 30
"""The room of a cell without `spec.capacity`."""
HASH_BYTES = 8

Reason = Literal["", "LocationNotFound", "NoCellInCity", "CellsLost", "CellsCordoned", "CellsFull"]


class Candidate(NamedTuple):
    """A cell of the city, as the placer needs it."""

    name: str
    weight: int = 100
    room: int = NO_BOUND
    """The number of further instances of this size that fit."""
    is_ready: bool = True
    is_cordoned: bool = False
    """True: it gets no new instances."""
    is_draining: bool = False
    """True: its instances move to other cells, as far as these have room."""

    @property
    def is_closed(self) -> bool:
        """True if it must not get new instances, even if it is ready."""
        return self.is_cordoned or self.is_draining or self.weight == 0

    @property
    def is_open(self) -> bool:
        return self.is_ready and not self.is_closed


class Placing(NamedTuple):
    """The division of a placement's instances among the cells of one city."""

    cells: Mapping[str, int]
    """The number of instances of each cell. Cells without any are left out."""
    unplaced: int = 0
    reason: Reason = ""
    message: str = ""
    is_moving: bool = False
    """True: a rebalance is under way."""


def place(
    workload: str,
    city: str,
    wanted: int,
    cells: Sequence[Candidate],
    there: Mapping[str, int],
    ready: Mapping[str, int] | None = None,
    *,
    is_known: bool = True,
) -> Placing:
    """Divide `wanted` instances among cells.

    workload    namespace and name of the workload, for the order of equal cells
    there       the number that each cell has now
    ready       the number of these that are ready
    is_known    there is a Location of this city
    """
    by_name = {cell.name: cell for cell in cells}
    given = {name: count for name, count in there.items() if count > 0 and name in by_name}
    draining = {name: given.pop(name) for name in sorted(given) if by_name[name].is_draining}
    missing = wanted - sum(given.values())
    if missing < 0:
        _take(workload, -missing, by_name, given)
    elif missing > 0:
        _add(workload, missing, [cell for cell in cells if cell.is_open], given)
    replaced = sum(min((ready or {}).get(name, 0), count) for name, count in given.items())
    keep = min(wanted - replaced, sum(draining.values()))
    for name, count in draining.items():
        if kept := min(count, max(keep, 0)):
            given[name] = kept
            keep -= kept
    unplaced = wanted - sum(given.values())
    if unplaced <= 0:
        return Placing(given)
    return Placing(given, unplaced, *_why(city, cells, is_known=is_known))


def rebalance(
    workload: str, wanted: int, cells: Sequence[Candidate], there: Mapping[str, int], ready: Mapping[str, int]
) -> Mapping[str, int] | None:
    """Return the next step of a rebalance; None: the division is as even as it gets.

    One instance moves at a time: one is added in the target, and when all are ready, one is removed elsewhere. Cells
    that are lost, cordoned or draining keep what they have.
    """
    open_cells = [one for one in cells if one.is_open]
    own = {one.name: there[one.name] for one in open_cells if there.get(one.name, 0) > 0}
    total = sum(there.values())
    is_complete = all(ready.get(name, 0) >= count for name, count in own.items())
    if total == wanted + 1 and not is_complete:
        return there
    if total != wanted:
        return None
    even: dict[str, int] = {}
    _add(workload, sum(own.values()), [one._replace(room=one.room + own.get(one.name, 0)) for one in open_cells], even)
    under = [(count - own.get(name, 0), name) for name, count in even.items() if count > own.get(name, 0)]
    if not under:
        return None
    target = max(under)[1]
    return {**there, target: there.get(target, 0) + 1} if is_complete else there


class _Place(NamedTuple):
    """A cell with its sort key: cells get added instances in this order."""

    share: float
    rank: bytes
    cell: Candidate
    given: int
    room: int


def _add(workload: str, count: int, cells: Sequence[Candidate], given: dict[str, int]) -> None:
    """Add up to `count` instances, as far as these cells have room."""

    def key(cell: Candidate, rank: bytes, has: int, room: int) -> _Place:
        return _Place((has + 1) / cell.weight, rank, cell, has, room)

    heap = [key(one, _rank(workload, one.name), given.get(one.name, 0), one.room) for one in cells if one.room > 0]
    heapify(heap)
    for _ in range(count):
        if not heap:
            return
        _, rank, cell, has, room = heappop(heap)
        given[cell.name] = has + 1
        if room > 1:
            heappush(heap, key(cell, rank, has + 1, room - 1))


def _take(workload: str, count: int, cells: Mapping[str, Candidate], given: dict[str, int]) -> None:
    """Remove `count` instances: first from closed cells, then from those that have most for their weight."""

    def key(name: str) -> tuple[bool, float, bytes, str]:
        cell = cells[name]
        # The reverse of the order in which equal cells get an added one.
        last = bytes(255 - each for each in _rank(workload, name))
        return not cell.is_closed, -given[name] / max(cell.weight, 1), last, name

    heap = [key(name) for name in given]
    heapify(heap)
    for _ in range(count):
        name = heappop(heap)[-1]
        given[name] -= 1
        if given[name]:
            heappush(heap, key(name))
        else:
            del given[name]


def _rank(workload: str, cell: str) -> bytes:
    return blake2b(f"{workload}/{cell}".encode(), digest_size=HASH_BYTES).digest()


def _why(city: str, cells: Sequence[Candidate], *, is_known: bool) -> tuple[Reason, str]:
    """Return the reason and message for instances without a place."""
    if not is_known:
        return "LocationNotFound", f"there is no Location of city {city}"
    if not cells:
        return "NoCellInCity", f"no cell is in city {city}"
    ready = [cell for cell in cells if cell.is_ready]
    if not ready:
        return "CellsLost", f"no cell of city {city} is in reach: {_listed(cells)}"
    usable = [cell for cell in ready if not cell.is_closed]
    if not usable:
        return "CellsCordoned", f"nothing is placed in the cells of city {city} that are in reach: {_listed(ready)}"
    return "CellsFull", f"the cells of city {city} have no room: {_listed(usable)}"


NAMED_MAX = 5
"""Cells that a message names."""


def _listed(cells: Sequence[Candidate]) -> str:
    names = sorted(cell.name for cell in cells)
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
