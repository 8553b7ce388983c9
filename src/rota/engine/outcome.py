"""What a body says when it has run."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Literal

from msgspec import Struct

Status = Literal["Ready", "Failed", "Skipped", "Pending"]
"""The state of a node, for those that wait for it. All but Pending wake them."""


class Done(Struct, frozen=True, gc=False):
    """Nothing is left to do, until the node changes."""

    status: Status = "Ready"
    """Ready and Skipped wake those that wait for this node, and they decide what it means to them: what was skipped is
    not ready, and will not be unless it changes. Pending wakes nobody: its status is to come as news."""
    again_after: float | None = None
    """Look again after so many seconds all the same. The fixpoint does not wait for that."""


class Blocked(Struct, frozen=True):
    """It cannot go on until these have advanced. The node is parked under each of them."""

    on: tuple[str, ...]
    reason: str = ""
    message: str = ""
    every: bool = False
    """Run again only when every one of them is ready, or one has failed; otherwise when the first one advances."""


class Failed(Struct, frozen=True):
    """It is over, and not well. Those that wait for this node are woken."""

    because: tuple[str, ...] = ()
    """Failed because of these: run again when one of them turns ready, or arrives where there was none."""
    reason: str = ""
    message: str = ""
    error: BaseException | None = None
    """What the body raised."""


class RequeueAfter(Struct, frozen=True):
    """Not finished: run again after so many seconds, or as soon as something changes."""

    seconds: float
    reason: str = ""
    message: str = ""
    error: BaseException | None = None


Outcome = Done | Blocked | Failed | RequeueAfter
Promise = Outcome | Awaitable[Outcome]
"""An outcome, or what to await for it."""
OUTCOMES = frozenset((Done, Blocked, Failed, RequeueAfter))
DONE = Done()


class NotConverged(Exception):  # noqa: N818
    """A node was run again and again, and did not come to rest."""


class BodyCancelled(Exception):  # noqa: N818
    """A body was cancelled."""
