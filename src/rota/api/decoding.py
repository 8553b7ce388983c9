"""A cache of decoded objects. They are shared by all readers and must not be changed."""

from functools import cache, lru_cache
from typing import Annotated, Any, cast

import msgspec

from rota.api.kind import Kind
from rota.api.meta import ManagedFieldsEntry, Object, ObjectMeta
from rota.api.model import ModelMeta, doc

DECODED_OBJECTS_MAX = 4_096
"""Bound on the cached objects."""
LARGE_BYTES_MIN = 16 * 1024
LARGE_DECODED_MAX = 64
"""Bound on the cached objects from `LARGE_BYTES_MIN` up, which bounds the cache in bytes too."""


class _SharedMeta(ObjectMeta):
    """Metadata without managedFields, which are most of an object in memory and which no reader needs.

    A write without managedFields leaves them unchanged.
    """

    managed_fields: Annotated[list[ManagedFieldsEntry], doc("Not read.")] = msgspec.field(
        name="-managedFields", default_factory=list
    )


@cache
def _shared_type(type_: type[Object]) -> type[Object]:
    body: dict[str, Any] = {"__annotations__": {"metadata": _SharedMeta}, "__module__": type_.__module__}
    return cast("type[Object]", ModelMeta(type_.__name__, (type_,), body))


def decoded(kind: Kind, value: bytes) -> Object:
    """Return the object of its encoded bytes, from the cache if possible."""
    return _small(kind, value) if len(value) < LARGE_BYTES_MIN else _large(kind, value)


def keep_decoded(kind: Kind, value: bytes, obj: Object) -> None:
    """Cache an object for its encoded bytes, so that `decoded` need not decode them.

    It must equal what the bytes decode to, and be made from an object that `decoded` returned.
    """
    if len(value) < LARGE_BYTES_MIN:
        _made[value] = obj
        _small(kind, value)
        _made.pop(value, None)


_made: dict[bytes, Object] = {}
"""Objects that `keep_decoded` hands to `_small`, which then does not decode them."""


@lru_cache(maxsize=DECODED_OBJECTS_MAX)
def _small(kind: Kind, value: bytes) -> Object:
    return _made.pop(value, None) or decoded_anew(kind, value)


@lru_cache(maxsize=LARGE_DECODED_MAX)
def _large(kind: Kind, value: bytes) -> Object:
    return decoded_anew(kind, value)


def decoded_anew(kind: Kind, value: bytes) -> Object:
    """Decode an object without caching it."""
    return _shared_type(kind.type).decode(value)
