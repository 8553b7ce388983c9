"""What is known of a pool that scales by demand, from one look at it to the next."""

from __future__ import annotations

from collections.abc import Iterable

from rota.api import Instance, WorkerPool
from rota.api.pool import PoolScale
from rota.control.instances.reasons import is_ready, worst_blocker
from rota.control.instances.states import is_held, is_leaving
from rota.control.scaling.planner import Decision, Load, Past, began, decide, needed

CRASHING = frozenset(("InstanceCrashing", "Stopped"))
"""Why an instance is not ready that did run. What never ran lacks something that another one would lack, too."""


class Book:
    """Takes news between two looks, so that a load that came and went in between counts as well."""

    def __init__(self, pool: WorkerPool, scale: PoolScale) -> None:
        self.pool = pool
        self.replicas = 0
        """How many there should be, as of the last look."""
        self._scale = scale
        self._held: set[str] = set()
        self._load = Load()
        self._peak = 0
        self._past: Past = ()

    def look(
        self, pool: WorkerPool, scale: PoolScale, own: Iterable[Instance], waiting: int | None, now: float
    ) -> Decision:
        """All that is known now. `waiting` is None where nobody knows: then nothing is taken away."""
        own = list(own)
        self.pool, self._scale = pool, scale
        self._held = {one.metadata.uid for one in own if is_held(one) and not is_leaving(one)}
        self._load = Load(
            waiting=waiting or 0,
            held=len(self._held),
            crashing=sum(_is_crashing(one) for one in own),
        )
        past = self._past or began(len(own), now)
        # What was needed in between was needed until now, as far as is known.
        before = decide(scale, max(self._peak, self.level), past, now)
        decision = decide(scale, self.level, before.past, now)
        if waiting is None:
            level = max(decision.replicas, min(len(own), scale.max))
            decision = Decision(level, began(level, now), None)
        self._past, self.replicas, self._peak = decision.past, decision.replicas, 0
        return decision

    @property
    def level(self) -> int:
        """How many it needs now."""
        return needed(self._scale, self._load)

    @property
    def is_outgrown(self) -> bool:
        """Whether it needs more than there are to be."""
        return self.level > self.replicas

    @property
    def is_limited(self) -> bool:
        """Whether more wait than it may ever have instances for."""
        return self._load.held + self._load.waiting > self._scale.max

    def seen(self, instance: Instance | None, uid: str) -> None:
        """An instance as it is now, or that it is gone."""
        if instance is not None and is_held(instance) and not is_leaving(instance):
            self._held.add(uid)
        else:
            self._held.discard(uid)
        self._now(self._load._replace(held=len(self._held)))

    def waits(self, waiting: int) -> None:
        """How many wait now."""
        self._now(self._load._replace(waiting=waiting))

    def _now(self, load: Load) -> None:
        self._load = load
        self._peak = max(self._peak, self.level)


def _is_crashing(instance: Instance) -> bool:
    if is_held(instance) or is_leaving(instance) or is_ready(instance):
        return False
    worst = worst_blocker(instance)
    return worst is not None and worst.reason in CRASHING
