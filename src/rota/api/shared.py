"""Objects that several look at: decoded once. What is had from here must not be changed."""

from __future__ import annotations

from functools import lru_cache

from rota.api.kind import Kind
from rota.api.meta import Object

DECODED_OBJECTS_MAX = 4_096
"""Objects that are kept decoded."""


@lru_cache(maxsize=DECODED_OBJECTS_MAX)
def decoded(kind: Kind, value: bytes) -> Object:
    return kind.type.decode(value)
