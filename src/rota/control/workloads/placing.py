"""The placer: divides the instances of one placement in one city among the city's cells.

- *Stable.* What is placed stays. A new cell, another weight or more room moves nothing.
- *Fair.* One more goes to the cell that is furthest below its share by weight; one less comes from the cell that is
  furthest above it. Equal cells are told apart by a hash of the workload and the cell, so that workloads spread.
- *Never more than wanted.* Two cells in a city divide what is wanted; they do not each have all of it.
- *Replaced first.* A draining cell keeps its instances until as many are ready in other cells.
- *Explained.* What finds no room is counted, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple

NO_BOUND = 1 << 30
"""Room of a cell that says nothing of its capacity."""
HASH_BYTES = 8

Reason = Literal["", "LocationNotFound", "NoCellInCity", "CellsLost", "CellsCordoned", "CellsFull"]


class Candidate(NamedTuple):
    """A cell of the city, as far as the placer is concerned."""

    name: str
    weight: int = 100
    room: int = NO_BOUND
    """How many more instances of this size it takes."""
    is_ready: bool = True
    is_cordoned: bool = False
    """Nothing new is placed there."""
    is_draining: bool = False
    """What is there moves to other cells, as far as they have room."""

    @property
    def is_closed(self) -> bool:
        """Whether somebody wants nothing new to be placed there."""
        return self.is_cordoned or self.is_draining or self.weight == 0

    @property
    def is_open(self) -> bool:
        return self.is_ready and not self.is_closed


class Placing(NamedTuple):
    """Where the instances of a placement are to be in one city."""

    cells: Mapping[str, int]
    """How many each cell is to have. A cell that is to have none is not named."""
    unplaced: int = 0
    reason: Reason = ""
    message: str = ""
    is_moving: bool = False
    """True on the way to an even division."""


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
    """Divide so many instances among cells.

    workload    what identifies the workload
    there       how many each cell has been given before
    ready       how many of these are ready
    is_known    whether there is a Location of this city
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
    """Return how many each cell is to have on the way to an even division; None: nothing is to be moved.

    One instance moves at a time: there is one more where it goes, and when all are ready one less where it was. Cells
    that are out of reach, cordoned or drained keep what they have.
    """
    open_cells = [one for one in cells if one.is_open]
    own = {one.name: there[one.name] for one in open_cells if there.get(one.name, 0) > 0}
    total = sum(there.values())
    is_settled = all(ready.get(name, 0) >= count for name, count in own.items())
    if total == wanted + 1 and not is_settled:
        return there
    if total != wanted:
        return None
    even: dict[str, int] = {}
    _add(workload, sum(own.values()), [one._replace(room=one.room + own.get(one.name, 0)) for one in open_cells], even)
    under = [(count - own.get(name, 0), name) for name, count in even.items() if count > own.get(name, 0)]
    if not under:
        return None
    target = max(under)[1]
    return {**there, target: there.get(target, 0) + 1} if is_settled else there


class _Turn(NamedTuple):
    """A cell, in the order in which cells are given one more."""

    share: float
    rank: bytes
    cell: Candidate
    given: int
    room: int


def _add(workload: str, count: int, cells: Sequence[Candidate], given: dict[str, int]) -> None:
    """Give these cells so many more, as far as they have room."""

    def turn(cell: Candidate, rank: bytes, has: int, room: int) -> _Turn:
        return _Turn((has + 1) / cell.weight, rank, cell, has, room)

    heap = [turn(one, _rank(workload, one.name), given.get(one.name, 0), one.room) for one in cells if one.room > 0]
    heapify(heap)
    for _ in range(count):
        if not heap:
            return
        _, rank, cell, has, room = heappop(heap)
        given[cell.name] = has + 1
        if room > 1:
            heappush(heap, turn(cell, rank, has + 1, room - 1))


def _take(workload: str, count: int, cells: Mapping[str, Candidate], given: dict[str, int]) -> None:
    """Take so many away: first from cells that nothing is to be in, then where there is most for its weight."""

    def turn(name: str) -> tuple[bool, float, bytes, str]:
        cell = cells[name]
        # Of equal cells the one that was given its last one after the others.
        last = bytes(255 - each for each in _rank(workload, name))
        return not cell.is_closed, -given[name] / max(cell.weight, 1), last, name

    heap = [turn(name) for name in given]
    heapify(heap)
    for _ in range(count):
        name = heappop(heap)[-1]
        given[name] -= 1
        if given[name]:
            heappush(heap, turn(name))
        else:
            del given[name]


def _rank(workload: str, cell: str) -> bytes:
    return blake2b(f"{workload}/{cell}".encode(), digest_size=HASH_BYTES).digest()


def _why(city: str, cells: Sequence[Candidate], *, is_known: bool) -> tuple[Reason, str]:
    """Return why there is no room for all."""
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
