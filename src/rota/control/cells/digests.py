"""Digests of the instances of each deployment, equal at the hub and in the cell if both know the same instances.

Each change of an instance updates them, so that a comparison takes as long for a thousand instances as for one.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from rota.api import Instance, Object
from rota.control.cells.names import CELL_UID
from rota.control.instances.names import controller_of

HASH_BYTES = 8

_encode = msgspec.json.Encoder(order="deterministic").encode


def digest_of(instance: Instance) -> int:
    """Return the digest of one instance, the same for the instance in its cell and for the hub's copy."""
    meta = instance.metadata
    uid = meta.annotations.get(CELL_UID, meta.uid)
    content = b"\0".join((meta.name.encode(), uid.encode(), _encode(instance.status)))
    return int.from_bytes(blake2b(content, digest_size=HASH_BYTES).digest(), "big")


class Digests:
    """The digest of each deployment, by its uid. `update` takes every change of an instance."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, int]] = {}

    def update(self, old: Object | None, new: Object | None) -> None:
        if isinstance(old, Instance):
            self._add(old, -1)
        if isinstance(new, Instance):
            self._add(new, 1)

    def _add(self, instance: Instance, sign: int) -> None:
        owner = controller_of(instance)
        if owner is None:
            return
        count, sum_ = self._sums.get(owner.uid, (0, 0))
        if count + sign:
            self._sums[owner.uid] = (count + sign, sum_ ^ digest_of(instance))
        else:
            self._sums.pop(owner.uid, None)

    def of(self, owner: str) -> str:
        count, sum_ = self._sums.get(owner, (0, 0))
        return f"{count}-{sum_:016x}"
