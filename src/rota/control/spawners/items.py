"""Items: what a source gives, and the name of the one Task that each may have."""

from __future__ import annotations

from typing import Any, NamedTuple

from rota.control.instances.names import LABEL_LENGTH_MAX, TAIL_LENGTH, tailed


class Item(NamedTuple):
    """One thing that becomes a Task."""

    realm: str
    """Where it is from: the same key from elsewhere is another item."""
    key: tuple[str, ...]
    """What it is, for as long as it is that."""
    fields: Any
    """What a template can put in."""

    @property
    def shown(self) -> str:
        return "/".join(self.key)


def task_name(spawner: str, item: Item) -> str:
    """The name of an item's Task: the same whoever makes it, and whenever. It ends in a hash of all that counts."""
    return tailed(spawner, *item.key, kind=item.realm)


def tail_of(task: str) -> str:
    """By which the item of a Task is remembered when the Task is gone."""
    return task[-TAIL_LENGTH:]


def label_of(spawner: str) -> str:
    """The value of the label that selects the Tasks of a spawner."""
    return spawner if len(spawner) <= LABEL_LENGTH_MAX else tailed(spawner)
