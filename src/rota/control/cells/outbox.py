"""The outbox of a cell: news for its hub, collected from watch events and divided into reports of a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from rota.api import Condition, Event, Instance, Kind, WorkloadDeployment
from rota.api.meta import with_condition
from rota.api.workload import WorkloadDeploymentStatus
from rota.client import Key, Update
from rota.control.cells.digests import Digests
from rota.control.cells.messages import (
    CHANGED_MAX,
    DEPLOYMENTS_MAX,
    EVENTS_MAX,
    MESSAGE_LENGTH_MAX,
    REASON_LENGTH_MAX,
    REPORT_BYTES_AIM,
    DeploymentReport,
    EventReport,
    Gone,
    InstanceReport,
)
from rota.control.cells.names import SYNCED, Source, mirrored_source
from rota.control.cells.receiving import is_numbered
from rota.control.gate import status_of
from rota.control.instances.names import controller_of
from rota.engine.clock import Clock
from rota.engine.objects import Objects, get
from rota.engine.recorder import COMPONENT

AVAILABLE = "Available"
COMPARED_MAX = 50
"""Unchanged deployments in each heartbeat, whose digests the hub compares."""

_encode = msgspec.json.Encoder().encode


class _News:
    """News of one deployment that has not been reported. Its status is in every report."""

    def __init__(self) -> None:
        self.changed: dict[str, None] = {}
        """Names of instances."""
        self.gone: dict[str, str] = {}
        """Names of instances, by their uids."""
        self.all = False
        self.events: dict[EventReport, None] = {}

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone)


class Outbox:
    """The news of the deployments that a cell runs for its hub. `end` it.

    `take` removes news; if their report fails, `put_back` adds them again.
    """

    def __init__(self, objects: Objects, clock: Clock, on_news: Callable[[], None]) -> None:
        """`on_news` is called when there is news."""
        self._objects = objects
        self._clock = clock
        self._on_news = on_news
        self._digests = Digests()
        self._deployments: dict[str, Key] = {}
        """The hub's deployments in this cell, by uid."""
        self._news: dict[str, _News] = {}
        self._released: dict[str, Source] = {}
        self._refused: dict[str, tuple[Source, Condition]] = {}
        """Deployments that cannot be run here, with the condition, by uid at the hub."""
        self._refusals: dict[str, None] = {}
        """Refused deployments without an object here whose refusal has not been reported."""
        self._ends = [
            objects.listen((WorkloadDeployment.api,), self._deployment_changed),
            objects.listen((Instance.api,), self._instance_changed),
            objects.listen((Event.api,), self._event_changed),
        ]
        # The hub may know what is there already: digests will show.
        self._news.clear()
        self.announce()

    def end(self) -> None:
        for one in self._ends:
            one()

    def __bool__(self) -> bool:
        """Report whether there is unreported news."""
        return bool(self._news or self._released or self._refusals)

    # What has changed.

    def release(self, source: Source) -> None:
        """Report that nothing is left of a deployment in this cell."""
        self._released[source.uid] = source
        self._refused.pop(source.uid, None)
        self._on_news()

    def refuse(self, source: Source, reason: str, message: str) -> None:
        """Report that a deployment cannot be run here. An empty reason withdraws that."""
        before = self._refused.pop(source.uid, None)
        if not reason:
            if before is not None:
                self._note_refusal(source.uid)
            return
        condition = Condition(type=SYNCED, status="False", reason=reason, message=message)
        conditions = with_condition([before[1]] if before is not None else [], condition, self._clock.time())
        self._refused[source.uid] = (source, conditions[0])
        if self._refused[source.uid] != before:
            self._note_refusal(source.uid)

    def _note_refusal(self, uid: str) -> None:
        own = next((one for one, key in self._deployments.items() if self._source_uid(key) == uid), None)
        if own is not None:
            self._news.setdefault(own, _News())
        elif uid in self._refused:
            self._refusals[uid] = None
        self._on_news()

    def _here(self) -> set[str]:
        """Return the uids at the hub of the deployments in this cell."""
        return {self._source_uid(key) for key in self._deployments.values()}

    def _source_uid(self, key: Key) -> str:
        found = get(self._objects, WorkloadDeployment, key.name, key.namespace)
        source = mirrored_source(found) if found is not None else None
        return source.uid if source is not None else ""

    def _deployment_changed(self, kind: Kind, update: Update[Any]) -> None:
        old, new = cast("Any", update.old), cast("Any", update.new)
        if new is None:
            self._deployments.pop(old.metadata.uid, None)
            self._news.pop(old.metadata.uid, None)
            return
        source = mirrored_source(new)
        if source is None:
            return
        # It exists here again, as after a restore of the hub.
        self._released.pop(source.uid, None)
        uid = new.metadata.uid
        self._deployments[uid] = update.key
        if old is None or old.status != new.status or mirrored_source(old) != source:
            self._news.setdefault(uid, _News())
            self._on_news()

    def _instance_changed(self, kind: Kind, update: Update[Any]) -> None:
        old, new = cast("Any", update.old), cast("Any", update.new)
        owner = controller_of(new or old)
        if owner is None or owner.uid not in self._deployments:
            return
        if old is not None and new is not None and old.status == new.status and old.metadata.uid == new.metadata.uid:
            return
        if not is_numbered(owner.name, new or old):
            return  # Nobody's: the hub would refuse the report.
        self._digests.update(old, new)
        news = self._news.setdefault(owner.uid, _News())
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            news.gone[old.metadata.uid] = old.metadata.name
            news.changed.pop(old.metadata.name, None)
        if new is not None:
            news.changed[new.metadata.name] = None
        self._on_news()

    def _event_changed(self, kind: Kind, update: Update[Any]) -> None:
        """Take an Event of this cell's controllers about an object of the hub."""
        old, new = cast("Event | None", update.old), cast("Event | None", update.new)
        if new is None or not new.reason or new.reporting_component != COMPONENT:
            return
        if old is not None and old.count == new.count:
            return
        about, namespace = new.involved_object, new.involved_object.namespace or ""
        owner, instance = about.uid or "", ""
        if about.kind == Instance.api.name:
            found = get(self._objects, Instance, about.name or "", namespace)
            controller = controller_of(found) if found is not None and found.metadata.uid == owner else None
            owner, instance = controller.uid if controller is not None else "", about.name or ""
        if owner not in self._deployments:
            return
        news = self._news.setdefault(owner, _News())
        if len(news.events) < EVENTS_MAX:
            reported = EventReport(
                reason=new.reason[:REASON_LENGTH_MAX],
                message=(new.message or "")[:MESSAGE_LENGTH_MAX],
                instance=instance,
                warning=new.type == "Warning",
            )
            news.events[reported] = None
        self._on_news()

    # Reports.

    def announce(self) -> None:
        """Report every deployment with the digest of its instances. The hub asks for those that differ."""
        for uid in self._deployments:
            self._news.setdefault(uid, _News())
        here = self._here()
        self._refusals.update(dict.fromkeys(uid for uid in self._refused if uid not in here))

    def announce_some(self) -> None:
        """Report COMPARED_MAX unchanged deployments, others each time, so that the hub compares their digests."""
        for uid in [*self._deployments][:COMPARED_MAX]:
            self._deployments[uid] = self._deployments.pop(uid)
            self._news.setdefault(uid, _News())

    def resync(self, uids: Iterable[str]) -> None:
        """Report the deployments with these uids at the hub in full."""
        wanted = set(uids)
        for own, key in self._deployments.items():
            if self._source_uid(key) in wanted:
                news = self._news.setdefault(own, _News())
                news.all = True
                news.changed.update(dict.fromkeys(one.metadata.name for one in self._instances(own)))

    def take(self, deployments_max: int = DEPLOYMENTS_MAX) -> tuple[list[DeploymentReport], Any]:
        """Remove the news for one report. Returns the reports, and the argument for `put_back`.

        News that do not fit go to the end of the queue, so that a deployment with many changes does not hold up others.
        """
        reports: list[DeploymentReport] = []
        taken: dict[str, _News] = {}
        room = ReportRoom()
        for uid in [*self._news][:deployments_max]:
            if not room:
                break
            news = self._news.pop(uid)
            report, sent, rest = self._report(uid, news, room)
            if report is not None:
                taken[uid] = sent
                reports.append(report)
                if rest:
                    self._news[uid] = rest
        free = deployments_max - len(reports)
        released = {uid: self._released.pop(uid) for uid in [*self._released][:free]}
        reports += [_released(source) for source in released.values()]
        free = deployments_max - len(reports)
        refusals = [*self._refusals][:free]
        # Without those that the report has already: a report names each deployment once.
        already = {one.uid for one in reports}
        for uid in refusals:
            del self._refusals[uid]
            if uid in self._refused and uid not in already:
                reports.append(_refusal(*self._refused[uid]))
        return reports, (taken, released, refusals)

    def put_back(self, taken: Any) -> None:
        """Put the news of a failed report back."""
        news, released, refusals = taken
        for uid, one in news.items():
            if uid not in self._deployments:
                continue
            now = self._news.setdefault(uid, one)
            if now is not one:
                now.all |= one.all
                now.changed.update(one.changed)
                now.gone.update(one.gone)
                now.events = dict.fromkeys([*one.events, *now.events][:EVENTS_MAX])
        here = self._here() if released else ()
        self._released = {**{uid: one for uid, one in released.items() if uid not in here}, **self._released}
        self._refusals = {**dict.fromkeys(refusals), **self._refusals}

    def _instances(self, uid: str) -> list[Instance]:
        owned = cast("list[Instance]", self._objects.owned(Instance.api, uid))
        return [one for one in owned if is_numbered(self._deployments[uid].name, one)]

    def _report(self, uid: str, news: _News, room: ReportRoom) -> tuple[DeploymentReport | None, _News, _News]:
        """Return the report of a deployment as far as there is room, the news in it, and the rest."""
        sent, rest = _News(), _News()
        key = self._deployments[uid]
        obj = get(self._objects, WorkloadDeployment, key.name, key.namespace)
        source = mirrored_source(obj) if obj is not None else None
        if obj is None or source is None:
            return None, sent, rest
        changed = []
        for name in news.changed:
            found = get(self._objects, Instance, name, key.namespace)
            one = _instance_report(found) if found is not None else None
            if rest.changed or (one is not None and not room.take(one)):
                rest.changed[name] = None
                continue
            sent.changed[name] = None
            if one is not None:
                changed.append(one)
        for number, (gone, name) in enumerate(news.gone.items()):
            (sent if number < CHANGED_MAX else rest).gone[gone] = name
        # The list of all instances and the digest are only right in the last report of a deployment's news.
        (rest if rest else sent).all = news.all
        sent.events = news.events
        status = status_of(obj)
        is_observed = status.observed_generation == obj.metadata.generation
        refused = self._refused.get(source.uid)
        if refused is not None:
            status = msgspec.structs.replace(status, conditions=[*status.conditions, refused[1]])
        report = DeploymentReport(
            namespace=source.namespace,
            name=source.name,
            uid=source.uid,
            generation=source.generation if is_observed else max(source.generation - 1, 0),
            status=status,
            changed=changed,
            gone=[Gone(name, uid) for uid, name in sent.gone.items()],
            all=[one.metadata.uid for one in self._instances(uid)] if sent.all else None,
            events=[*news.events],
            digest="" if rest else self._digests.of(uid),
        )
        room.spend(msgspec.structs.replace(report, changed=[]))
        return report, sent, rest


class ReportRoom:
    """The room in a report, in bytes and instances."""

    def __init__(self) -> None:
        self._bytes = REPORT_BYTES_AIM
        self._instances = CHANGED_MAX
        self._is_new = True

    def __bool__(self) -> bool:
        return self._bytes > 0 and self._instances > 0

    def take(self, one: InstanceReport) -> bool:
        """Take room for an instance, if there is enough. The first one always fits."""
        size = len(_encode(one))
        if not self._is_new and (size > self._bytes or self._instances <= 0):
            return False
        self._is_new = False
        self._bytes -= size
        self._instances -= 1
        return True

    def spend(self, what: DeploymentReport) -> None:
        self._bytes -= len(_encode(what))


def _instance_report(instance: Instance) -> InstanceReport:
    meta = instance.metadata
    return InstanceReport(name=meta.name, uid=meta.uid, spec=instance.spec, status=instance.status)


def _released(source: Source) -> DeploymentReport:
    return DeploymentReport(namespace=source.namespace, name=source.name, uid=source.uid, released=True)


def _refusal(source: Source, why: Condition) -> DeploymentReport:
    away = msgspec.structs.replace(why, type=AVAILABLE)
    return DeploymentReport(
        namespace=source.namespace,
        name=source.name,
        uid=source.uid,
        generation=source.generation,
        status=WorkloadDeploymentStatus(conditions=[why, away]),
    )
