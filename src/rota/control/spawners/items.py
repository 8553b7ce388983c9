"""Items of a source, the name of the one Task of each, and the record of those that had one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from rota.control.instances.names import LABEL_LENGTH_MAX, TAIL_LENGTH, tailed

DELIVERIES_MAX = 500
"""Deliveries in the record of a webhook. Senders repeat recent ones only, and an existing Task is recognized, too."""


class Item(NamedTuple):
    realm: str
    """The namespace of the key: the same key in another realm is another item."""
    key: tuple[str, ...]
    """The identity of the item. It does not change with the content."""
    fields: Any
    """The content, for templates."""

    @property
    def shown(self) -> str:
        return "/".join(self.key)


def task_name(spawner: str, item: Item) -> str:
    """Return the name of an item's Task, which depends on spawner and item only. It ends in a hash of both."""
    return tailed(spawner, *item.key, kind=item.realm)


def tail_of(task: str) -> str:
    """Return the end of a Task's name, by which the record knows its item."""
    return task[-TAIL_LENGTH:]


def label_of(spawner: str) -> str:
    """Return the value of the label that selects the Tasks of a spawner."""
    return spawner if len(spawner) <= LABEL_LENGTH_MAX else tailed(spawner)


def extended_record(known: Sequence[str], new: Iterable[str], listed: Collection[str], most: int) -> list[str]:
    """Return the record with new entries, the newest last.

    Beyond `most` entries, the oldest are dropped that are not listed: without its entry, a listed item would get a
    second Task. A listing is never longer than the record.
    """
    record = [*dict.fromkeys((*known, *new))]
    excess = len(record) - most
    if excess <= 0:
        return record
    kept = []
    for one in record:
        if excess > 0 and one not in listed:
            excess -= 1
        else:
            kept.append(one)
    return kept[-most:]
