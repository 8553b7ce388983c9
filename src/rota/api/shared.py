"""Objects that several look at: decoded once. What is had from here must not be changed."""

from functools import cache, lru_cache
from typing import Annotated, Any, cast

import msgspec

from rota.api.kind import Kind
from rota.api.meta import ManagedFieldsEntry, Object, ObjectMeta
from rota.api.model import ModelMeta, doc

DECODED_OBJECTS_MAX = 4_096
"""Objects that are kept decoded."""
LARGE_BYTES_MIN = 16 * 1024
LARGE_DECODED_MAX = 64
"""Objects of such a size that are kept decoded: so all of them together have a bound in bytes, too."""


class _SharedMeta(ObjectMeta):
    """Without who owns which fields: that is most of what an object has in memory, and nobody here looks at it.

    What is written back without it leaves it as it is.
    """

    managed_fields: Annotated[list[ManagedFieldsEntry], doc("Not read.")] = msgspec.field(
        name="-managedFields", default_factory=list
    )


@cache
def _shared_type(type_: type[Object]) -> type[Object]:
    body: dict[str, Any] = {"__annotations__": {"metadata": _SharedMeta}, "__module__": type_.__module__}
    return cast("type[Object]", ModelMeta(type_.__name__, (type_,), body))


def decoded(kind: Kind, value: bytes) -> Object:
    return _small(kind, value) if len(value) < LARGE_BYTES_MIN else _large(kind, value)


def keep_decoded(kind: Kind, value: bytes, obj: Object) -> None:
    """Keep an object beside its bytes, made together with them, so that `decoded` need not decode those.

    It must be what they would be decoded to: made from an object that `decoded` returned.
    """
    if len(value) < LARGE_BYTES_MIN:
        _made[value] = obj
        _small(kind, value)
        _made.pop(value, None)


_made: dict[bytes, Object] = {}
"""Objects on their way into the cache."""


@lru_cache(maxsize=DECODED_OBJECTS_MAX)
def _small(kind: Kind, value: bytes) -> Object:
    return _made.pop(value, None) or decoded_anew(kind, value)


@lru_cache(maxsize=LARGE_DECODED_MAX)
def _large(kind: Kind, value: bytes) -> Object:
    return decoded_anew(kind, value)


def decoded_anew(kind: Kind, value: bytes) -> Object:
    """For what is looked at once: it pushes nothing else out."""
    return _shared_type(kind.type).decode(value)
