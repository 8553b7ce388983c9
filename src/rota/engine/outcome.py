"""Outcomes of bodies."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Literal

from msgspec import Struct

Status = Literal["Ready", "Failed", "Skipped", "Pending"]
"""The status of a node for those that wait for it. All but Pending wake them."""


class Done(Struct, frozen=True, gc=False):
    """Nothing is left to do, until the node changes."""

    status: Status = "Ready"
    """Ready and Skipped wake those that wait for this node. A skipped node is
    not ready, and will not be unless it changes. Pending wakes nobody: the status comes as an event."""
    again_after: float | None = None
    """Seconds after which the node runs again. The fixpoint does not wait for that."""


class Blocked(Struct, frozen=True):
    """The node cannot go on until others have advanced. It is parked under each of them."""

    on: tuple[str, ...]
    reason: str = ""
    message: str = ""
    every: bool = False
    """Run again when all of them are ready or one has failed; otherwise when the first one advances."""


class Failed(Struct, frozen=True):
    """The node has failed. Those that wait for it are woken."""

    because: tuple[str, ...] = ()
    """The ids that caused the failure: the node runs again when one of them turns ready, or arrives."""
    reason: str = ""
    message: str = ""
    error: BaseException | None = None
    """The exception of the body."""


class RequeueAfter(Struct, frozen=True):
    """The node is not finished: it runs again after some seconds, or as soon as something changes."""

    seconds: float
    reason: str = ""
    message: str = ""
    error: BaseException | None = None


Outcome = Done | Blocked | Failed | RequeueAfter
Promise = Outcome | Awaitable[Outcome]
"""An outcome, or an awaitable of one."""
OUTCOMES = frozenset((Done, Blocked, Failed, RequeueAfter))
DONE = Done()


class NotConverged(Exception):  # noqa: N818
    """A node exceeded its budget."""


class BodyCancelled(Exception):  # noqa: N818
    """A body was cancelled."""
