"""The semantics of the API: what each verb does to the objects in a store.

- *As in Kubernetes.* Every verb has its meaning there, whoever calls it: defaults, rules, generation, field ownership,
  status, preconditions, finalizers, owners, namespaces.
- *All or nothing.* A refused write changes nothing, also as a part of an atomic batch.
- *No lost races.* A write decides on the newest accepted state, and nothing comes in between: of concurrent patches
  none is lost, and none is refused because of another.
- *Answers are durable.* An answer, also a refusal, is given once the state that it rests on is durable.
- *Encoded once.* Objects are returned as the bytes that are stored.

Never: speaks HTTP, knows its callers or their tokens, looks at the meaning of a kind beyond what the kind declares.
Objects are passed in as JSON dicts, which the registry may keep.
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
