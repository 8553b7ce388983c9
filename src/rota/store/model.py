"""What goes in and out of a store: entries, writes, events, pages.

They are `msgspec` structs because one of each is made for every write, and no other constructor is as cheap. Those
that live as long as an object does are kept out of the garbage collector: they hold only strings, bytes and numbers,
and every full collection would otherwise walk all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct


class Entry(Struct, frozen=True, gc=False):
    """One object at one revision. For a delete: its final state, at the revision of the deletion."""

    key: str
    value: bytes
    rev: int


class Write(Struct, frozen=True):
    """One change that a caller asks for.

    `expect` is the revision that must be there: None for whatever is there, 0 for nothing. `value` gets the revision
    that the write was given and returns the bytes; for a delete these are the final state, which tombstone and event
    carry. A delete of what does not exist is a conflict, whatever it expects.
    """

    key: str
    expect: int | None
    value: Callable[[int], bytes]
    delete: bool = False


class Event(Struct, gc=False, eq=False):
    """One change that happened. `prev` is the state before it, None (and `prev_rev` 0) when this created the object.

    `cache` is free for the layer above, to decode an event once for all watchers. It must not refer back to the event:
    events are invisible to the garbage collector.
    """

    rev: int
    key: str
    value: bytes
    deleted: bool
    prev: bytes | None
    prev_rev: int
    cache: Any = None


class Page(Struct, frozen=True):
    """A part of a listing: of the snapshot at `revision`, with `remaining` more matches after it."""

    entries: list[Entry]
    revision: int
    more: bool
    remaining: int
