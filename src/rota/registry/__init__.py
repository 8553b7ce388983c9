"""The API's semantics, once, for every way in.

Promises: every verb means what it means in Kubernetes, whoever calls it: defaults, rules, generation, ownership of
fields, status kept apart, preconditions, finalizers, owners, namespaces. A refused write changes nothing; an answer,
also a refusal, rests on durable state. Objects go in as JSON dicts that the registry may keep, and come out as the
bytes that are stored, encoded once.

Never: speaks HTTP, knows callers or their rights, looks at a kind's meaning beyond what the kind declares.
"""

from rota.registry.errors import ApiError
from rota.registry.options import Answer, DeleteOptions, Listing, ListOptions, WatchEvent, WatchOptions, WriteOptions
from rota.registry.registry import Registry

__all__ = [
    "Answer",
    "ApiError",
    "DeleteOptions",
    "ListOptions",
    "Listing",
    "Registry",
    "WatchEvent",
    "WatchOptions",
    "WriteOptions",
]
