"""The gate: an object is reconciled only when all its references exist, and are ready where they must be.

The condition ResolvedRefs names what is missing. An object that always had all its references gets no such condition,
which saves a write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple, TypeVar

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
"""Time that a missing reference may take before it is an error with an Event.

Objects that are applied together come one after the other.
"""


class Problem(NamedTuple):
    """A reason for which an object is not ready, with a message."""

    reason: str
    message: str


class Gate(ObjectReconciler[T]):
    """Checks the references of the objects of a kind."""

    needs: Need | None = None
    """Requirement on all references; None: each reference has its own."""

    def reconcile(self, context: Context, key: Key) -> Promise:
        # Most objects never lacked anything: there is nothing to write.
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
            await write_conditions(context, obj, self.closed(obj, held_up))
            if held_up.reason != NOT_READY and lasts(before, held_up, context.clock.time()):
                context.warn_once(obj, held_up.reason, held_up.message)
            return held_up
        opened = [] if before is None else [Condition(type=RESOLVED, status="True", reason="Resolved")]
        return await self.go_on(context, obj, opened)

    def closed(self, obj: T, held_up: Blocked | Failed) -> list[Condition]:
        """Return the conditions of an object whose references are missing or not ready."""
        return [Condition(type=RESOLVED, status="False", reason=held_up.reason, message=held_up.message)]

    async def go_on(self, context: Context, obj: T, opened: list[Condition]) -> Outcome:
        """Reconcile an object whose references are all in order. `opened`: conditions for its status."""
        await write_conditions(context, obj, opened)
        return DONE


class ReadyGate(Gate[T]):
    """The gate of a kind whose objects are ready when their references are."""

    def closed(self, obj: T, held_up: Blocked | Failed) -> list[Condition]:
        ready = Condition(type=READY, status="False", reason=held_up.reason, message=held_up.message)
        return [*super().closed(obj, held_up), ready]

    async def go_on(self, context: Context, obj: T, opened: list[Condition]) -> Outcome:
        await write_conditions(context, obj, [*opened, Condition(type=READY, status="True", reason="Ready")])
        return DONE


def may_be_coming(before: Condition | None, now: float) -> bool:
    """Report whether a missing reference may still be created: the object has waited for less than NOTICE_SECONDS."""
    if before is None or before.status != "False" or before.last_transition_time is None:
        return True
    return now - before.last_transition_time.timestamp() < NOTICE_SECONDS


def lasts(before: Condition | None, held_up: Blocked | Failed, now: float) -> bool:
    """Report whether an object has been held up, for the same reason, for NOTICE_SECONDS."""
    if before is None or before.reason != held_up.reason or before.last_transition_time is None:
        return False
    return now - before.last_transition_time.timestamp() >= NOTICE_SECONDS


def status_of(obj: Object) -> Any:
    """Return the status of an object, or an empty one of its type."""
    return getattr(obj, "status", None) or empty_status(type(obj))


def with_conditions(context: Context, obj: Object, conditions: Iterable[Condition]) -> Any:
    """Return the status of an object with these conditions added or replaced."""
    status = status_of(obj)
    for condition in conditions:
        status = context.condition(obj, status, condition)
    return status


async def write_conditions(context: Context, obj: T, conditions: Collection[Condition]) -> T:
    return await context.write_status(obj, with_conditions(context, obj, conditions)) if conditions else obj
