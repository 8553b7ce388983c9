"""Kinds that are stored and checked, and that nothing carries out yet. Their objects say so in a condition.

A kind leaves this list when it gets a controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.api import Condition, Quota, QuotaClaim
from rota.api.meta import Object
from rota.control.gate import Gate, say, status_of
from rota.engine import DONE, Context, Outcome, Reconciler

NOT_SERVED = "NotServed"
UNSERVED: Sequence[tuple[type[Object], str, str]] = (
    (Quota, "Enforced", "this version of Rota enforces no quotas: nothing is limited by it"),
    (QuotaClaim, "Granted", "this version of Rota enforces no quotas: nothing decides on it"),
)
"""Each kind, the condition that tells its readiness, and why that is False."""


class Unserved(Gate[Any]):
    """Says of each object of a kind that nothing carries it out. An object that somebody else reports on is theirs."""

    def __init__(self, kind: type[Object], condition: str, why: str) -> None:
        super().__init__(kind)
        self._condition = Condition(type=condition, status="False", reason=NOT_SERVED, message=why)

    async def go_on(self, context: Context, obj: Object, opened: list[Condition]) -> Outcome:
        known = status_of(obj).condition(self._condition.type)
        if known is None or known.reason == NOT_SERVED:
            opened = [*opened, self._condition]
        await say(context, obj, opened)
        return DONE


def unserved() -> list[Reconciler]:
    """A controller for each kind that nothing carries out."""
    return [Unserved(*row) for row in UNSERVED]
