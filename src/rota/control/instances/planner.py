"""Plan the instances of one owner: objects in, actions out.

- *Ordinals.* 0 … n-1 are wanted, or any n if the owner allows that. An ordinal is taken until its instance is gone, so
  that no two instances have the same.
- *Order.* Instances are created in ascending order, and deleted and replaced in descending order.
- *Availability.* A ready instance is replaced only while fewer than `max_unavailable` of those wanted are not ready.
- *Never stuck.* An instance that is not ready is replaced or deleted at once, since nothing is lost with it.
- *Holders first.* A held instance of a pool is drained: it gets no new holder, and is deleted when it is free or when
  `drain_seconds` have passed. An instance that is wanted again before is undrained.
- *Repeatable.* Names are deterministic and deletions name the uid. The next plan repairs what was done twice, late or
  not at all.

The instances must show the effects of earlier plans: a plan from an older state could delete too many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from rota.api import Instance, ObjectMeta
from rota.api.instance import InstanceSpec, InstanceTemplate, SchedulingGate
from rota.control.instances.actions import (
    UNAVAILABLE_MIN,
    Action,
    Counts,
    Create,
    Delete,
    Desired,
    Drain,
    Plan,
    Undrain,
    Why,
)
from rota.control.instances.names import ORDINAL_LABEL, OWNER_LABEL, STORAGE_OWNER, TEMPLATE_LABEL, controller_of, stem
from rota.control.instances.ordinals import choose
from rota.control.instances.progress import Work, summary
from rota.control.instances.reasons import blocker, blockers_of, is_ready
from rota.control.instances.states import (
    draining_mark,
    draining_since,
    has_ended,
    is_draining,
    is_held,
    is_leaving,
    is_programmed,
    replaced_at,
)

GATED_MAX = 16
"""Gated instances of one owner at a time. More are created as gates are opened."""


def plan(
    desired: Desired, instances: Sequence[Instance], now: float, is_taken: Callable[[str], bool] = lambda name: False
) -> Plan:
    """Plan the next actions. Instances of other owners are left alone.

    Their names are taken: those among `instances`, and those for which `is_taken` returns True.
    """
    return _Planner(desired, now, is_taken).plan(instances)


class _Planner:
    def __init__(self, desired: Desired, now: float, is_taken: Callable[[str], bool]) -> None:
        self.desired = desired
        self.now = now
        self.is_taken = is_taken
        self.stem = stem(desired.owner.kind, desired.owner.name)
        self.actions: list[Action] = []
        self.waits: list[float] = []
        self.work = Work(wanted=desired.replicas)
        self.wanted: set[int] = set()
        """The ordinals that there should be."""

    def plan(self, instances: Sequence[Instance]) -> Plan:
        own: list[Instance] = []
        for instance in instances:
            owner = controller_of(instance)
            if owner is not None and owner.uid == self.desired.owner.uid:
                own.append(instance)
        ready = {one.metadata.name for one in own if is_ready(one)}
        places, surplus = self._placed(own, ready)
        self._sort(places, ready)
        for instance in surplus:
            self._part_with(instance, "ScaledDown")
        self._replace_broken(ready)
        self._roll(places, ready)
        self._create(places, {one.metadata.name for one in instances})
        return self._written(own, places, ready)

    def _name(self, ordinal: int) -> str:
        return f"{self.stem}-{ordinal}"

    def _placed(self, own: list[Instance], ready: set[str]) -> tuple[dict[int, Instance], list[Instance]]:
        """Return the instance of each wanted ordinal, the highest first, and the surplus instances."""
        there: dict[int, Instance] = {}
        # Of two with the same ordinal, the one with the ordinal's name has the place.
        in_order = sorted(own, key=lambda one: (-one.spec.ordinal, not self._is_named(one), one.metadata.name))
        for instance in in_order:
            there.setdefault(instance.spec.ordinal, instance)
        replicas = self.desired.replicas
        self.wanted = choose(there, ready, replicas) if self.desired.sparse else set(range(replicas))
        places = {ordinal: instance for ordinal, instance in there.items() if ordinal in self.wanted}
        staying = {one.metadata.name for one in places.values()}
        self.work.leaving = [one for one in in_order if is_leaving(one)]
        self.work.surplus = [one for one in in_order if not is_leaving(one) and one.metadata.name not in staying]
        return places, self.work.surplus

    def _is_named(self, instance: Instance) -> bool:
        return instance.metadata.name == self._name(instance.spec.ordinal)

    def _is_outdated(self, instance: Instance) -> bool:
        return instance.spec.template_hash != self.desired.template_hash or not self._is_named(instance)

    def _sort(self, places: dict[int, Instance], ready: set[str]) -> None:
        """Sort the wanted instances by state, and undrain those that stay."""
        for instance in places.values():
            if is_leaving(instance):
                continue
            if self._is_outdated(instance):
                self.work.outdated.append(instance)
                continue
            self.work.updated += 1
            if has_ended(instance) and instance.metadata.name not in ready:
                self.work.ended.append(instance)
                continue
            if is_draining(instance):
                self.actions.append(_undrain(instance))
            if instance.metadata.name not in ready:
                self.work.unready.append(instance)

    def _replace_broken(self, ready: set[str]) -> None:
        for instance in self.work.outdated:
            if instance.metadata.name not in ready:
                self._part_with(instance, "Broken")
        for instance in self.work.ended:
            due = replaced_at(instance, self.now)
            if due <= self.now:
                self._part_with(instance, "Ended")
            else:
                self.waits.append(due - self.now)

    def _roll(self, places: dict[int, Instance], ready: set[str]) -> None:
        """Replace ready but outdated instances, as far as enough others are ready."""
        steady = sum(one.metadata.name in ready and self._is_steady(one) for one in places.values())
        unready = self.desired.replicas - steady
        left = max(self.desired.max_unavailable, UNAVAILABLE_MIN) - unready
        rolled = [one for one in self.work.outdated if one.metadata.name in ready]
        # Draining ones come first: to drain another one would make one more unavailable.
        for instance in sorted(rolled, key=lambda one: not is_draining(one)):
            if left > 0:
                left -= 1
                self._part_with(instance, "Outdated")
                continue
            self.work.held_back += 1
            # Others have failed meanwhile, so this one is needed. A held one may keep the mark: it serves its holder.
            if is_draining(instance) and not (self.desired.pooled and is_held(instance)):
                self.actions.append(_undrain(instance))

    def _is_steady(self, instance: Instance) -> bool:
        """Report whether a ready instance has been up for long enough. An outdated one always counts."""
        started = instance.status.start_time if instance.status is not None else None
        if self._is_outdated(instance) or started is None:
            return True
        left = self.desired.settle_seconds - (self.now - started.timestamp())
        if left > 0 and self.work.outdated:
            self.waits.append(min(left, self.desired.settle_seconds))
        return left <= 0

    def _part_with(self, instance: Instance, why: Why) -> None:
        """Delete an instance, or drain it first if it is held."""
        meta = instance.metadata
        if not (self.desired.pooled and is_held(instance)):
            # Only a free or broken instance may be deleted at once: the version makes sure that it still is.
            depends = self.desired.pooled or why in ("Broken", "Ended")
            self.actions.append(Delete(meta.name, meta.uid, why, meta.resource_version if depends else ""))
            return
        since = draining_since(instance, self.now)
        if since is None and self.desired.drain_seconds > 0:
            self.actions.append(Drain(meta.name, meta.uid, meta.resource_version, draining_mark(self.now)))
            since = self.now
        left = self.desired.drain_seconds - (self.now - since) if since is not None else 0.0
        if left <= 0:
            self.actions.append(Delete(meta.name, meta.uid, "DrainTimedOut"))
        else:
            self.work.drained.append(instance)
            self.waits.append(left)

    def _create(self, places: dict[int, Instance], names: set[str]) -> None:
        room = GATED_MAX - sum(bool(one.spec.scheduling_gates) for one in places.values())
        for ordinal in sorted(self.wanted - places.keys()):
            name = self._name(ordinal)
            if name in names or self.is_taken(name):
                self.work.taken.append(name)
            elif self.desired.gates and room <= 0:
                break
            else:
                room -= 1
                self.work.missing.append(name)
                self.actions.append(Create(self._new(name, ordinal)))

    def _new(self, name: str, ordinal: int) -> Instance:
        desired = self.desired
        labels = {OWNER_LABEL: self.stem, ORDINAL_LABEL: str(ordinal), TEMPLATE_LABEL: desired.template_hash}
        template = {field: getattr(desired.template, field) for field in InstanceTemplate.__struct_fields__}
        return Instance(
            metadata=ObjectMeta(
                name=name,
                namespace=desired.namespace,
                labels={**desired.labels, **labels},
                annotations={**desired.annotations, **self._storage_owner()},
                owner_references=[msgspec.structs.replace(desired.owner, controller=True, block_owner_deletion=True)],
                finalizers=list(desired.finalizers),
            ),
            spec=InstanceSpec(
                **template,
                cell_name=desired.cell_name,
                scheduling_gates=[SchedulingGate(name=gate) for gate in desired.gates],
                template_hash=desired.template_hash,
                ordinal=ordinal,
            ),
        )

    def _storage_owner(self) -> dict[str, str]:
        owner = self.desired.owner
        return {STORAGE_OWNER: f"{owner.name}/{owner.uid}"} if self.desired.template.storage is not None else {}

    def _written(self, own: list[Instance], places: dict[int, Instance], ready: set[str]) -> Plan:
        wanted = self.desired.replicas
        unready = [one for one in places.values() if one.metadata.name not in ready]
        missing = wanted - len(places) - len(self.work.taken)
        blockers = blockers_of(unready, missing=missing)
        if self.work.taken:
            blockers.insert(0, blocker("NameTaken", who=self.work.taken[0], affected=len(self.work.taken)))
        reason, message = summary(self.work)
        return Plan(
            actions=self.actions,
            counts=self._counted(own, ready),
            wanted=wanted,
            ready=len(places) - len(unready),
            blockers=blockers,
            again_after=min(self.waits, default=None),
            reason=reason,
            message=message,
        )

    def _counted(self, own: list[Instance], ready: set[str]) -> Counts:
        counts = Counts(replicas=len(own))
        for instance in own:
            if is_leaving(instance):
                continue
            held, usable = is_held(instance), instance.metadata.name in ready
            updated = instance.status is not None and (
                instance.status.observed_template_hash == self.desired.template_hash
            )
            handed_out = usable and not is_draining(instance)
            counts.ready += usable
            counts.updated += updated
            counts.current += updated and is_programmed(instance)
            counts.available += handed_out and instance.spec.ordinal in self.wanted
            counts.idle += handed_out and not held
            counts.busy += held
        return counts


def _undrain(instance: Instance) -> Undrain:
    meta = instance.metadata
    return Undrain(meta.name, meta.uid, meta.resource_version)
