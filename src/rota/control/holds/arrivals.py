"""The order in which objects came that nobody has looked at yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from rota.api import Object

T = TypeVar("T", bound=Object)


def by_creation(objects: Iterable[T]) -> list[T]:
    """Sort new objects by when they were created: by the second, then by the revision that they still have."""
    return sorted(objects, key=_created)


def _created(obj: Object) -> tuple[float, int]:
    meta = obj.metadata
    created = meta.creation_timestamp.timestamp() if meta.creation_timestamp is not None else 0.0
    return created, int(meta.resource_version) if meta.resource_version.isdecimal() else 0
