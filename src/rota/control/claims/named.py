"""Claims by their uid, and found by their name as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from rota.api import Claim
from rota.client import Key
from rota.control.holds.members import PoolKey

V = TypeVar("V")


class Wanted(NamedTuple):
    """A claim that wants an instance, or has one."""

    pool: PoolKey
    key: Key


class ByName(Generic[V]):
    """What is known of claims. Of one name there may be several for a moment: one is gone, another is being made."""

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._keys: dict[str, Key] = {}
        self._uids: dict[Key, list[str]] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, uid: str) -> V | None:
        return self._values.get(uid)

    def put(self, uid: str, key: Key, value: V) -> None:
        self.pop(uid)
        self._values[uid], self._keys[uid] = value, key
        self._uids.setdefault(key, []).append(uid)

    def pop(self, uid: str) -> V | None:
        key = self._keys.pop(uid, None)
        if key is None:
            return None
        uids = self._uids[key]
        uids.remove(uid)
        if not uids:
            del self._uids[key]
        return self._values.pop(uid)

    def of(self, key: Key) -> list[str]:
        """The uids of those that have a name."""
        return list(self._uids.get(key, ()))


def pool_of(claim: Claim) -> PoolKey:
    return PoolKey(claim.metadata.namespace, claim.spec.pool_ref.name)


def key_of(claim: Claim) -> Key:
    return Key(claim.metadata.namespace, claim.metadata.name)
