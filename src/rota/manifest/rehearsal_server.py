"""The state of a server that a rehearsal starts from: its objects, and the failures that last."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.api import Kind, TaskSpawner
from rota.api.references import references
from rota.control.persistent_reasons import is_persistent
from rota.control.spawners.apis import Apis
from rota.engine import Objects
from rota.engine.references import kind_of

Json = dict[str, Any]

TRANSIENT_KINDS = frozenset(("Event", "Lease"))
"""Kinds that record activity and are left out of a rehearsal."""
COMPARED_METADATA = ("labels", "annotations")


@dataclass(frozen=True, slots=True)
class ServerState:
    """The objects of a server, by id."""

    objects: Mapping[str, Json]
    """The live objects."""
    planned: Mapping[str, Json]
    """The result of a dry run of each manifest."""
    assumed_kinds: Collection[Kind] = ()
    """Kinds that may not be read. Objects of them are assumed to exist."""


def starting_objects(server: ServerState) -> dict[str, Json]:
    """Return the objects that a rehearsal starts with: the live ones, changed as the manifests would change them."""
    kept = {id_: obj for id_, obj in server.objects.items() if obj["kind"] not in TRANSIENT_KINDS}
    changed = {id_: obj for id_, obj in server.planned.items() if id_ in server.objects}
    return {**kept, **changed}


def unchanged_ids(server: ServerState) -> frozenset[str]:
    """Return the ids of manifests that match the server."""
    planned = server.planned.items()
    return frozenset(
        id_ for id_, obj in planned if id_ in server.objects and _declared(obj) == _declared(server.objects[id_])
    )


def _declared(obj: Json) -> Json:
    fields = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    return {**fields, "metadata": {name: obj["metadata"].get(name) or {} for name in COMPARED_METADATA}}


def lasting_failures(objects: Objects, there: Mapping[str, Json], touched: Sequence[str]) -> frozenset[str]:
    """Return the uids of objects that are not ready on the server for a lasting reason.

    Objects that the plan changes, or that refer to one directly or not, may recover: they are left out.
    """
    referrers: dict[str, list[str]] = {}
    for id_, obj in there.items():
        kind, namespace = kind_of(id_), id_.split("/", 2)[1]
        for one in references(kind, obj) if kind is not None else ():
            referrers.setdefault(one.kind.key(namespace if one.kind.namespaced else "", one.name), []).append(id_)
    coming, known = list(touched), set(touched)
    for id_ in coming:
        fresh = [one for one in dict.fromkeys(referrers.get(id_, ())) if one not in known]
        known.update(fresh)
        coming += fresh
    return frozenset(
        obj["metadata"]["uid"] for id_, obj in there.items() if id_ not in known and _has_lasting_failure(objects, id_)
    )


def _has_lasting_failure(objects: Objects, id_: str) -> bool:
    kind = kind_of(id_)
    _, namespace, name = id_.split("/", 2)
    obj = objects.find(kind, namespace, name) if kind is not None else None
    return obj is not None and is_persistent(obj)


def allowed_apis(there: Mapping[str, Json]) -> Apis:
    """Return the APIs that spawners may use: the built-in ones, and those that spawners of the server have polled."""
    spawners = [obj for obj in there.values() if obj["kind"] == TaskSpawner.api.name]
    polled = [obj["spec"]["source"].get("github") or {} for obj in spawners if _is_polled(obj)]
    return Apis(source["apiURL"] for source in polled if source.get("apiURL"))


def _is_polled(spawner: Json) -> bool:
    """Report whether a spawner has polled the API that it names now."""
    status = spawner.get("status") or {}
    is_current = status.get("observedGeneration") == spawner["metadata"].get("generation")
    return is_current and bool(status.get("lastPollTime"))
