"""What manifests would come to: a rehearsal in memory, on a clock that jumps, with the controllers there are.

Nothing here knows of particular kinds, so a plan grows with the controllers. The one exception: Secrets and Namespaces
that are used but not written are taken to be on the server, because people keep them there.
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
from rota.manifest.parse import Problem
from rota.manifest.plan_server import PASSING_KINDS, Server, apis_of, kept_of, there_of, unchanged_of
from rota.registry import ApiError, Registry
from rota.store import MemoryStore, Write

Json = dict[str, Any]

EPOCH = 1_704_067_200.0
"""When a plan takes place, in seconds since 1970: on the same day every day, so that it says the same."""
ASSUMED_KINDS = (Namespace.api, Secret.api)
MANAGER = "rota"
DEFAULT_NAMESPACE = "default"
SETTLED = ("Failed", "Skipped")


@dataclass(slots=True)
class Rehearsal:
    """Everything after the fixpoint."""

    written: Mapping[str, Manifest]
    """What is in the manifests, in the order of the files, by id."""
    assumed: Mapping[str, list[str]]
    """What was taken to be there, and the ids of what needs it."""
    before: Collection[str]
    """What was there before, by id: on the server, or always."""
    unchanged: Collection[str]
    """What is on the server as it is written here, by id."""
    against_server: bool
    objects: StoreObjects
    view: View
    graph: Graph
    now: float
    ready: Mapping[str, float]
    """What became ready and stayed so, in that order, and when by the clock."""

    def find(self, id_: str) -> Object | None:
        kind = kind_of(id_)
        if kind is None:
            return None
        _, namespace, name = id_.split("/", 2)
        return self.objects.find(kind, namespace, name)

    def made(self) -> list[Object]:
        """What controllers have made."""
        known = {*self.written, *self.assumed, *self.before}
        kinds = [kind for kind in KINDS.values() if kind.name not in PASSING_KINDS]
        return [obj for kind in kinds for obj in self.objects.list(kind) if id_of(obj) not in known]

    def explain(self, id_: str) -> Why:
        return explain(id_, find=self.objects.find, view=self.view, graph=self.graph, now=self.now, file=self.file_of)

    def file_of(self, id_: str) -> str:
        """Where an object, or what it is made for, is to be corrected, as FILE:LINE; empty: on the server."""
        if id_ in self.before or id_ in self.unchanged:
            return ""
        if (manifest := self.written.get(id_)) is not None:
            return f"{manifest.source}:{manifest.line}"
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
    server: Server | None = None,
    controllers: Iterable[Reconciler] | None = None,
    start: float = EPOCH,
) -> Rehearsal:
    """Make the objects of manifests in a store of their own, and run the controllers to the fixpoint.

    `namespace` is that of objects which name none. Raises `ManifestError` with everything that a server would refuse.
    """
    clock = VirtualClock(start)
    registry = Registry(MemoryStore(), clock=clock.time)
    written = _by_id(manifests, namespace)
    there, unchanged = (there_of(server), unchanged_of(server)) if server is not None else ({}, frozenset())
    await _seed(registry, there)
    await registry.start()
    try:
        objects, ready = StoreObjects(registry), _Ready(clock)
        kept = kept_of(objects, there, [id_ for id_ in written if id_ not in unchanged])
        apis = apis_of(server.objects if server is not None else {})
        end = objects.listen(KINDS.values(), ready.hear)
        before = set(there) | {Namespace.api.key("", DEFAULT_NAMESPACE)}
        client = Client.local(registry, manager=MANAGER, namespace=namespace)
        assumed = _missing(written, before, ASSUMED_KINDS if server is None else server.assumed_kinds)
        for id_ in assumed:
            await client.create(_placeholder(id_))
        await apply_all(client, [manifest for id_, manifest in written.items() if id_ not in there])
        loop = ControlLoop(
            client,
            objects,
            simulated(all_controllers() if controllers is None else controllers, kept=kept, apis=apis),
            _Silence(),
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
    """What is written, each once. That one names its namespace and another does not is no difference here."""
    written: dict[str, Manifest] = {}
    problems = []
    for manifest in manifests:
        known = written.setdefault(identify(manifest, namespace), manifest)
        if known is not manifest:
            message = f'{manifest.kind.name} "{manifest.name}" is also at {known.source}:{known.line}'
            problems.append(Problem(manifest.source, manifest.line, 1, "metadata.name", message))
    if problems:
        raise ManifestError(problems)
    return written


def identify(manifest: Manifest, namespace: str) -> str:
    """The node of what a manifest describes."""
    kind = manifest.kind
    return kind.key((manifest.namespace or namespace) if kind.namespaced else "", manifest.name)


class _Silence:
    """Takes events, and keeps none."""

    def record(self, about: Object, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:  # noqa: A002
        """Nobody is there to notice."""


class _Ready:
    """Keeps in which order objects became ready, and stayed so, and when."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.times: dict[str, float] = {}

    def hear(self, kind: Kind, update: Update[Any]) -> None:
        id_ = kind.key(*update.key)
        if update.new is None or not is_well(update.new):
            self.times.pop(id_, None)
        else:
            self.times.setdefault(id_, self._clock.now())


def is_well(obj: Object) -> bool:
    """Whether nothing more is expected of an object."""
    return obj.readiness().state in ("Ready", "Skipped")


# What is there to begin with.


async def _seed(registry: Registry, there: Mapping[str, Json]) -> None:
    """Put objects in as they are, with their uids and status: they were admitted where they come from."""
    for id_, obj in there.items():
        await registry.store.room()
        await registry.store.commit([Write(id_, 0, partial(_at, obj))])


def _at(obj: Json, revision: int) -> bytes:
    """An object in the store, where its version is the store's."""
    return msgspec.json.encode({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}})


def _missing(written: Mapping[str, Manifest], before: Collection[str], kinds: Collection[Kind]) -> dict[str, list[str]]:
    """What is used and neither written nor there, of these kinds, and by what."""
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
    """Through the same admission as on a server; namespaces first, as the others may be in them."""
    problems = []
    for manifest in sorted(manifests, key=lambda one: one.kind is not Namespace.api):
        try:
            await client.apply(manifest.object)
        except ApiError as error:
            problems.append(Problem(manifest.source, manifest.line, 1, "", error.message))
    if problems:
        raise ManifestError(problems)
