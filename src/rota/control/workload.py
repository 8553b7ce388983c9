"""The Workload controller: it places instances on cells, by placement and city, and rolls up their status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from rota.api import (
    Cell,
    Condition,
    Location,
    Object,
    ObjectMeta,
    OwnerReference,
    Quota,
    Revision,
    Workload,
    WorkloadDeployment,
)
from rota.api.model import Ref
from rota.api.workload import REBALANCE, Placement, TemplateMeta, WorkloadDeploymentSpec, WorkloadTemplate
from rota.client import Key
from rota.control.cells.contacts import CellContacts, moves_after
from rota.control.cells.names import HUB_IS_OLDER, MOVING_SINCE, SYNCED, is_bound
from rota.control.gate import Gate, status_of, write_conditions
from rota.control.instances import Size
from rota.control.instances.names import STEM_LENGTH_MAX, tailed
from rota.control.instances.template import TEMPLATE_RESTARTED
from rota.control.plane import HERE, Plane
from rota.control.quotas.amounts import Bound, bound_of, parsed
from rota.control.quotas.asking import quota_of
from rota.control.sizes import size_of
from rota.control.workloads import rollup
from rota.control.workloads.index import WorkloadIndex
from rota.control.workloads.placing import Candidate, Placing, place, rebalance
from rota.control.workloads.reservations import Reservation, Reservations
from rota.control.workloads.revisions import plan_revisions
from rota.control.workloads.rollup import AVAILABLE, City
from rota.control.workloads.scaling import Measured, PlacementAutoscaler
from rota.control.writing import unless_overtaken
from rota.engine import DONE, Blocked, Context, Done, Failed, Outcome, Promise, Watch
from rota.engine.objects import Objects
from rota.registry.privileges import inherited

LOOK_SECONDS_MIN = 0.1


def deployment_name(workload: str, placement: str, cell: str) -> str:
    """Return the name of a deployment. No other workload, placement and cell give the same."""
    return tailed(workload, placement, cell, kind=WorkloadDeployment.api.name, length_max=STEM_LENGTH_MAX)


class _CityDecision(NamedTuple):
    """The decision on one placement in one city."""

    placement: Placement
    city: str
    wanted: int
    placing: Placing
    again_after: float | None = None
    """Seconds until the next reconciliation: when fewer instances may be wanted, or a cell counts as lost."""
    moved: Sequence[WorkloadDeployment] = ()
    """Deployments in lost cells, whose instances are placed elsewhere."""
    term: int = 0
    """The term of its deployments, which grows with each move."""


class Workloads(Gate[Workload]):
    owns = (WorkloadDeployment, Revision)

    def __init__(
        self,
        plane: Plane = HERE,
        contacts: CellContacts | None = None,
        count: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`count` is called with the reason of each placement decision."""
        super().__init__(Workload)
        self._count = count
        self._plane = plane
        self._contacts = contacts
        self._reservations = Reservations()
        self._index = WorkloadIndex()
        self._autoscaler = PlacementAutoscaler()
        self._objects: Objects | None = None
        self._wake: Callable[[Key], None] = lambda key: None
        self.watches = (
            Watch(Cell, self._by_cell),
            Watch(Location, self._index.by_location),
            Watch(Quota, self._index.by_quota),
        )

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        # Another process may have placed workloads since they were filled.
        self._objects = None
        self._index.clear()
        self._wake = wake
        return super().begin(wake)

    def _by_cell(self, cell: Cell) -> Iterable[Key]:
        is_there = self._objects is not None and self._objects.has(Cell.api, "", cell.metadata.name)
        return self._index.by_cell(cell, is_there=is_there)

    def wants(self, old: Object | None, new: Object | None) -> bool:
        changed = new or old
        if self._objects is not None and isinstance(changed, WorkloadDeployment):
            self._note(self._objects, changed, is_there=new is not None)
            if new is None:
                # Its name is free now: a workload may wait for that without being its owner.
                self._wake(Key(changed.metadata.namespace, changed.spec.workload_ref.name))
            before = old.spec.replicas if isinstance(old, WorkloadDeployment) else 0
            if new is None or changed.spec.replicas < before:
                # There may be room now for waiting workloads.
                for key in self._index.waiting(changed.spec.city_code):
                    self._wake(key)
        return True

    def _prepare(self, objects: Objects) -> None:
        """Reserve the resources of existing deployments, once."""
        if self._objects is None:
            self._objects = objects
            self._reservations.clear()
            for one in objects.list(WorkloadDeployment.api):
                self._note(objects, cast(WorkloadDeployment, one), is_there=True)

    def _note(self, objects: Objects, deployment: WorkloadDeployment, *, is_there: bool) -> None:
        if is_bound(deployment):
            return  # It is the cell's copy of a deployment that has a reservation.
        spec = deployment.spec
        namespace, size = deployment.metadata.namespace, size_of(objects, spec.template.spec)
        reserved = Reservation(spec.cell_name, namespace, spec.replicas, size) if is_there else None
        self._reservations.set(_id(namespace, deployment.metadata.name), reserved)

    def gone(self, context: Context, key: Key) -> Promise:
        self._index.forget(key)
        self._autoscaler.forget(key)
        return DONE

    def closed(self, obj: Workload, held_up: Blocked | Failed) -> list[Condition]:
        why = Condition(type=AVAILABLE, status="False", reason=held_up.reason, message=held_up.message)
        return [*super().closed(obj, held_up), why]

    async def go_on(self, context: Context, obj: Workload, opened: list[Condition]) -> Outcome:
        if not self._plane.places:
            message = f'this is cell "{self._plane.cell}", which runs what its hub places: apply it at the hub'
            await write_conditions(
                context, obj, [*opened, Condition(type=AVAILABLE, status="False", reason="NotTheHub", message=message)]
            )
            return DONE
        self._prepare(context.objects)
        there = cast("Sequence[WorkloadDeployment]", context.objects.owned(WorkloadDeployment.api, obj.metadata.uid))
        decisions = self._decide(context.objects, obj, there, context.clock.now())
        await self._carry_out(context, obj, there, decisions)
        await self._revise(context, obj)
        await self._end_rebalance(context, obj, there, decisions)
        now = cast("Sequence[WorkloadDeployment]", context.objects.owned(WorkloadDeployment.api, obj.metadata.uid))
        await context.write_status(obj, _status(context, obj, decisions, now, opened))
        for one in decisions:
            if one.placing.unplaced:
                context.warn_once(obj, one.placing.reason, one.placing.message)
        waits = [one.again_after for one in decisions if one.again_after is not None]
        return Done(again_after=min(waits)) if waits else DONE

    # Deciding. Nothing is awaited between reading the cells and the reservation.

    def _decide(
        self, objects: Objects, obj: Workload, there: Sequence[WorkloadDeployment], now: float
    ) -> list[_CityDecision]:
        key = Key(obj.metadata.namespace, obj.metadata.name)
        needs = size_of(objects, obj.spec.template.spec)
        for one in there:
            self._note(objects, one, is_there=True)
        decisions = []
        for placement in obj.spec.placements:
            for city in placement.city_codes:
                own = _of_city(there, placement, city)
                measured = [_measured(one) for one in own]
                scaled = self._autoscaler.decide(key, placement.name, city, placement.scale, measured, now)
                candidates = [self._candidate(objects, cell, needs, key.namespace) for cell in _cells(objects, city)]
                moved = self._moved(own, candidates)
                placing = self._place(objects, obj, city, scaled.replicas, candidates, own, moved)
                waits = [each for each in (scaled.again_after, self._until_lost(own)) if each is not None]
                term = max((one.spec.term + _is_left(one, moved) for one in own), default=0)
                decision = _CityDecision(
                    placement, city, scaled.replicas, placing, min(waits, default=None), moved, term
                )
                decisions.append(decision)
                self._count(_counted_as(decision))
                for cell, replicas in placing.cells.items():
                    name = deployment_name(key.name, placement.name, cell)
                    self._reservations.set(_id(key.namespace, name), Reservation(cell, key.namespace, replicas, needs))
        waiting = {one.city for one in decisions if one.placing.unplaced}
        self._index.note(key, {one.city for one in decisions}, waiting)
        return decisions

    def _moved(
        self, own: Sequence[WorkloadDeployment], candidates: Iterable[Candidate]
    ) -> Sequence[WorkloadDeployment]:
        """Return the deployments that are moved from lost cells, as far as there is room elsewhere.

        From then on the lost cell gets no right to them, also when it reports again.
        """
        if self._contacts is None:
            return ()
        moving = [one for one in own if self._is_moving(one)]
        silent = {one.spec.cell_name for one in moving if self._silence_left(one) <= 0}
        has_room = any(one.is_open and one.room > 0 and one.name not in silent for one in candidates)
        revoked = self._contacts.is_revoked
        return [
            one
            for one in moving
            if revoked(one.metadata.uid)
            or (has_room and self._contacts.is_lost(one.spec.cell_name, one.metadata.uid, one.spec.lease_seconds))
        ]

    def _is_moving(self, deployment: WorkloadDeployment) -> bool:
        """Report whether a deployment is moved when its cell is lost. The server's own cell cannot be lost."""
        spec = deployment.spec
        is_here = spec.cell_name == self._plane.cell
        return (
            spec.on_cell_lost == "Move"
            and not is_here
            and deployment.metadata.deletion_timestamp is None
            and is_fenced(deployment)
        )

    def _silence_left(self, deployment: WorkloadDeployment) -> float:
        """Return the seconds until the cell of a deployment counts as lost, if it stays silent."""
        assert self._contacts is not None
        return moves_after(deployment.spec.lease_seconds) - self._contacts.silence(deployment.spec.cell_name)

    def _until_lost(self, own: Iterable[WorkloadDeployment]) -> float | None:
        if self._contacts is None:
            return None
        lefts = [self._silence_left(one) for one in own if self._is_moving(one)]
        # With a minimum: a wake-up that is early by a rounding error would be repeated again and again.
        return min((max(left, LOOK_SECONDS_MIN) for left in lefts if left > 0), default=None)

    def _place(
        self,
        objects: Objects,
        obj: Workload,
        city: str,
        wanted: int,
        candidates: Iterable[Candidate],
        own: Sequence[WorkloadDeployment],
        moved: Sequence[WorkloadDeployment],
    ) -> Placing:
        lost = {one.spec.cell_name for one in moved}
        staying = [one for one in own if one.metadata.deletion_timestamp is None and one.spec.cell_name not in lost]
        id_ = _id(obj.metadata.namespace, obj.metadata.name)
        usable = [one._replace(is_ready=False) if one.name in lost else one for one in candidates]
        there = {one.spec.cell_name: one.spec.replicas for one in staying}
        ready = {one.spec.cell_name: status_of(one).ready_replicas for one in staying}
        if REBALANCE in obj.metadata.annotations:
            moving = rebalance(id_, wanted, usable, there, ready)
            if moving is not None:
                return Placing(moving, is_moving=True)
        return place(id_, city, wanted, usable, there, ready, is_known=_is_known(objects, city))

    def _candidate(self, objects: Objects, cell: Cell, needs: Size, namespace: str) -> Candidate:
        return Candidate(
            cell.metadata.name,
            weight=cell.spec.weight,
            room=self._reservations.room(cell, needs, namespace, partial(_most, objects)),
            is_ready=cell.readiness().state == "Ready",
            is_cordoned=cell.spec.cordoned,
            is_draining=cell.spec.drain,
        )

    # Carrying out.

    async def _carry_out(
        self, context: Context, obj: Workload, there: Sequence[WorkloadDeployment], decisions: Sequence[_CityDecision]
    ) -> None:
        by_name = {one.metadata.name: one for one in there}
        wanted = {one.metadata.name: one for one in _deployments(obj, decisions)}
        # Deletions first, so that no instance acts in two cells.
        for one in [one for decision in decisions for one in decision.moved]:
            await self._delete(context, one)
        for name, deployment in wanted.items():
            before = by_name.get(name)
            if before is None and context.find(WorkloadDeployment.api, obj.metadata.namespace, name) is not None:
                left = f"WorkloadDeployment/{name} of an earlier workload of this name exists"
                context.warn_once(obj, "NameTaken", f"{left}: an admin can delete it, if it does not go by itself")
            elif before is None:
                await unless_overtaken(context.client.create(deployment))
            elif before.metadata.deletion_timestamp is None and (changed := _changed(before, deployment)) is not None:
                await context.client.update(changed)
        for name, one in by_name.items():
            if name not in wanted and one.metadata.deletion_timestamp is None:
                await self._delete(context, one)

    async def _end_rebalance(
        self, context: Context, obj: Workload, there: Sequence[WorkloadDeployment], decisions: Sequence[_CityDecision]
    ) -> None:
        """Remove the rebalance annotation when the division is even: later changes of cells move nothing again."""
        if REBALANCE not in obj.metadata.annotations or any(one.placing.is_moving for one in decisions):
            return
        meta = obj.metadata
        before = {one.metadata.name: one.spec.replicas for one in there if one.metadata.deletion_timestamp is None}
        if before != {one.metadata.name: one.spec.replicas for one in _deployments(obj, decisions)}:
            return  # The last instance is still being removed.
        body = {"metadata": {"annotations": {REBALANCE: None}, "uid": meta.uid}}
        await unless_overtaken(context.client.patch(Workload, meta.name, body, namespace=meta.namespace))
        context.events.record(obj, "Normal", "Rebalanced", "its instances are divided evenly among the cells in reach")

    async def _delete(self, context: Context, obj: WorkloadDeployment | Revision) -> None:
        meta = obj.metadata
        await unless_overtaken(context.client.delete(type(obj), meta.name, namespace=meta.namespace, uid=meta.uid))

    async def _revise(self, context: Context, obj: Workload) -> None:
        there = cast("Sequence[Revision]", context.objects.owned(Revision.api, obj.metadata.uid))
        found = plan_revisions(obj, there)
        if found.create is not None:
            await unless_overtaken(context.client.create(found.create))
        for one in found.delete:
            await self._delete(context, one)


def _counted_as(decision: _CityDecision) -> str:
    if decision.placing.unplaced:
        return decision.placing.reason
    return "CellLost" if decision.moved else "Rebalancing" if decision.placing.is_moving else "Placed"


def is_fenced(deployment: WorkloadDeployment) -> bool:
    """Report whether the cell has confirmed that it ends a deployment's instances when it loses its hub.

    A cell may know a later generation, as after a restore of the hub. Then it follows that one instead.
    """
    since, status = deployment.metadata.annotations.get(MOVING_SINCE, "1"), status_of(deployment)
    synced = status.condition(SYNCED)
    if synced is not None and synced.reason == HUB_IS_OLDER:
        return False
    return since == "1" or (since.isascii() and since.isdigit() and status.observed_generation >= int(since))


def _is_left(deployment: WorkloadDeployment, moved: Iterable[WorkloadDeployment]) -> bool:
    """Report whether a deployment is being replaced in another cell, while its own cell may not know that yet."""
    is_going = deployment.metadata.deletion_timestamp is not None and deployment.spec.on_cell_lost == "Move"
    return is_going or deployment in moved


def _deployments(obj: Workload, decisions: Iterable[_CityDecision]) -> Iterable[WorkloadDeployment]:
    """Return the desired deployments of a workload."""
    meta = obj.metadata
    owner = OwnerReference(
        api_version=obj.api.api_version,
        kind=obj.api.name,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )
    for decision in decisions:
        placement, city = decision.placement, decision.city
        for cell, replicas in decision.placing.cells.items():
            name = deployment_name(meta.name, placement.name, cell)
            yield WorkloadDeployment(
                metadata=ObjectMeta(
                    name=name,
                    namespace=meta.namespace,
                    owner_references=[owner],
                    annotations=inherited(meta.annotations),
                ),
                spec=WorkloadDeploymentSpec(
                    workload_ref=Ref(name=meta.name),
                    placement_name=placement.name,
                    city_code=city,
                    cell_name=cell,
                    replicas=replicas,
                    template=_template(obj.spec.template, placement, city),
                    on_cell_lost=placement.on_cell_lost,
                    lease_seconds=placement.lease_seconds,
                    term=decision.term,
                    metric=placement.scale.metric,
                ),
            )


def _changed(before: WorkloadDeployment, wanted: WorkloadDeployment) -> WorkloadDeployment | None:
    """Return the update of a deployment; None: it is as wanted. Existing annotations stay, such as restricted."""
    annotations = {**before.metadata.annotations, **wanted.metadata.annotations}
    had, has = ((one.spec.on_cell_lost, one.spec.lease_seconds) for one in (before, wanted))
    if had != has:
        annotations[MOVING_SINCE] = str(before.metadata.generation + 1)
    if before.spec == wanted.spec and before.metadata.annotations == annotations:
        return None
    metadata = msgspec.structs.replace(before.metadata, annotations=annotations)
    return msgspec.structs.replace(before, metadata=metadata, spec=wanted.spec)


def _template(template: WorkloadTemplate, placement: Placement, city: str) -> WorkloadTemplate:
    """Return the template of a workload in one city, with the restart of that city if there was one."""
    restarted = placement.restarted_at.get(city)
    if restarted is None:
        return template
    marks = template.metadata or TemplateMeta()
    # A later restart of all cities has precedence.
    stamp = max(restarted.isoformat(), marks.annotations.get(TEMPLATE_RESTARTED, ""))
    annotations = {**marks.annotations, TEMPLATE_RESTARTED: stamp}
    return msgspec.structs.replace(template, metadata=msgspec.structs.replace(marks, annotations=annotations))


def _status(
    context: Context,
    obj: Workload,
    decisions: Iterable[_CityDecision],
    there: Sequence[WorkloadDeployment],
    opened: Sequence[Condition],
) -> Any:
    cities: dict[str, list[City]] = {one.name: [] for one in obj.spec.placements}
    for one in decisions:
        cities[one.placement.name].append(
            City(one.city, one.wanted, one.placing, _of_city(there, one.placement, one.city))
        )
    placements = [rollup.placement_status(one, cities[one.name]) for one in obj.spec.placements]
    status = status_of(obj)
    for condition in (*opened, rollup.available(cities)):
        status = context.condition(obj, status, condition)
    counts = rollup.workload_status(placements, cities)
    return msgspec.structs.replace(status, observed_generation=obj.metadata.generation, **counts)


def _of_city(there: Iterable[WorkloadDeployment], placement: Placement, city: str) -> list[WorkloadDeployment]:
    return [one for one in there if (one.spec.placement_name, one.spec.city_code) == (placement.name, city)]


def _measured(deployment: WorkloadDeployment) -> Measured:
    status = status_of(deployment)
    return Measured(deployment.spec.replicas, status.ready_replicas, status.cpu_percent)


def _cells(objects: Objects, city: str) -> list[Cell]:
    every = cast("list[Cell]", objects.list(Cell.api))
    return [one for one in every if one.spec.city_code == city and one.metadata.deletion_timestamp is None]


def _most(objects: Objects, namespace: str) -> Bound:
    """Return the most that a namespace may run: its quota, or what still runs under an earlier, larger one."""
    quota = quota_of(objects, namespace)
    if quota is None:
        return Bound()
    used = parsed(status_of(quota).used)
    each = zip(bound_of(quota.spec.hard), used, strict=True)
    return Bound(*(None if most is None else max(most, has) for most, has in each))


def _is_known(objects: Objects, city: str) -> bool:
    every = cast("list[Location]", objects.list(Location.api))
    return any(one.spec.city_code == city for one in every)


def _id(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"
