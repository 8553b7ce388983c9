"""A world in which plans are carried out: instances start, crash, are held, are slow to go, and time passes.

It keeps its own books on what the planner may never do, and asserts them when it does.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from rota.api import Condition, Instance
from rota.api.instance import InstanceStatus, LastExit
from rota.control.instances import (
    DRAINING,
    Action,
    Create,
    Delete,
    Desired,
    Drain,
    Plan,
    Undrain,
    is_ready,
    plan,
)
from rota.control.instances.actions import Why
from rota.control.instances.states import has_ended, is_leaving
from tests.control.instances.making import CRASHING, NOW, READY, at, hold, wanting

BAD = "bad"
"""A template of which no instance ever becomes ready."""
ROUNDS_MAX = 400


class World:
    """Instances as a server has them."""

    def __init__(self, desired: Desired | None = None) -> None:
        self.desired = desired or wanting(3)
        self.instances: dict[str, Instance] = {}
        self.now = NOW
        self.version = 0
        self.drained: dict[str, float] = {}
        """When each uid was really marked."""
        self.down_by_us: set[int] = set()
        """Wanted ordinals whose ready instance a plan has taken away, and that have not been ready since."""

    # What the server does.

    def write(self, instance: Instance, meta: dict[str, Any] | None = None, **parts: Any) -> None:
        self.version += 1
        metadata = replace(instance.metadata, resource_version=str(self.version), **(meta or {}))
        self.instances[metadata.name] = replace(instance, metadata=metadata, **parts)
        taken = [one.spec.ordinal for one in self.instances.values()]
        assert len(taken) == len(set(taken)), "two of one ordinal"
        self._tidy()

    def _tidy(self) -> None:
        up = {one.spec.ordinal for one in self.instances.values() if is_ready(one)}
        sparse = self.desired.sparse
        self.down_by_us = {o for o in self.down_by_us if (sparse or o < self.desired.replicas) and o not in up}

    def want(self, **changes: Any) -> None:
        if self.desired.sparse and changes.get("replicas", self.desired.replicas) < self.desired.replicas:
            # Those that are on their way out may be the very ones that are not wanted any more.
            self.down_by_us.clear()
        self.desired = replace(self.desired, **changes)
        self._tidy()

    def gone(self, name: str) -> None:
        del self.instances[name]

    # What a runtime and the leader of a pool do.

    def start(self, name: str) -> None:
        instance = self.instances[name]
        if instance.spec.template_hash == BAD:
            self.say(name, CRASHING)
        elif not has_ended(instance):
            self.say(name, READY)

    def say(self, name: str, conditions: tuple[Condition, ...], phase: Any = None) -> None:
        instance = self.instances[name]
        status = InstanceStatus(
            conditions=list(conditions),
            observed_template_hash=instance.spec.template_hash,
            phase=phase,
            last_exit=LastExit(time=at(self.now)) if phase == "Failed" else None,
        )
        self.write(instance, status=status)

    def hold(self, name: str) -> None:
        instance = self.instances[name]
        free = instance.spec.assignment is None and DRAINING not in instance.metadata.annotations
        if self.desired.pooled and free and is_ready(instance):
            self.write(instance, spec=replace(instance.spec, assignment=hold(str(self.version))))

    def release(self, name: str) -> None:
        instance = self.instances[name]
        self.write(instance, spec=replace(instance.spec, assignment=None))

    def delete(self, name: str) -> None:
        instance = self.instances[name]
        if instance.metadata.deletion_timestamp is None:
            self.write(instance, meta={"deletion_timestamp": at(self.now)})

    # What a reconciler does.

    def plan(self) -> Plan:
        made = plan(self.desired, list(self.instances.values()), self.now)
        assert plan(self.desired, list(reversed(self.instances.values())), self.now) == made, "depends on the order"
        created = [one.instance.spec.ordinal for one in made.actions if isinstance(one, Create)]
        assert created == self._missing(), "made are those that are missing, in order"
        named = [one.name for one in made.actions if not isinstance(one, Create)]
        assert len(named) == len(set(named)), "one action an instance"
        idle = {one.metadata.name for one in self.instances.values() if self._is_idle_for_nothing(one)}
        assert idle <= set(named), "one that is handed out no more, though nobody holds it, goes or is handed out again"
        if self.desired.sparse and self.desired.pooled:
            self._check_surplus(made)
        return made

    def _missing(self) -> list[int]:
        taken = {one.spec.ordinal for one in self.instances.values()}
        if not self.desired.sparse:
            return sorted(set(range(self.desired.replicas)) - taken)
        free = [ordinal for ordinal in range(self.desired.replicas + len(taken)) if ordinal not in taken]
        return free[: max(0, self.desired.replicas - len(taken))]

    def _check_surplus(self, made: Plan) -> None:
        """Assert that busy instances go for the number's sake only if more are busy than there may be."""
        held = {name for name, one in self.instances.items() if one.spec.assignment and not is_leaving(one)}
        wanted = self.desired.template_hash
        bothered = {
            one.name
            for one in made.actions
            if isinstance(one, Drain | Delete)
            and one.name in held
            and self.instances[one.name].spec.template_hash == wanted
            and not has_ended(self.instances[one.name])
        }
        assert len(bothered) <= max(0, len(held) - self.desired.replicas), "a busy one goes where an idle one could"

    @staticmethod
    def _is_idle_for_nothing(instance: Instance) -> bool:
        free = instance.spec.assignment is None and instance.metadata.deletion_timestamp is None
        return free and DRAINING in instance.metadata.annotations and not has_ended(instance)

    def carry_out(self, action: Action, *, late: bool = False) -> None:
        """Do it as an API server does: under its preconditions, or not at all.

        What was decided long ago may take away more than may be now: of that no books are kept.
        """
        match action:
            case Create(instance):
                if instance.metadata.name not in self.instances:
                    self._take_over(instance.spec.ordinal)
                    self.write(instance, meta={"uid": f"uid-{self.version}", "creation_timestamp": at(self.now)})
            case Drain(name, uid, version, mark):
                if (found := self._still(name, uid, version)) is not None:
                    # Its time runs from the decision, however long the word takes.
                    decided = datetime.fromisoformat(mark).timestamp() if late else self.now
                    self.drained.setdefault(uid, decided)
                    self.write(found, meta={"annotations": {DRAINING: mark}})
            case Undrain(name, uid, version):
                if (found := self._still(name, uid, version)) is not None:
                    self.drained.pop(uid, None)
                    self.write(found, meta={"annotations": {}})
            case Delete(name, uid, why, version):
                if (found := self._still(name, uid, version)) is not None:
                    if not late:
                        self._check_deletion(found, why)
                    self.delete(name)

    def _take_over(self, ordinal: int) -> None:
        """Let a new instance take the place of one that is gone, under another ordinal where any will do."""
        taken = {one.spec.ordinal for one in self.instances.values()}
        left = sorted(self.down_by_us - taken)
        if self.desired.sparse and left and ordinal not in left:
            self.down_by_us = self.down_by_us - {left[0]} | {ordinal}

    def _still(self, name: str, uid: str, version: str) -> Instance | None:
        found = self.instances.get(name)
        same = found is not None and found.metadata.uid == uid and version in ("", found.metadata.resource_version)
        return found if same else None

    def _check_deletion(self, instance: Instance, why: Why) -> None:
        if self.desired.pooled and instance.spec.assignment is not None and self.desired.drain_seconds > 0:
            since = self.drained.get(instance.metadata.uid)
            assert since is not None, "a held worker was not drained"
            assert self.now - since >= self.desired.drain_seconds - 1e-3, "a held worker was not given its time"
        if is_ready(instance) and self._is_wanted(instance, why):
            self.down_by_us.add(instance.spec.ordinal)
            allowed = max(1, self.desired.max_unavailable)
            assert len(self.down_by_us) <= allowed or self._are_enough_without(instance, allowed), "too many are away"

    def _are_enough_without(self, instance: Instance, allowed: int) -> bool:
        """Where any ordinals will do, one that went may turn out to have been the surplus one."""
        others = (one for one in self.instances.values() if one is not instance and not is_leaving(one))
        return self.desired.sparse and sum(map(is_ready, others)) >= self.desired.replicas - allowed

    def _is_wanted(self, instance: Instance, why: Why) -> bool:
        """Return whether there should be an instance in the place of one that goes."""
        if not self.desired.sparse:
            return instance.spec.ordinal < self.desired.replicas
        staying = sum(not is_leaving(one) for one in self.instances.values())
        return why == "Outdated" or (why == "DrainTimedOut" and staying <= self.desired.replicas)

    def round(self) -> tuple[Plan, bool]:
        """Carry a plan out, and let everything happen that happens by itself. Returns whether anything did."""
        made = self.plan()
        for action in made.actions:
            self.carry_out(action)
        moving = bool(made.actions)
        for name, instance in list(self.instances.items()):
            if instance.metadata.deletion_timestamp is not None:
                self.gone(name)
                moving = True
            elif not is_ready(instance) and instance.spec.template_hash != BAD and not has_ended(instance):
                self.start(name)
                moving = True
        return made, moving

    def settle(self) -> None:
        """Let time pass until nothing happens any more. Holders never let go, so their time has to run out."""
        for _ in range(ROUNDS_MAX):
            made, moving = self.round()
            if not moving:
                if made.again_after is None:
                    return
                self.now += made.again_after
        raise AssertionError(f"not settled after {ROUNDS_MAX} rounds: {made.reason}, {made.actions}")
