"""The gate: an object goes on only when everything that it refers to is there, and ready where it must be.

What is missing is said in the condition ResolvedRefs. An object that never lacked anything gets no such condition, and
so no write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from rota.api import Condition, Object
from rota.api.meta import empty_status
from rota.api.references import Need
from rota.client import Key
from rota.engine import DONE, Blocked, Context, Failed, ObjectReconciler, Outcome, Promise
from rota.engine.references import NOT_READY

T = TypeVar("T", bound=Object)

RESOLVED = "ResolvedRefs"
READY = "Ready"
NOTICE_SECONDS = 5.0
"""For how long an object is held up before people are told, and before what is absent is called an error.

What it refers to may be on its way: objects that are applied together come one after the other.
"""


class Gate(ObjectReconciler[T]):
    """Checks the references of the objects of a kind."""

    needs: Need | None = None
    """What is needed of everything that is referred to; None: what each reference says."""

    def reconcile(self, context: Context, key: Key) -> Promise:
        # Most objects lack nothing and never did: there is nothing to write.
        if type(self) is Gate:
            obj = context.find(self.kind.api, *key)
            if obj is not None and not status_of(obj).conditions and context.held_up(obj) is None:
                return DONE
        return super().reconcile(context, key)

    async def sync(self, context: Context, obj: T) -> Outcome:
        if obj.metadata.deletion_timestamp is not None or obj.over():
            return DONE
        before = status_of(obj).condition(RESOLVED)
        held_up = context.held_up(obj, needs=self.needs, coming=may_be_coming(before, context.clock.time()))
        if held_up is not None:
            await say(context, obj, self.closed(obj, held_up))
            if held_up.reason != NOT_READY and lasts(before, held_up, context.clock.time()):
                context.warn_once(obj, held_up.reason, held_up.message)
            return held_up
        opened = [] if before is None else [Condition(type=RESOLVED, status="True", reason="Resolved")]
        return await self.go_on(context, obj, opened)

    def closed(self, obj: T, held_up: Blocked | Failed) -> list[Condition]:
        """What is said of an object that cannot go on."""
        return [Condition(type=RESOLVED, status="False", reason=held_up.reason, message=held_up.message)]

    async def go_on(self, context: Context, obj: T, opened: list[Condition]) -> Outcome:
        """Everything that the object refers to is as it needs to be. `opened` is to be said with whatever is said."""
        await say(context, obj, opened)
        return DONE


class Settling(Gate[T]):
    """The gate of a kind that needs nothing beyond its references: its objects are then ready."""

    def closed(self, obj: T, held_up: Blocked | Failed) -> list[Condition]:
        ready = Condition(type=READY, status="False", reason=held_up.reason, message=held_up.message)
        return [*super().closed(obj, held_up), ready]

    async def go_on(self, context: Context, obj: T, opened: list[Condition]) -> Outcome:
        await say(context, obj, [*opened, Condition(type=READY, status="True", reason="Ready")])
        return DONE


def may_be_coming(before: Condition | None, now: float) -> bool:
    """Whether what an object lacks may be on its way: it has only just begun to wait."""
    if before is None or before.status != "False" or before.last_transition_time is None:
        return True
    return now - before.last_transition_time.timestamp() < NOTICE_SECONDS


def lasts(before: Condition | None, held_up: Blocked | Failed, now: float) -> bool:
    """Whether an object is held up for longer than it takes to apply a folder of manifests."""
    if before is None or before.reason != held_up.reason or before.last_transition_time is None:
        return False
    return now - before.last_transition_time.timestamp() >= NOTICE_SECONDS


def status_of(obj: Object) -> Any:
    """The status of an object, or an empty one of its type."""
    return getattr(obj, "status", None) or empty_status(type(obj))


def with_conditions(context: Context, obj: Object, conditions: Iterable[Condition]) -> Any:
    """The status of an object, with these conditions in it."""
    status = status_of(obj)
    for condition in conditions:
        status = context.condition(obj, status, condition)
    return status


async def say(context: Context, obj: T, conditions: Collection[Condition]) -> T:
    """Put conditions into the status of an object."""
    return await context.write_status(obj, with_conditions(context, obj, conditions)) if conditions else obj
