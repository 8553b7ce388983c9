"""What the queue is told of, and what it answers with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rota.pools.demand import Holder

Arrival = float | tuple[float, int]
"""When something came, by a clock of the caller's that survives it. One queue is given one of the two forms."""

ANYTHING: frozenset[str] = frozenset()

IN_FLIGHT, UNWANTED, BOUND, OVER = range(4)


class Request(Struct, frozen=True, gc=False):
    """One that wants an instance. Its id is what makes saying it twice the same as saying it once."""

    id: str
    holder: str
    """Whose it is: holders share a pool fairly."""
    priority: int
    arrival: Arrival
    """Its place, together with the priority. Persist it when the request has to wait."""
    needs: frozenset[str] = ANYTHING
    """What the instance has to provide, all of it."""
    prefers: str = ""
    """An affinity key: rather the instance that had it last."""


class Offer(Struct, frozen=True, gc=False):
    """An instance that is ready and free."""

    id: str
    provides: frozenset[str] = ANYTHING
    last: str = ""
    """The affinity key of who had it last."""
    since: Arrival = 0.0
    """Since when it is free: the one that is so the longest goes first, and among equals the one offered first."""


class Binding(Struct, eq=False):
    """A decision, to be carried out and then answered: `confirmed` or `lost`."""

    request: Request
    instance: str
    holder: Holder
    offer: Offer | None
    """What is known of the instance, should it turn out to be free still. None: it has been withdrawn."""
    state: int = IN_FLIGHT
