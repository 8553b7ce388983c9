"""The autoscaler of one pool: it keeps the demand between two reconciliations."""

from __future__ import annotations

from collections.abc import Iterable

from rota.api import Instance, WorkerPool
from rota.api.pool import PoolScale
from rota.control.instances.reasons import is_ready, worst_blocker
from rota.control.instances.states import is_held, is_leaving
from rota.control.scaling.planner import Decision, History, Load, decide, initial_history, needed

CRASHING = frozenset(("InstanceCrashing", "Stopped"))
"""Reasons of instances that ran and crashed. One that never ran has no stand-in, which would fail in the same way."""


class Autoscaler:
    """Takes news between two evaluations, so that demand that came and went in between counts as well."""

    def __init__(self, pool: WorkerPool, scale: PoolScale) -> None:
        self.pool = pool
        self.replicas = 0
        """The number that the last evaluation decided."""
        self._scale = scale
        self._held: set[str] = set()
        self._load = Load()
        self._peak = 0
        self._history: History = ()

    def evaluate(
        self, pool: WorkerPool, scale: PoolScale, own: Iterable[Instance], waiting: int | None, now: float
    ) -> Decision:
        """Decide the number of instances. While `waiting` is None, which means unknown, it does not fall."""
        own = list(own)
        self.pool, self._scale = pool, scale
        self._held = {one.metadata.uid for one in own if is_held(one) and not is_leaving(one)}
        self._load = Load(
            waiting=waiting or 0,
            held=len(self._held),
            crashing=sum(_is_crashing(one) for one in own),
        )
        history = self._history or initial_history(len(own), now)
        # The peak between two evaluations counts as needed until now.
        before = decide(scale, max(self._peak, self.level), history, now)
        decision = decide(scale, self.level, before.history, now)
        if waiting is None:
            level = max(decision.replicas, min(len(own), scale.max))
            decision = Decision(level, initial_history(level, now), None)
        self._history, self.replicas, self._peak = decision.history, decision.replicas, 0
        return decision

    @property
    def level(self) -> int:
        """The number that is needed now."""
        return needed(self._scale, self._load)

    @property
    def is_outgrown(self) -> bool:
        """True if more are needed than the last evaluation decided."""
        return self.level > self.replicas

    @property
    def is_limited(self) -> bool:
        """True if holders and waiting requests are more than `max`."""
        return self._load.held + self._load.waiting > self._scale.max

    def note_instance(self, instance: Instance | None, uid: str) -> None:
        """Take an instance as it is now; None: it is gone."""
        if instance is not None and is_held(instance) and not is_leaving(instance):
            self._held.add(uid)
        else:
            self._held.discard(uid)
        self._now(self._load._replace(held=len(self._held)))

    def note_waiting(self, waiting: int) -> None:
        self._now(self._load._replace(waiting=waiting))

    def _now(self, load: Load) -> None:
        self._load = load
        self._peak = max(self._peak, self.level)


def _is_crashing(instance: Instance) -> bool:
    if is_held(instance) or is_leaving(instance) or is_ready(instance):
        return False
    worst = worst_blocker(instance)
    return worst is not None and worst.reason in CRASHING
