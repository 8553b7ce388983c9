"""The retention of Events: those that Rota made are deleted after an hour, and sooner if there are too many."""

from __future__ import annotations

from typing import cast

from rota.api import Event
from rota.client import Key
from rota.control.writing import unless_overtaken
from rota.engine import DONE, Context, Done, Outcome, Promise, Reconciler, RequeueAfter, Watch
from rota.engine.retention import overdue

COMPONENT = "rota"
LOOK_SECONDS = 5.0
"""Pause between two passes over a namespace's Events."""


def _namespace_of(event: Event) -> tuple[Key, ...]:
    return (Key(event.metadata.namespace, "events"),) if event.reporting_component == COMPONENT else ()


class EventRetention(Reconciler):
    """Deletes overdue Events of a namespace. Events of other components are left alone."""

    name = "event-retention"
    watches = (Watch(Event, _namespace_of),)
    concurrency = 2
    spin_runs_max = 100_000  # every Event wakes it, and most of those runs only wait

    def __init__(self) -> None:
        self._looked_at: dict[str, float] = {}

    def reconcile(self, context: Context, key: Key) -> Promise:
        # A burst of Events is one pass.
        left = self._looked_at.get(key.namespace, -LOOK_SECONDS) + LOOK_SECONDS - context.clock.now()
        return RequeueAfter(left) if left > 0 else self._expire(context, key)

    async def _expire(self, context: Context, key: Key) -> Outcome:
        self._looked_at[key.namespace] = context.clock.now()
        found = cast("list[Event]", context.objects.list(Event.api, key.namespace))
        own = [event for event in found if event.reporting_component == COMPONENT]
        gone, again_after = overdue(own, context.clock.time())
        for event in gone:
            await self._delete(context, event)
        if again_after is None:
            del self._looked_at[key.namespace]
            return DONE
        return Done(again_after=again_after)

    @staticmethod
    async def _delete(context: Context, event: Event) -> None:
        meta = event.metadata
        await unless_overtaken(context.client.delete(Event, meta.name, namespace=meta.namespace, uid=meta.uid))
