"""The reports of cells, as the leading hub receives them.

- *Own deployments only.* A report about anything that is not bound to its cell is refused as a whole.
- *Idempotent and ordered.* A repeated report has no second effect; one that is older than the last has none.
- *Explicit deletion.* Nothing is deleted because it is missing from a report, except from a full one that the hub has
  asked for.
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
from rota.control.cells.contacts import CellContacts
from rota.control.cells.digests import Digests
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
from rota.control.cells.receiving import DeploymentSkipped, Receipt, ReportRefused, is_copy, receive
from rota.control.gate import READY
from rota.control.instances.names import controller_of
from rota.engine.clock import Clock
from rota.engine.objects import Objects, get
from rota.engine.reconciler import Recording
from rota.registry import ApiError
from rota.registry.amendment import Amendment
from rota.registry.options import DeleteOptions

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
"""The interval of reports without news, and of writes of a cell's heartbeat."""
VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)
MINORS_MAX = 1
"""The largest difference of minor versions between a hub and its cells."""
EVENTS_BURST = 100
EVENTS_PER_SECOND = 2.0
"""The rate limit of Events of one namespace from one cell. More are dropped, since all cells share one queue."""
ALLOWANCES_MAX = 10_000
TEST_FAILED = "test failed"
"""A part of the error message of a JSON patch whose `test` failed."""
REPORTING = Condition(type=READY, status="True", reason="Reporting", message="the cell reports")


class Reports:
    """Receives the reports of all cells while this process leads. `end` it."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        events: Recording,
        contacts: CellContacts,
        clock: Clock,
        is_leading: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_leading` reports whether this process still leads: only a leader may give rights."""
        self._client = client
        self._events = events
        self._is_leading = is_leading
        self._taking: dict[str, asyncio.Lock] = {}
        """A lock for each cell, since its reports are taken one after the other."""
        self._objects = objects
        self._contacts = contacts
        self._clock = clock
        self._digests = Digests()
        self._last: dict[str, tuple[int, int]] = {}
        self._allowances: dict[tuple[str, str], tuple[float, float]] = {}
        """The token bucket of Events, and its last update, by cell and namespace."""
        self._skipped: dict[str, str] = {}
        """The reasons of deployments whose reports are skipped, by uid."""
        self._moving: dict[str, dict[str, int]] = {}
        """The leases of deployments that move when their cell is lost, by cell and uid."""
        self._ends = [
            objects.listen((Instance.api,), self._instance_changed),
            objects.listen((WorkloadDeployment.api,), self._deployment_changed),
            objects.listen((Cell.api,), self._cell_changed),
        ]

    def end(self) -> None:
        for one in self._ends:
            one()

    def forget(self, cell: str) -> None:
        """Take the next report of a cell whatever its number: the cell has joined anew."""
        self._last.pop(cell, None)

    def _instance_changed(self, kind: Kind, update: Update[Any]) -> None:
        old, new = (one if one is not None and is_copy(one) else None for one in (update.old, update.new))
        self._digests.update(old, new)

    def _cell_changed(self, kind: Kind, update: Update[Any]) -> None:
        if update.new is None:
            self._last.pop(update.key.name, None)
            self._taking.pop(update.key.name, None)

    def _deployment_changed(self, kind: Kind, update: Update[Any]) -> None:
        now: WorkloadDeployment = cast("Any", update.new or update.old)
        if is_bound(now):
            return
        meta, spec = now.metadata, now.spec
        if update.new is None:
            self._contacts.forget_deployment(meta.uid)
            self._skipped.pop(meta.uid, None)
        if update.new is not None and spec.on_cell_lost == "Move" and meta.deletion_timestamp is None:
            self._moving.setdefault(spec.cell_name, {})[meta.uid] = spec.lease_seconds
        elif spec.cell_name in self._moving:
            self._moving[spec.cell_name].pop(meta.uid, None)
            if not self._moving[spec.cell_name]:
                del self._moving[spec.cell_name]

    def _rights(self, cell: str) -> dict[str, float]:
        """Return the rights of a cell: the seconds for each deployment that moves when the cell is lost."""
        every = self._moving.get(cell, {})
        contacts = self._contacts
        return {uid: each for uid, each in every.items() if not contacts.is_revoked(uid) and contacts.may_give(each)}

    async def receive(self, name: str, report: Report) -> Answer:
        """Take a report of a cell. Raises `ApiError` if it is refused."""
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
        # Nothing is awaited from here on: a right that is revoked later is revoked after this answer.
        if not self._is_leading():
            raise ApiError(503, "ServiceUnavailable", "another server leads by now: try again")
        self._contacts.note(name)
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
        """Write the news of a report. Returns the uids of deployments that the cell must report in full."""
        found = [(one, self._deployment(cell, one)) for one in report.deployments]
        receipts = []
        for news, deployment in found:
            if deployment is not None and (receipt := self._received(deployment, news)) is not None:
                receipts.append((deployment, receipt))
        try:
            await self._write_all(receipts)
        except ApiError as error:
            if not _is_permanent(error):
                raise
            # One by one: a refused deployment must not hold up the others.
            for one in receipts:
                await self._write_one(*one)
        for news, deployment in found:
            if deployment is not None:
                self._record(deployment, news)
            if news.released:
                await self._release(cell, news, deployment)
        return [
            news.uid
            for news, deployment in found
            if deployment is not None
            and not news.released
            and news.digest
            and news.uid not in self._skipped
            and news.digest != self._digests.of(deployment.metadata.uid)
        ]

    def _record(self, deployment: WorkloadDeployment, news: DeploymentReport) -> None:
        """Record the cell's Events here, about the hub's own objects."""
        copies = Copies(self._objects, deployment)
        for one in news.events:
            about = copies.find(one.instance) if one.instance else deployment
            if about is not None and self._may_record(deployment.spec.cell_name, deployment.metadata.namespace):
                self._events.record(about, "Warning" if one.warning else "Normal", one.reason, one.message)

    def _may_record(self, cell: str, namespace: str) -> bool:
        """Charge one Event to a namespace in a cell. Returns False if it is over its rate limit."""
        key, now = (cell, namespace), self._clock.now()
        if key not in self._allowances and len(self._allowances) >= ALLOWANCES_MAX:
            # Full buckets need not be kept.
            self._allowances = {one: it for one, it in self._allowances.items() if _left(*it, now) < EVENTS_BURST}
        left = _left(*self._allowances.get(key, (EVENTS_BURST, now)), now)
        self._allowances[key] = (left - 1 if left >= 1 else left, now)
        return left >= 1

    def _received(self, deployment: WorkloadDeployment, news: DeploymentReport) -> Receipt | None:
        """Return the writes for a deployment; None: it is skipped."""
        try:
            return receive(deployment, Copies(self._objects, deployment), news)
        except ReportRefused as error:
            raise ApiError(403, "Forbidden", str(error)) from None
        except DeploymentSkipped as error:
            self._skip(deployment, str(error))
            return None

    def _skip(self, deployment: WorkloadDeployment, why: str) -> None:
        meta = deployment.metadata
        if self._skipped.get(meta.uid) != why:
            log.warning(
                "the report of cell %s on %s/%s is skipped: %s",
                deployment.spec.cell_name,
                meta.namespace,
                meta.name,
                why,
            )
        self._skipped[meta.uid] = why

    async def _write_all(self, receipts: Received) -> None:
        # In this order: a new instance may have the name of a deleted one, and must exist before its status.
        await self._write([_delete(one) for _, receipt in receipts for one in receipt.delete])
        await self._write([_create(one) for _, receipt in receipts for one in receipt.create])
        await self._write(self._statuses(receipts))
        for deployment, _ in receipts:
            self._skipped.pop(deployment.metadata.uid, None)

    async def _write_one(self, deployment: WorkloadDeployment, receipt: Receipt) -> None:
        try:
            await self._write_all([(deployment, receipt)])
        except ApiError as error:
            if not _is_permanent(error):
                raise
            self._skip(deployment, str(error))

    def _deployment(self, cell: Cell, news: DeploymentReport) -> WorkloadDeployment | None:
        """Return the reported deployment; None: it is gone. Raises ApiError if it is another cell's."""
        found = get(self._objects, WorkloadDeployment, news.name, news.namespace)
        if found is None or found.metadata.uid != news.uid:
            return None
        if found.spec.cell_name != cell.metadata.name or is_bound(found):
            raise ApiError(
                403,
                "Forbidden",
                f'deployment "{news.namespace}/{news.name}" is none of cell "{cell.metadata.name}"',
            )
        return found

    async def _write(self, operations: Sequence[Operation]) -> None:
        """Write, and ignore conflicts: if news is lost by one, the digests differ, and the cell reports it again."""
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
        """Return a write of a status; None: the object is gone, or was replaced.

        The write has no resourceVersion, since concurrent writes must not make it fail.
        """
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

    async def _release(self, cell: Cell, news: DeploymentReport, deployment: WorkloadDeployment | None) -> None:
        """Remove the finalizer of a bound deployment in deletion, of which nothing is left in its cell."""
        namespace = cell_namespace(cell.metadata.name)
        every = (
            [get(self._objects, WorkloadDeployment, bound_name(deployment), namespace)]
            if deployment is not None
            else cast("list[WorkloadDeployment | None]", self._objects.list(WorkloadDeployment.api, namespace))
        )
        for bound in every:
            source = source_of(bound) if bound is not None else None
            if bound is None or source is None or source.uid != news.uid:
                continue
            if bound.metadata.deletion_timestamp is not None and CELL_FINALIZER in bound.metadata.finalizers:
                finalizers = [one for one in bound.metadata.finalizers if one != CELL_FINALIZER]
                metadata = msgspec.structs.replace(bound.metadata, finalizers=finalizers)
                await self._client.update(msgspec.structs.replace(bound, metadata=metadata))

    async def _write_cell(self, name: str, report: Report) -> None:
        """Write the status of a cell if it has changed, and its heartbeat every HEARTBEAT_SECONDS."""
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
            if not error.is_overtaken:
                raise


def _ready(cell: Cell, version: str) -> Condition:
    said = REPORTING
    if not fits(version, __version__):
        message = f"it runs Rota {version}, and this hub {__version__}: at most one minor version may be between them"
        said = Condition(type=READY, status="False", reason="VersionSkew", message=message)
    return msgspec.structs.replace(said, observed_generation=cell.metadata.generation)


def fits(one: str, other: str) -> bool:
    """Report whether a hub and a cell of these versions work together. An unreadable version counts as fitting."""
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
    """The hub's copies of a deployment's instances."""

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


def _is_permanent(error: ApiError) -> bool:
    """Report whether a write was refused because of its own content, so that a retry cannot succeed."""
    return 400 <= error.code < 500 and error.code != 429


def _is_lost(error: ApiError) -> bool:
    """Report whether a write conflicted, or its object was replaced by another one of the same name."""
    return error.is_overtaken or (error.code == 422 and TEST_FAILED in str(error))
