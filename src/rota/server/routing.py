"""Kubernetes' URLs: the kind, namespace, name and subresource of a path."""

from __future__ import annotations

from typing import NamedTuple

from rota.api import Kind
from rota.api.served import SERVED

BY_PLURAL: dict[tuple[str, str], dict[str, Kind]] = {}
for _kind in SERVED:
    BY_PLURAL.setdefault((_kind.group, _kind.version), {})[_kind.plural] = _kind

NAMESPACE_PARTS = frozenset(("status", "finalize"))


class Route(NamedTuple):
    """The objects of a path of the object API. An empty `name` is the collection."""

    kind: Kind
    namespace: str
    name: str
    subresource: str


def route(path: str) -> Route | None:
    """Return the objects of a path; None if it is not one of the object API."""
    parts = path.split("/")
    if len(parts) > 3 and parts[1] == "api":
        group, version, rest = "", parts[2], parts[3:]
    elif len(parts) > 4 and parts[1] == "apis":
        group, version, rest = parts[2], parts[3], parts[4:]
    else:
        return None
    kinds = BY_PLURAL.get((group, version))
    if kinds is None or "" in rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in NAMESPACE_PARTS and not group):
        namespace, rest = rest[1], rest[2:]
    kind = kinds.get(rest[0])
    if kind is None or len(rest) > 3 or bool(namespace) > kind.namespaced:
        return None
    if kind.namespaced and not namespace and len(rest) > 1:
        return None
    return Route(kind, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else "")
