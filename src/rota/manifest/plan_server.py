"""What a plan that goes on from a server takes over from there: what exists, and what stays as it failed."""

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

PASSING_KINDS = frozenset(("Event", "Lease"))
"""Kinds that tell what goes on, and are not what exists."""
MARKS = ("labels", "annotations")


@dataclass(frozen=True, slots=True)
class Server:
    """What is on a server, for a plan that goes on from there. Objects are by id."""

    objects: Mapping[str, Json]
    """What is there now."""
    planned: Mapping[str, Json]
    """What it would make of each manifest."""
    assumed_kinds: Collection[Kind] = ()
    """Kinds that cannot be read there."""


def there_of(server: Server) -> dict[str, Json]:
    """The objects that a plan begins with: those on the server, as it would make them of the manifests."""
    kept = {id_: obj for id_, obj in server.objects.items() if obj["kind"] not in PASSING_KINDS}
    changed = {id_: obj for id_, obj in server.planned.items() if id_ in server.objects}
    return {**kept, **changed}


def unchanged_of(server: Server) -> frozenset[str]:
    """The ids of manifests that ask for what the server has."""
    planned = server.planned.items()
    return frozenset(
        id_ for id_, obj in planned if id_ in server.objects and _asked(obj) == _asked(server.objects[id_])
    )


def _asked(obj: Json) -> Json:
    fields = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    return {**fields, "metadata": {name: obj["metadata"].get(name) or {} for name in MARKS}}


def kept_of(objects: Objects, there: Mapping[str, Json], touched: Sequence[str]) -> frozenset[str]:
    """The uids of what is not ready on a server for a lasting reason.

    What is touched by the plan, or refers to something that is, however far away, may go well: it is left out.
    """
    referrers: dict[str, list[str]] = {}
    for id_, obj in there.items():
        kind, namespace = kind_of(id_), id_.split("/", 2)[1]
        for one in references(kind, obj) if kind is not None else ():
            referrers.setdefault(one.kind.key(namespace if one.kind.namespaced else "", one.name), []).append(id_)
    coming, seen = list(touched), set(touched)
    for id_ in coming:
        fresh = [one for one in dict.fromkeys(referrers.get(id_, ())) if one not in seen]
        seen.update(fresh)
        coming += fresh
    return frozenset(obj["metadata"]["uid"] for id_, obj in there.items() if id_ not in seen and _lasts(objects, id_))


def _lasts(objects: Objects, id_: str) -> bool:
    kind = kind_of(id_)
    _, namespace, name = id_.split("/", 2)
    obj = objects.find(kind, namespace, name) if kind is not None else None
    return obj is not None and is_persistent(obj)


def apis_of(there: Mapping[str, Json]) -> Apis:
    """The APIs that spawners may use: those that every server has, and those that spawners there have polled."""
    spawners = [obj for obj in there.values() if obj["kind"] == TaskSpawner.api.name]
    polled = [obj["spec"]["source"].get("github") or {} for obj in spawners if _is_polled(obj)]
    return Apis(source["apiURL"] for source in polled if source.get("apiURL"))


def _is_polled(spawner: Json) -> bool:
    """Whether the API that a spawner names now has been asked."""
    status = spawner.get("status") or {}
    is_current = status.get("observedGeneration") == spawner["metadata"].get("generation")
    return is_current and bool(status.get("lastPollTime"))
