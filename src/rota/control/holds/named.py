"""Values of objects, found by an id or by the name of the object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from rota.client import Key

V = TypeVar("V")


class ByName(Generic[V]):
    """Values by id. Two may belong to one name for a moment, while a gone object is being recreated."""

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
        """Return the ids of the objects of this name."""
        return list(self._ids.get(key, ()))

    def key_of(self, id_: str) -> Key | None:
        return self._keys.get(id_)

    def drop(self, key: Key) -> None:
        """Remove all values of this name."""
        for id_ in self.of(key):
            self.pop(id_)
