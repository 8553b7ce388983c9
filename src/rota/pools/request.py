"""A request for an instance, and the decision to give it one."""

from __future__ import annotations

from msgspec import Struct


class Request(Struct, frozen=True, gc=False):
    """A wish for an instance. Its id makes asking twice the same as asking once."""

    id: str
    holder: str
    """The account that the request counts for. Holders share a pool fairly."""
    priority: int
    arrival: float
    """The time of its arrival, by a clock that survives the caller. Persist it when the request has to wait."""
    prefers: str = ""
    """An affinity key: the instance that had the same key last is taken first, if it is free."""
    shares: bool = False
    """True: an instance that still works on others may be given it, behind them. A task shares, a claim does not."""
    kind: str = ""
    """The kind of the object that wants the instance. The ledger does not look at it."""


class Binding(Struct, eq=False):
    """A decision to give an instance to a request. Write it, then call `Ledger.bound` or `Ledger.lost`."""

    request: Request
    instance: str
    is_wanted: bool = True
    """False: the request was cancelled since."""
    is_over: bool = False
    """True: the ledger has its result, or has given it up. What is said of it after that changes nothing."""
