"""The reports of cells, as the leading hub receives them.

- A report is about what is bound to the cell that sends it. Anything else is refused, and then nothing of it is kept.
- A report that comes again does no harm; one that is older than the last does nothing.
- Nothing is deleted because it was not mentioned, unless the hub had asked for everything.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from rota import __version__
from rota.api import Cell, Condition, Instance, Kind, Object, WorkloadDeployment
from rota.api.cell import CellStatus
from rota.api.meta import with_condition
from rota.client import Client, Operation, Update, to_dict
from rota.control.cells.digests import Digests
from rota.control.cells.heard import Heard
from rota.control.cells.messages import Answer, DeploymentReport, Report
from rota.control.cells.names import (
    CELL_FINALIZER,
    CELL_UID,
    bound_name,
    cell_namespace,
    is_bound,
    shown_identity,
    source_of,
    store_identity,
)
from rota.control.cells.receiving import LeftOut, Receipt, Refused, is_copy, receive
from rota.control.gate import READY
from rota.control.instances.names import controller_of
from rota.control.writing import is_overtaken
from rota.engine.clock import Clock
from rota.engine.objects import Objects, get
from rota.engine.reconciler import Recording
from rota.registry import ApiError
from rota.registry.amendment import Amendment
from rota.registry.options import DeleteOptions

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
"""A cell that has nothing to say reports this often, and its heartbeat is written no more often."""
VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)
MINORS_MAX = 1
"""Minor versions that may be between a hub and its cells."""
EVENTS_BURST = 100
EVENTS_PER_SECOND = 2.0
"""Events of one namespace that are taken of one cell at once, and then. More are not said: all cells have one queue."""
ALLOWANCES_MAX = 10_000
TEST_FAILED = "test failed"
"""A part of the message about a patch that does not fit any more."""
REPORTING = Condition(type=READY, status="True", reason="Reporting", message="the cell reports")


class Reports:
    """Takes the reports of all cells, for as long as this process leads. `end` it."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        events: Recording,
        heard: Heard,
        clock: Clock,
        is_leading: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_leading`: whether this process still leads. One that does not gives no rights."""
        self._client = client
        self._events = events
        self._is_leading = is_leading
        self._taking: dict[str, asyncio.Lock] = {}
        """By cell: its reports are taken one after the other."""
        self._objects = objects
        self._heard = heard
        self._clock = clock
        self._digests = Digests()
        self._last: dict[str, tuple[int, int]] = {}
        self._allowances: dict[tuple[str, str], tuple[float, float]] = {}
        """By cell and namespace: how many Events may be said, as of when."""
        self._left_out: dict[str, str] = {}
        """Deployments whose news are not taken, by uid, and why."""
        self._moving: dict[str, dict[str, int]] = {}
        """Deployments that are moved when their cell is lost: by cell and uid, their leases."""
        self._ends = [
            objects.listen((Instance.api,), self._hear),
            objects.listen((WorkloadDeployment.api,), self._hear_deployment),
            objects.listen((Cell.api,), self._hear_cell),
        ]

    def end(self) -> None:
        for one in self._ends:
            one()

    def forget(self, cell: str) -> None:
        """Take the next report of a cell, whatever was reported before: it has joined anew."""
        self._last.pop(cell, None)

    def _hear(self, kind: Kind, update: Update[Any]) -> None:
        old, new = (one if one is not None and is_copy(one) else None for one in (update.old, update.new))
        self._digests.hear(old, new)

    def _hear_cell(self, kind: Kind, update: Update[Any]) -> None:
        if update.new is None:
            self._last.pop(update.key.name, None)
            self._taking.pop(update.key.name, None)

    def _hear_deployment(self, kind: Kind, update: Update[Any]) -> None:
        now: WorkloadDeployment = cast("Any", update.new or update.old)
        if is_bound(now):
            return
        meta, spec = now.metadata, now.spec
        if update.new is None:
            self._heard.forget_deployment(meta.uid)
            self._left_out.pop(meta.uid, None)
        if update.new is not None and spec.on_cell_lost == "Move" and meta.deletion_timestamp is None:
            self._moving.setdefault(spec.cell_name, {})[meta.uid] = spec.lease_seconds
        elif spec.cell_name in self._moving:
            self._moving[spec.cell_name].pop(meta.uid, None)
            if not self._moving[spec.cell_name]:
                del self._moving[spec.cell_name]

    def _rights(self, cell: str) -> dict[str, float]:
        """Return what a cell may run for how long of what is moved when it is lost."""
        every = self._moving.get(cell, {})
        heard = self._heard
        return {uid: each for uid, each in every.items() if not heard.is_revoked(uid) and heard.may_give(each)}

    async def receive(self, name: str, report: Report) -> Answer:
        """Take a report of a cell. Raises `ApiError` for one that is refused."""
        async with self._taking.setdefault(name, asyncio.Lock()):
            cell = get(self._objects, Cell, name)
            if cell is None:
                message = f'there is no cell "{name}" here: `rota cell join {name}` makes it known'
                raise ApiError(404, "NotFound", message)
            self._check_identity(cell, report)
            last = self._last.get(name)
            if last is not None and (report.boot, report.sequence) <= last:
                return Answer(hub=store_identity(self._objects), late=last[0])
            resync = await self._take(cell, report)
            self._last[name] = (report.boot, report.sequence)
            await self._write_cell(name, report)
        # Nothing is awaited from here on: what is revoked later is revoked after this answer.
        if not self._is_leading():
            raise ApiError(503, "ServiceUnavailable", "another server leads by now: try again")
        self._heard.note(name)
        rights = self._rights(name)
        interval = min([HEARTBEAT_SECONDS, *(max(seconds / 3, 1.0) for seconds in rights.values())])
        return Answer(hub=store_identity(self._objects), resync=resync, rights=rights, interval_seconds=interval)

    def _check_identity(self, cell: Cell, report: Report) -> None:
        known = cell.status.identity if cell.status is not None else None
        if known is not None and known != shown_identity(report.identity):
            name = cell.metadata.name
            raise ApiError(
                409,
                "Conflict",
                f'cell "{name}" has joined from another home. Give this one a name of its own;'
                f" or, if the other is gone for good, `rota cell remove {name} --lost` and join again",
            )

    async def _take(self, cell: Cell, report: Report) -> list[str]:
        """Write what a report says. Returns the uids of deployments of which everything is asked for."""
        found = [(one, self._deployment(cell, one)) for one in report.deployments]
        receipts = []
        for told, deployment in found:
            if deployment is not None and (receipt := self._received(deployment, told)) is not None:
                receipts.append((deployment, receipt))
        try:
            await self._write_all(receipts)
        except ApiError as error:
            if not _is_its_own(error):
                raise
            # What is wrong with one of them keeps back no other.
            for one in receipts:
                await self._write_one(*one)
        for told, deployment in found:
            if deployment is not None:
                self._record(deployment, told)
            if told.released:
                await self._release(cell, told, deployment)
        return [
            told.uid
            for told, deployment in found
            if deployment is not None
            and not told.released
            and told.digest
            and told.uid not in self._left_out
            and told.digest != self._digests.of(deployment.metadata.uid)
        ]

    def _record(self, deployment: WorkloadDeployment, told: DeploymentReport) -> None:
        """Say here what happened in the cell, about the hub's own objects."""
        copies = Copies(self._objects, deployment)
        for one in told.events:
            about = copies.find(one.instance) if one.instance else deployment
            if about is not None and self._may_say(deployment.spec.cell_name, deployment.metadata.namespace):
                self._events.record(about, "Warning" if one.warning else "Normal", one.reason, one.message)

    def _may_say(self, cell: str, namespace: str) -> bool:
        """Count one more Event of a namespace in a cell, if it may be said."""
        key, now = (cell, namespace), self._clock.now()
        if key not in self._allowances and len(self._allowances) >= ALLOWANCES_MAX:
            # Of those that say little, none need be remembered.
            self._allowances = {one: it for one, it in self._allowances.items() if _left(*it, now) < EVENTS_BURST}
        left = _left(*self._allowances.get(key, (EVENTS_BURST, now)), now)
        self._allowances[key] = (left - 1 if left >= 1 else left, now)
        return left >= 1

    def _received(self, deployment: WorkloadDeployment, told: DeploymentReport) -> Receipt | None:
        """Return what to write of a deployment; None: nothing, and it is left out."""
        try:
            return receive(deployment, Copies(self._objects, deployment), told)
        except Refused as error:
            raise ApiError(403, "Forbidden", str(error)) from None
        except LeftOut as error:
            self._leave_out(deployment, str(error))
            return None

    def _leave_out(self, deployment: WorkloadDeployment, why: str) -> None:
        meta = deployment.metadata
        if self._left_out.get(meta.uid) != why:
            log.warning("cell %s, of %s/%s: %s", deployment.spec.cell_name, meta.namespace, meta.name, why)
        self._left_out[meta.uid] = why

    async def _write_all(self, receipts: Received) -> None:
        # In this order: an instance may come under the name of one that is gone, and has a status once it is there.
        await self._write([_delete(one) for _, receipt in receipts for one in receipt.delete])
        await self._write([_create(one) for _, receipt in receipts for one in receipt.create])
        await self._write(self._statuses(receipts))
        for deployment, _ in receipts:
            self._left_out.pop(deployment.metadata.uid, None)

    async def _write_one(self, deployment: WorkloadDeployment, receipt: Receipt) -> None:
        try:
            await self._write_all([(deployment, receipt)])
        except ApiError as error:
            if not _is_its_own(error):
                raise
            self._leave_out(deployment, str(error))

    def _deployment(self, cell: Cell, told: DeploymentReport) -> WorkloadDeployment | None:
        """Return the deployment that is told of; None: it is not here any more. Another cell's is refused."""
        found = get(self._objects, WorkloadDeployment, told.name, told.namespace)
        if found is None or found.metadata.uid != told.uid:
            return None
        if found.spec.cell_name != cell.metadata.name or is_bound(found):
            raise ApiError(
                403,
                "Forbidden",
                f'deployment "{told.namespace}/{told.name}" is none of cell "{cell.metadata.name}"',
            )
        return found

    async def _write(self, operations: Sequence[Operation]) -> None:
        """Write all that did not come too late. The digest tells if something is missing then."""
        for answer in await self._client.write_each(operations):
            if isinstance(answer, ApiError) and not _is_lost(answer):
                raise answer

    def _statuses(self, receipts: Received) -> list[Operation]:
        found: list[Operation | None] = []
        for deployment, receipt in receipts:
            if receipt.status is not None:
                found.append(self._status(msgspec.structs.replace(deployment, status=receipt.status)))
            found.extend(map(self._status, receipt.statuses))
        return [one for one in found if one is not None]

    def _status(self, obj: Object) -> Operation | None:
        """Return a write of a status, whatever version the object has by now. None: it is not there."""
        meta = obj.metadata
        status = msgspec.to_builtins(getattr(obj, "status", None))
        if self._client.in_process:
            there = self._objects.find(obj.api, meta.namespace, meta.name)
            if there is None or there.metadata.annotations.get(CELL_UID) != meta.annotations.get(CELL_UID):
                return None
            uid = meta.uid or there.metadata.uid
            return Operation("amend", obj.api, meta.namespace, meta.name, Amendment(uid, status=status))
        known = (
            {"path": f"/metadata/annotations/{CELL_UID.replace('/', '~1')}", "value": meta.annotations[CELL_UID]}
            if CELL_UID in meta.annotations
            else {"path": "/metadata/uid", "value": meta.uid}
        )
        patch = [{"op": "test", **known}, {"op": "add", "path": "/status", "value": status}]
        return Operation("patch", obj.api, meta.namespace, meta.name, patch, subresource="status", patch_type="json")

    async def _release(self, cell: Cell, told: DeploymentReport, deployment: WorkloadDeployment | None) -> None:
        """Let go of a bound deployment of which nothing is left in its cell, if it is to go."""
        namespace = cell_namespace(cell.metadata.name)
        every = (
            [get(self._objects, WorkloadDeployment, bound_name(deployment), namespace)]
            if deployment is not None
            else cast("list[WorkloadDeployment | None]", self._objects.list(WorkloadDeployment.api, namespace))
        )
        for bound in every:
            source = source_of(bound) if bound is not None else None
            if bound is None or source is None or source.uid != told.uid:
                continue
            if bound.metadata.deletion_timestamp is not None and CELL_FINALIZER in bound.metadata.finalizers:
                finalizers = [one for one in bound.metadata.finalizers if one != CELL_FINALIZER]
                metadata = msgspec.structs.replace(bound.metadata, finalizers=finalizers)
                await self._client.update(msgspec.structs.replace(bound, metadata=metadata))

    async def _write_cell(self, name: str, report: Report) -> None:
        """Write that a cell is there, when it was not, when something has changed, or now and then."""
        cell = get(self._objects, Cell, name)
        if cell is None:
            return
        before = cell.status or CellStatus()
        now = self._clock.time()
        status = msgspec.structs.replace(
            before,
            identity=shown_identity(report.identity),
            version=report.version or None,
            instances=report.instances,
            allocated=report.allocated,
            orphans=report.orphans,
            conditions=with_condition(before.conditions, _ready(cell, report.version), now),
        )
        since = now - before.last_heartbeat_time.timestamp() if before.last_heartbeat_time is not None else None
        if status == before and since is not None and 0 <= since < HEARTBEAT_SECONDS:
            return
        status = msgspec.structs.replace(status, last_heartbeat_time=_moment(now))
        try:
            await self._client.update_status(msgspec.structs.replace(cell, status=status))
        except ApiError as error:
            if not is_overtaken(error):
                raise


def _ready(cell: Cell, version: str) -> Condition:
    said = REPORTING
    if not fits(version, __version__):
        message = f"it runs Rota {version}, and this hub {__version__}: at most one minor version may be between them"
        said = Condition(type=READY, status="False", reason="VersionSkew", message=message)
    return msgspec.structs.replace(said, observed_generation=cell.metadata.generation)


def fits(one: str, other: str) -> bool:
    """Report whether a hub and a cell of these versions work together. What is no version is taken to."""
    parts = [VERSION.match(each) for each in (one, other)]
    if parts[0] is None or parts[1] is None:
        return True
    (major, minor), (other_major, other_minor) = ((int(each[1]), int(each[2])) for each in parts if each is not None)
    return major == other_major and abs(minor - other_minor) <= MINORS_MAX


def _moment(now: float) -> datetime:
    return datetime.fromtimestamp(int(now), UTC)


def _left(left: float, since: float, now: float) -> float:
    return min(float(EVENTS_BURST), left + (now - since) * EVENTS_PER_SECOND)


class Copies:
    """The copies that the hub has of the instances of a deployment."""

    def __init__(self, objects: Objects, deployment: WorkloadDeployment) -> None:
        self._objects = objects
        self._of = deployment.metadata

    def find(self, name: str) -> Instance | None:
        found = get(self._objects, Instance, name, self._of.namespace)
        owner = controller_of(found) if found is not None and is_copy(found) else None
        return found if owner is not None and owner.uid == self._of.uid else None

    def all(self) -> Iterable[Instance]:
        there = cast("Sequence[Instance]", self._objects.owned(Instance.api, self._of.uid))
        return [one for one in there if is_copy(one)]


Received = Sequence[tuple[WorkloadDeployment, Receipt]]


def _delete(obj: Object) -> Operation:
    meta = obj.metadata
    return Operation("delete", obj.api, meta.namespace, meta.name, delete=DeleteOptions(uid=meta.uid))


def _create(obj: Object) -> Operation:
    return Operation("create", obj.api, obj.metadata.namespace, body=to_dict(obj))


def _is_its_own(error: ApiError) -> bool:
    """Report whether a write was refused for what it is, and will be whenever it is tried."""
    return 400 <= error.code < 500 and error.code != 429


def _is_lost(error: ApiError) -> bool:
    """Report whether a write came too late, or for another object of that name."""
    return is_overtaken(error) or (error.code == 422 and TEST_FAILED in str(error))
