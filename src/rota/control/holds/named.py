"""Things of objects, by an id of their own, and found by the name of the object as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from rota.client import Key

V = TypeVar("V")


class ByName(Generic[V]):
    """Values by id. Of one name there may be several for a moment: one is gone, another is being made."""

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._keys: dict[str, Key] = {}
        self._ids: dict[Key, list[str]] = {}

    def __contains__(self, id_: str) -> bool:
        return id_ in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, id_: str) -> V | None:
        return self._values.get(id_)

    def put(self, id_: str, key: Key, value: V) -> None:
        self.pop(id_)
        self._values[id_], self._keys[id_] = value, key
        self._ids.setdefault(key, []).append(id_)

    def pop(self, id_: str) -> V | None:
        key = self._keys.pop(id_, None)
        if key is None:
            return None
        ids = self._ids[key]
        ids.remove(id_)
        if not ids:
            del self._ids[key]
        return self._values.pop(id_)

    def of(self, key: Key) -> list[str]:
        """The ids of those that have a name."""
        return list(self._ids.get(key, ()))

    def key_of(self, id_: str) -> Key | None:
        return self._keys.get(id_)

    def drop(self, key: Key) -> None:
        """Forget the object of this name, which is gone."""
        for id_ in self.of(key):
            self.pop(id_)
