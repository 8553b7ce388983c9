"""Conversion between the served versions of a kind and its stored form. Pure.

Versions differ in the names of top-level fields only. managedFields have the names of the version that their manager
used. As on Kubernetes, which converts between versions of one group only, a write through a version
drops the entries of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.api import Kind
from rota.api.served import OTHER_VERSIONS
from rota.registry.managed import Entry

Object = dict[str, Any]
SEVERAL = frozenset(kind.storage.bucket for kind in OTHER_VERSIONS.values())
"""Buckets of the kinds that are served in several versions."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def shown(kind: Kind, value: bytes) -> bytes:
    """Return a stored object in the version of a kind, as JSON."""
    return value if kind.stored is None else _encode(outward(kind, _decode(value)))


def outward(kind: Kind, obj: Object) -> Object:
    """Return a stored object in the version of a kind. It shares values."""
    if kind.stored is None:
        return obj
    names = {stored: name for name, stored in kind.renamed.items()}
    framed = {names.get(name, name): value for name, value in obj.items()}
    return {**framed, "apiVersion": kind.api_version, "kind": kind.name}


def inward(kind: Kind, obj: Object) -> Object:
    """Return an object of a version in its stored form. It shares values."""
    if kind.stored is None:
        return obj
    framed = {kind.renamed.get(name, name): value for name, value in obj.items()}
    return {**framed, "apiVersion": kind.stored.api_version, "kind": kind.stored.name}


def managed_inward(version: Kind, managed: list[Entry]) -> list[Entry]:
    """Return the entries written through a version, in the names of the stored form."""
    if version.storage.bucket not in SEVERAL:
        return managed
    own = [each for each in managed if each.get("apiVersion") == version.api_version]
    return [_renamed(each, version.renamed) for each in own]


def managed_outward(version: Kind, managed: list[Entry]) -> list[Entry]:
    """Return entries in the names of the version."""
    if version.stored is None:
        return managed
    names = {stored: name for name, stored in version.renamed.items()}
    return [_renamed(each, names) for each in managed]


def _renamed(entry: Entry, names: Mapping[str, str]) -> Entry:
    fields = entry.get("fieldsV1")
    if not isinstance(fields, dict) or not names:
        return entry
    return {**entry, "fieldsV1": {_element(element, names): below for element, below in fields.items()}}


def _element(element: str, names: Mapping[str, str]) -> str:
    return f"f:{names[element[2:]]}" if element.startswith("f:") and element[2:] in names else element


def path_outward(kind: Kind, path: str) -> str:
    """Return a path of the stored form, such as `.message`, in the names of a version."""
    first, dot, rest = path.removeprefix(".").partition(".")
    names = {stored: name for name, stored in kind.renamed.items()}
    return f".{names.get(first, first)}{dot}{rest}" if path.startswith(".") else path
