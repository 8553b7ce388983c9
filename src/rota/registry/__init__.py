"""The API's semantics, once, for every way in.

Promises: every verb means what it means in Kubernetes, whoever calls it: defaults, rules, generation, ownership of
fields, status kept apart, preconditions, finalizers, owners, namespaces. A refused write changes nothing; an answer,
also a refusal, rests on durable state. Objects go in as JSON dicts that the registry may keep, and come out as the
bytes that are stored, encoded once.

Never: speaks HTTP, knows callers or their rights, looks at a kind's meaning beyond what the kind declares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.registry.errors import ApiError
from rota.registry.options import (
    Answer,
    DeleteOptions,
    Listing,
    ListOptions,
    Operation,
    WatchEvent,
    WatchOptions,
    WriteOptions,
)

if TYPE_CHECKING:
    from rota.registry.registry import Registry

__all__ = [
    "Answer",
    "ApiError",
    "DeleteOptions",
    "ListOptions",
    "Listing",
    "Operation",
    "Registry",
    "WatchEvent",
    "WatchOptions",
    "WriteOptions",
]


def __getattr__(name: str) -> Any:
    """Import the registry itself when it is first used: a command needs its errors and options alone."""
    if name != "Registry":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rota.registry.registry import Registry

    globals()[name] = Registry
    return Registry
