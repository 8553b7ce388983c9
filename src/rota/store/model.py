"""Entries, writes, events and pages.

They are `msgspec` structs because one of each is made for every write, and these have the cheapest constructor. Those
that live as long as an object are not tracked by the garbage collector: they hold only strings, bytes and numbers,
and every full collection would otherwise visit all of them.
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
    """A requested change.

    `expect` is the expected current revision: None for any, 0 for a key that must not exist. `value` gets the revision
    of the write and returns the bytes; for a delete these are the final state, which the tombstone and the event
    have. A delete of a missing key is a conflict, whatever it expects.
    """

    key: str
    expect: int | None
    value: Callable[[int], bytes]
    delete: bool = False


class Event(Struct, gc=False, eq=False):
    """A change that happened. `prev` is the state before it; None, with `prev_rev` 0, for a creation.

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
    """A page of a listing of the snapshot at `revision`, with `remaining` further matches."""

    entries: list[Entry]
    revision: int
    more: bool
    remaining: int
