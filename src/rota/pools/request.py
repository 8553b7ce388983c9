"""A request for an instance, and the decision to bind it to one."""

from __future__ import annotations

from msgspec import Struct


class Request(Struct, frozen=True, gc=False):
    """A request for an instance. It is idempotent by its id."""

    id: str
    holder: str
    """The account that the request counts for. Holders get fair shares of a pool."""
    priority: int
    arrival: float
    """The time of arrival, by a clock that survives the caller. The caller must persist it with a waiting request."""
    prefers: str = ""
    """An affinity key: a free instance whose last request had the same key is preferred."""
    shares: bool = False
    """True for a task, which may wait on a busy instance behind other tasks; False for a claim."""
    kind: str = ""
    """The kind of the object that requests the instance. The ledger ignores it."""


class Binding(Struct, eq=False):
    """A decision to give an instance to a request. Write it, then call `Ledger.bound` or `Ledger.lost`."""

    request: Request
    instance: str
    is_wanted: bool = True
    """False if the request was cancelled after the decision."""
    is_over: bool = False
    """True if the ledger has the result of the binding, or has abandoned it. Later reports about it change nothing."""
