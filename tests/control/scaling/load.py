"""A pool under load, on virtual time: requests come, wait, hold an instance and let it go.

It keeps its own record of what was needed when, and asserts what may never be.
"""

from __future__ import annotations

from itertools import pairwise

from rota.api import Instance, ObjectMeta, WorkerPool
from rota.api.pool import PoolScale, WorkerPoolSpec
from rota.control.instances import Create, Delete, Drain, is_ready
from rota.control.instances.states import is_held
from rota.control.scaling import Autoscaler
from rota.control.scaling.planner import BATCHES
from tests.control.instances.making import CRASHING, TEMPLATE, wanting
from tests.control.instances.world import World

ROUNDS_MAX = 60
POOL = WorkerPool(metadata=ObjectMeta(name="agents", uid="pool-uid"), spec=WorkerPoolSpec(template=TEMPLATE))


class Pool:
    """A pool that scales by demand, and who wants its instances."""

    def __init__(self, scale: PoolScale) -> None:
        self.scale = scale
        self.world = World(wanting(0, pooled=True, sparse=True, drain_seconds=30.0))
        self.waiting = 0
        self.made = 0
        self.taken = 0
        self.autoscaler = Autoscaler(POOL, scale)
        self.crashed: set[str] = set()
        """Names of those that never come up again."""
        self._needs: list[tuple[float, int]] = [(self.world.now, 0)]
        """From when on so many were needed. The first is what was there when this began to be known."""
        self._has_crashed = False
        self._due: float | None = None

    @property
    def instances(self) -> dict[str, Instance]:
        return self.world.instances

    @property
    def held(self) -> list[str]:
        return sorted(name for name, one in self.instances.items() if is_held(one))

    def restart(self) -> None:
        """Replace the scaler by a new one, which knows nothing."""
        self.autoscaler = Autoscaler(POOL, self.scale)
        self._needs = [(self.world.now, len(self.instances))]
        self.look()

    # What happens.

    def come(self, count: int) -> None:
        self.waiting += count
        self.autoscaler.note_waiting(self.waiting)
        self.serve()

    def leave(self, count: int) -> None:
        for name in self.held[:count]:
            self.world.release(name)
            self._tell(name)
        self.serve()

    def give_up(self, count: int) -> None:
        self.waiting -= min(count, self.waiting)
        self.autoscaler.note_waiting(self.waiting)
        self._note()

    def crash(self, name: str) -> None:
        if name in self.instances and not is_held(self.instances[name]):
            self.crashed.add(name)
            self._has_crashed = True
            self.world.say(name, CRASHING)

    def _tell(self, name: str) -> None:
        instance = self.instances[name]
        self.autoscaler.note_instance(instance, instance.metadata.uid)

    def serve(self) -> None:
        """Hand out what is free to whoever waits."""
        for name in sorted(self.instances):
            if self.waiting and name not in self.held:
                self.world.hold(name)
                if name in self.held:
                    self.waiting -= 1
                    self.autoscaler.note_waiting(self.waiting)
                    self._tell(name)
        self._note()

    # What the reconciler does.

    def look(self) -> bool:
        """One look, carried out. Returns whether anything changed."""
        self._note()
        decision = self.autoscaler.evaluate(
            POOL, self.scale, list(self.instances.values()), self.waiting, self.world.now
        )
        self._due = None if decision.again_after is None else self.world.now + decision.again_after
        self._check(decision.replicas)
        self.world.want(replicas=decision.replicas)
        actions = self.world.plan().actions
        held = self.held
        for action in actions:
            assert not (isinstance(action, Delete | Drain) and action.name in held), "a busy one is to go"
            self.made += isinstance(action, Create)
            self.taken += isinstance(action, Delete)
            self.world.carry_out(action)
        assert len(self.instances) <= self.scale.max, "more than may be"
        return bool(actions)

    def step(self) -> bool:
        """One look, and everything that happens by itself once. Returns whether anything did."""
        moving = self.look()
        for name, instance in list(self.instances.items()):
            if instance.metadata.deletion_timestamp is not None:
                self.world.gone(name)
                self.crashed.discard(name)
                moving = True
            elif not is_ready(instance) and name not in self.crashed:
                self.world.start(name)
                moving = True
        before = self.waiting
        self.serve()
        return moving or self.waiting != before

    def settle(self) -> None:
        for _ in range(ROUNDS_MAX):
            if not self.step():
                return
        raise AssertionError(f"not settled after {ROUNDS_MAX} rounds")

    def pass_time(self, seconds: float) -> None:
        """Time passes, and the pool is looked at whenever it asked to be."""
        until = self.world.now + seconds
        while self._due is not None and self._due <= until:
            self.world.now = max(self.world.now, self._due)
            self.settle()
        self.world.now = until

    # The record.

    def _need(self) -> int:
        return min(self.scale.max, max(self.scale.min, len(self.held) + self.waiting + self.scale.target_idle))

    def _note(self) -> None:
        self._needs.append((self.world.now, self._need()))

    def _most(self, since: float) -> int:
        """The most that was needed after a moment, until now."""
        now = self._needs[-1][1]
        ended = ((need, end) for (_, need), (end, _) in pairwise(self._needs))
        return max([now, *(need for need, end in ended if end > since)])

    def _check(self, replicas: int) -> None:
        scale, now = self.scale, self.world.now
        assert scale.min <= replicas <= scale.max, "out of bounds"
        # A hair's breadth for sums of fractions.
        window = scale.scale_down_seconds * (1 - 1e-6)
        bounded = min(scale.max, max(scale.min, self._most(now - window)))
        assert replicas >= bounded, "fewer than were needed lately"
        if not self._has_crashed:
            late = scale.scale_down_seconds * (1 + 1 / BATCHES) + 1e-3
            assert replicas <= max(scale.min, self._most(now - late)), "more than were needed for long"
