"""`/v1/why`: the chain from an object to what it waits for, from the state of the engine in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, partial
from typing import Protocol, cast

import msgspec

from rota.api import KINDS, Claim, Event, Kind, Lease, Object, Task, WorkerPool
from rota.control.claim import Claims
from rota.control.gate import Gate
from rota.control.task import Tasks
from rota.control.tasks.waits import PoolWait
from rota.engine import ControlLoop, Objects
from rota.engine.advice import give_workers
from rota.engine.objects import get
from rota.engine.recorder import CLUSTER_NAMESPACE
from rota.engine.references import id_of, kind_of, shown
from rota.engine.why import Acting, Step, Why, explain
from rota.registry.errors import ApiError, forbidden, not_found, not_served
from rota.registry.system import LEASE_NAME, SYSTEM_NAMESPACE
from rota.server.auth import User, allows
from rota.server.http import Response

EVENTS_MAX = 10
"""Events shown of one object or two."""
RETRY_SECONDS = 1
"""Time after which a server that does not lead may do so."""
LOOKING_SECONDS_MAX = 0.1
"""Processor time of one explanation, because other requests wait for it."""
INSTEAD = "`rota describe KIND/NAME` shows conditions and events"


class Explained(Protocol):
    """The controllers of this process, as far as an explanation needs them."""

    @property
    def leader(self) -> str:
        """The holder of the lease; empty if there is none."""

    @property
    def loop(self) -> ControlLoop | None:
        """The running loop; None while this process does not lead."""

    @property
    def objects(self) -> Objects: ...


class ReportedEvent(msgspec.Struct, frozen=True, rename="camel"):
    """A reported event."""

    about: str
    """The object, as people write it: `Task/name`."""
    type: str
    reason: str
    message: str
    count: int
    last_reported: str = msgspec.field(name="lastSeen")


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """An explanation with recent events and the present time."""

    step: Step
    root: Step
    advice: str
    over: bool
    events: list[ReportedEvent]
    """The events of the object and of its root cause, the newest last."""
    time: str


async def why(
    running: Explained | None, user: User, plural: str, namespace: str, name: str, *, elsewhere: str = ""
) -> Response:
    """Explain the state of an object. `elsewhere` is the place of the controllers if they do not run here."""
    kind = _by_plural().get(plural)
    if kind is None or kind.namespaced != bool(namespace):
        raise not_served()
    if not allows(user, "get", kind, namespace, name, ""):
        raise forbidden(kind, name, f'User "{user.name}" cannot get it')
    loop = _loop(running, elsewhere)
    assert running is not None
    if not running.objects.sees(kind):
        raise ApiError(501, "NotImplemented", f"no controller here looks at {kind.plural}; {INSTEAD}")
    id_ = kind.key(namespace, name)
    there = running.objects.find(kind, namespace, name) is not None
    if not there and not loop.graph.referrers(id_) and not loop.view.waiting_for(id_):
        raise not_found(kind, name)
    until = time.thread_time() + LOOKING_SECONDS_MAX
    found = explain(
        id_,
        find=lambda *where: _as_it_stands(loop, running.objects, running.objects.find(*where), user),
        view=loop.view,
        graph=loop.graph,
        now=loop.scheduler.clock.now(),
        acting=lambda kind: _acting(loop, kind),
        may_read=lambda *where: allows(user, "get", *where),
        is_late=lambda: time.thread_time() > until,
    )
    now = loop.scheduler.clock.time()
    advice = _about_task(running.objects, found) or _about_pool(loop, running.objects, found) or found.advice
    answer = Answer(found.step, found.root, advice, found.over, await _events(found, running, user), _at(now))
    return Response(200, msgspec.json.encode(answer))


def _loop(running: Explained | None, elsewhere: str) -> ControlLoop:
    if running is None:
        there = f"; they run in {elsewhere}" if elsewhere else ""
        message = f"no controllers run in this server (it was started with --no-controllers){there}; {INSTEAD}"
        raise ApiError(503, "ServiceUnavailable", message)
    if running.loop is None:
        who = f"{running.leader} leads" if running.leader else "nobody leads yet"
        message = f"the controllers do not run in this server at the moment: {who}; {INSTEAD}"
        raise ApiError(503, "ServiceUnavailable", message, details={"retryAfterSeconds": RETRY_SECONDS})
    return running.loop


def _as_it_stands(loop: ControlLoop, objects: Objects, obj: Object | None, user: User) -> Object | None:
    """Return an object as it is now. A waiting task or claim gets its present place in the queue, or for a lock.

    The place reveals other objects, so only users who may list these get it.
    """
    if not isinstance(obj, Task | Claim) or obj.status is None:
        return obj
    if not all(allows(user, "list", kind, obj.metadata.namespace) for kind in (Claim.api, Task.api)):
        return obj
    controller = loop.controller(obj.api)
    waiting = controller.why_waiting(objects, obj) if controller is not None else None
    if waiting is None:
        return obj
    reason, message = waiting
    return msgspec.structs.replace(obj, status=msgspec.structs.replace(obj.status, reason=reason, message=message))


def _about_task(objects: Objects, why: Why) -> str:
    """Return advice about a failed task at the root; empty if there is none."""
    root = why.root
    bucket, namespace, name = root.id.split("/", 2)
    found = objects.find(Task.api, namespace, name) if bucket == Task.api.bucket and not root.hidden else None
    if not isinstance(found, Task) or found.metadata.deletion_timestamp is not None:
        return ""
    place = f" -n {namespace}" if namespace != "default" else ""
    if root.state == "Failed" and found.over():
        once_more = f"run it once more: `rota retry task/{name}{place}`"
        if why.step.id != root.id and why.over:
            asked = why.step.id.rpartition("/")[2]
            once_more = f"run it and what depends on it once more: `rota retry task/{asked}{place} --failed`"
        if found.status is not None and found.status.start_time is not None:
            who = "it" if why.step.id == root.id else root.name
            return f"see what {who} wrote: `rota logs task/{name}{place}`; then {once_more}"
        anew = f"`rota delete task/{name}{place}`, then `rota apply -f FILE{place}`"
        return f"put right what it says, and {once_more}; if it is the task itself that is wrong, make it anew ({anew})"
    return ""


def _about_pool(loop: ControlLoop, objects: Objects, why: Why) -> str:
    """Return advice about a pool without instances that a task or a claim at the root waits for."""
    root = why.root
    kind, (_, namespace, name) = kind_of(root.id), root.id.split("/", 2)
    found = objects.find(kind, namespace, name) if kind in (Task.api, Claim.api) and not root.hidden else None
    if found is None or found.metadata.deletion_timestamp is not None:
        return ""
    controller = loop.controller(found.api)
    wait: PoolWait | None = None
    match found, controller:
        case Task(), Tasks():
            wait = controller.wait(objects, found)
        case Claim(), Claims():
            wait = controller.wait(objects, found)
    if wait is None or wait.workers:
        return ""
    pool = get(objects, WorkerPool, wait.pool, namespace)
    # One that scales by demand is about to have an instance.
    return give_workers(id_of(pool)) if pool is not None and pool.spec.scale is None else ""


def holder(objects: Objects) -> str:
    """Return the leader of a server's controllers, from its lease; empty if there is none."""
    lease = get(objects, Lease, LEASE_NAME, SYSTEM_NAMESPACE)
    spec = None if lease is None else lease.spec
    if spec is None or spec.renew_time is None:
        return ""
    # Compared with the local clock, which is good enough for a message.
    expired = spec.renew_time.timestamp() + (spec.lease_duration_seconds or 0) < time.time()
    return "" if expired else spec.holder_identity or ""


async def _events(found: Why, running: Explained, user: User) -> list[ReportedEvent]:
    """Return the events of the object and of its root cause."""
    by_name: dict[str, Event] = {}
    for id_ in dict.fromkeys((found.step.id, found.root.id)):
        kind = kind_of(id_)
        _, namespace, name = id_.split("/", 2)
        place = namespace or CLUSTER_NAMESPACE
        if kind is None or not allows(user, "get", kind, namespace, name) or not allows(user, "list", Event.api, place):
            continue
        obj = running.objects.find(kind, namespace, name)
        about = partial(_is_about, kind=kind, name=name, obj=obj)
        for event in cast("Sequence[Event]", await running.objects.select(Event.api, place, about)):
            by_name[event.metadata.name] = event
    events = sorted(by_name.values(), key=lambda event: (_last(event), event.metadata.name))
    return [_reported(event) for event in events[-EVENTS_MAX:]]


def _is_about(event: Event, kind: Kind, name: str, obj: Object | None) -> bool:
    """Report whether an event is about this object, not about an earlier one of the same name."""
    about = event.involved_object
    if (about.kind, about.name) != (kind.name, name):
        return False
    return obj is None or about.uid in (None, "", obj.metadata.uid)


def _last(event: Event) -> float:
    """Return the time of the last report, in seconds since 1970."""
    observed = event.series.last_observed_time if event.series else None
    times = (observed, event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    return next((time.timestamp() for time in times if time is not None), 0.0)


def _reported(event: Event) -> ReportedEvent:
    about = event.involved_object
    kind = KINDS[about.kind or ""]
    series = event.series.count if event.series else None
    return ReportedEvent(
        shown(kind.key(about.namespace or "" if kind.namespaced else "", about.name or "")),
        event.type or "",
        event.reason or "",
        event.message or "",
        series or event.count or 1,
        _at(_last(event)),
    )


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@cache
def _by_plural() -> dict[str, Kind]:
    return {kind.plural: kind for kind in KINDS.values()}


def _acting(loop: ControlLoop, kind: Kind) -> Acting:
    """Return whether a controller, a gate or nobody acts on the objects of a kind here."""
    controller = loop.controller(kind)
    if controller is None:
        return "nobody"
    return "gate" if type(controller) is Gate else "controller"
