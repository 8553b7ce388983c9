"""Rehearse manifests: run the real controllers on them in memory, on a virtual clock, to the fixpoint.

Nothing here depends on particular kinds, so a plan covers whatever the controllers do. One exception: Secrets and
Namespaces that are used but not declared are assumed to exist on the server, because people keep them there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import msgspec

from rota.api import KINDS, Kind, Namespace, Object, Secret
from rota.api.references import references
from rota.client import Client, Update
from rota.control.simulation import simulated
from rota.control.table import controllers as all_controllers
from rota.engine import ControlLoop, Graph, Reconciler, StoreObjects, View, VirtualClock
from rota.engine.references import id_of, kind_of
from rota.engine.why import Why, explain
from rota.manifest.load import Manifest, ManifestError
from rota.manifest.rehearsal_server import (
    TRANSIENT_KINDS,
    ServerState,
    allowed_apis,
    lasting_failures,
    starting_objects,
    unchanged_ids,
)
from rota.manifest.yaml_text import Problem
from rota.registry import ApiError, Registry
from rota.store import MemoryStore, Write

Json = dict[str, Any]

EPOCH = 1_704_067_200.0
"""The virtual start time, in seconds since 1970. It is fixed, so that plans are reproducible."""
ASSUMED_KINDS = (Namespace.api, Secret.api)
MANAGER = "rota"
DEFAULT_NAMESPACE = "default"


@dataclass(slots=True)
class Rehearsal:
    """The state at the fixpoint."""

    written: Mapping[str, Manifest]
    """The manifests by id, in the order of the files."""
    assumed: Mapping[str, list[str]]
    """The objects that were assumed to exist, with the ids of the objects that need them."""
    before: Collection[str]
    """The ids of objects that existed before: on the server, or built in."""
    unchanged: Collection[str]
    """The ids of manifests that match the server."""
    against_server: bool
    objects: StoreObjects
    view: View
    graph: Graph
    now: float
    ready: Mapping[str, float]
    """The ids that became and stayed ready, in order, with the virtual time."""

    def find(self, id_: str) -> Object | None:
        kind = kind_of(id_)
        if kind is None:
            return None
        _, namespace, name = id_.split("/", 2)
        return self.objects.find(kind, namespace, name)

    def made(self) -> list[Object]:
        """Return the objects that controllers created."""
        known = {*self.written, *self.assumed, *self.before}
        kinds = [kind for kind in KINDS.values() if kind.name not in TRANSIENT_KINDS]
        return [obj for kind in kinds for obj in self.objects.list(kind) if id_of(obj) not in known]

    def explain(self, id_: str) -> Why:
        return explain(id_, find=self.objects.find, view=self.view, graph=self.graph, now=self.now, file=self.file_of)

    def file_of(self, id_: str) -> str:
        """Return the FILE:LINE at which an object or its owner is declared; empty if it is on the server."""
        if id_ in self.before or id_ in self.unchanged:
            return ""
        if (manifest := self.written.get(id_)) is not None:
            return f"{manifest.source}:{manifest.line_number}"
        obj = self.find(id_)
        for owner in obj.metadata.owner_references if obj is not None else ():
            kind = KINDS.get(owner.kind)
            assert obj is not None
            if kind is not None:
                return self.file_of(kind.key(obj.metadata.namespace if kind.namespaced else "", owner.name))
        return ""


async def rehearse(
    manifests: Sequence[Manifest],
    *,
    namespace: str = DEFAULT_NAMESPACE,
    server: ServerState | None = None,
    controllers: Iterable[Reconciler] | None = None,
    start: float = EPOCH,
) -> Rehearsal:
    """Create the objects of manifests in a private store, and run the controllers to the fixpoint.

    `namespace` applies to objects that name none. Raises `ManifestError` with everything that a server would refuse.
    """
    clock = VirtualClock(start)
    registry = Registry(MemoryStore(), clock=clock.time)
    written = _by_id(manifests, namespace)
    there, unchanged = (starting_objects(server), unchanged_ids(server)) if server is not None else ({}, frozenset())
    await _seed(registry, there)
    await registry.start()
    try:
        objects, ready = StoreObjects(registry), _ReadyTimes(clock)
        kept = lasting_failures(objects, there, [id_ for id_ in written if id_ not in unchanged])
        apis = allowed_apis(server.objects if server is not None else {})
        end = objects.listen(KINDS.values(), ready.record)
        before = set(there) | {Namespace.api.key("", DEFAULT_NAMESPACE)}
        client = Client.local(registry, manager=MANAGER, namespace=namespace)
        assumed = _assumed_objects(written, before, ASSUMED_KINDS if server is None else server.assumed_kinds)
        for id_ in assumed:
            await client.create(_placeholder(id_))
        await apply_all(client, [manifest for id_, manifest in written.items() if id_ not in there])
        loop = ControlLoop(
            client,
            objects,
            simulated(all_controllers() if controllers is None else controllers, kept=kept, apis=apis),
            _NoEvents(),
            clock=clock,
            live=False,
        )
        await loop.run()
        end()
        before -= set(written)
        return Rehearsal(
            written,
            assumed,
            before,
            unchanged,
            server is not None,
            objects,
            loop.view,
            loop.graph,
            clock.now(),
            ready.times,
        )
    finally:
        await registry.stop()


def _by_id(manifests: Iterable[Manifest], namespace: str) -> dict[str, Manifest]:
    """Return the manifests by id. Raises ManifestError for duplicates, also where only one names the namespace."""
    written: dict[str, Manifest] = {}
    problems = []
    for manifest in manifests:
        known = written.setdefault(manifest_id(manifest, namespace), manifest)
        if known is not manifest:
            message = f'{manifest.kind.name} "{manifest.name}" is also at {known.source}:{known.line_number}'
            problems.append(Problem(manifest.source, manifest.line_number, 1, "metadata.name", message))
    if problems:
        raise ManifestError(problems)
    return written


def manifest_id(manifest: Manifest, namespace: str) -> str:
    """Return the id of the object that a manifest describes."""
    kind = manifest.kind
    return kind.key((manifest.namespace or namespace) if kind.namespaced else "", manifest.name)


class _NoEvents:
    """An event recorder that drops all events."""

    def record(self, about: Object, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:  # noqa: A002
        """Drop the event."""


class _ReadyTimes:
    """The times at which objects became ready, without those that did not stay ready."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.times: dict[str, float] = {}

    def record(self, kind: Kind, update: Update[Any]) -> None:
        id_ = kind.key(*update.key)
        if update.new is None or not is_ready(update.new):
            self.times.pop(id_, None)
        else:
            self.times.setdefault(id_, self._clock.now())


def is_ready(obj: Object) -> bool:
    """Report whether an object is ready or skipped."""
    return obj.readiness().state in ("Ready", "Skipped")


# The initial objects.


async def _seed(registry: Registry, there: Mapping[str, Json]) -> None:
    """Store objects unchanged, with uid and status. Their server has admitted them already."""
    for id_, obj in there.items():
        await registry.store.room()
        await registry.store.commit([Write(id_, 0, partial(_encode_at, obj))])


def _encode_at(obj: Json, revision: int) -> bytes:
    """Encode an object with the revision of this store."""
    return msgspec.json.encode({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}})


def _assumed_objects(
    written: Mapping[str, Manifest], before: Collection[str], kinds: Collection[Kind]
) -> dict[str, list[str]]:
    """Return objects of these kinds that are referred to and do not exist, each with the ids of its referrers."""
    found: dict[str, list[str]] = {}
    for id_, manifest in written.items():
        _, namespace, _ = id_.split("/", 2)
        used = {r.kind.key(namespace if r.kind.namespaced else "", r.name): r.kind for r in _references(manifest)}
        if namespace:
            used[Namespace.api.key("", namespace)] = Namespace.api
        for one, kind in used.items():
            if kind in kinds and one not in written and one not in before:
                found.setdefault(one, []).append(id_)
    return {id_: found[id_] for id_ in sorted(found)}


def _references(manifest: Manifest) -> list[Any]:
    return list(references(manifest.kind, manifest.object))


def _placeholder(id_: str) -> Json:
    kind = kind_of(id_)
    assert kind is not None
    _, namespace, name = id_.split("/", 2)
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name, **place}}


async def apply_all(client: Client, manifests: Iterable[Manifest]) -> None:
    """Apply manifests through the admission of a server, namespaces first. Raises `ManifestError`."""
    problems = []
    for manifest in sorted(manifests, key=lambda one: one.kind is not Namespace.api):
        try:
            await client.apply(manifest.object)
        except ApiError as error:
            problems.append(Problem(manifest.source, manifest.line_number, 1, "", error.message))
    if problems:
        raise ManifestError(problems)
