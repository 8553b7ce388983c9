"""The instances of a namespace by owner and size, kept up to date from watch events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rota.api import Instance, QuotaClaim
from rota.control.cells.names import CELL_UID
from rota.control.instances import Size
from rota.control.instances.names import controller_of
from rota.control.instances.reasons import QUOTA_GATE
from rota.control.quotas.amounts import Amount, amount_of
from rota.control.quotas.granting import Demand, Grant, Slot


class Counted(NamedTuple):
    slot: Slot
    size: Amount
    is_gated: bool
    ordinal: int
    since: float
    is_reported: bool = False
    """True if a cell has reported it: its existence and size are as trustworthy as the cell."""


class Tally:
    """The instances and QuotaClaims of one namespace."""

    def __init__(
        self, size_of: Callable[[Instance], Size], is_charged: Callable[[Instance], bool] = lambda instance: True
    ) -> None:
        self._size_of = size_of
        self._is_charged = is_charged
        self._counted: dict[str, Counted] = {}
        """The counted instances, by name."""
        self._slots: dict[Slot, set[str]] = {}
        self._wanted: dict[str, tuple[str, dict[str, int]]] = {}
        """The owner's uid and the number of instances of each size, by the name of the QuotaClaim."""

    def clear(self) -> None:
        self._counted.clear()
        self._slots.clear()

    def count(self, instance: Instance) -> bool:
        """Count an instance as it is now. Returns whether the tally has changed."""
        if not self._is_charged(instance):
            return False
        name, now = instance.metadata.name, self._counted_as(instance)
        before = self._counted.get(name)
        if before == now:
            return False
        if before is not None:
            self._leave(before, name)
        self._counted[name] = now
        self._slots.setdefault(now.slot, set()).add(name)
        return True

    def drop(self, name: str) -> bool:
        """Remove an instance. Returns whether it was counted."""
        before = self._counted.pop(name, None)
        if before is None:
            return False
        self._leave(before, name)
        return True

    def _leave(self, counted: Counted, name: str) -> None:
        names = self._slots[counted.slot]
        names.discard(name)
        if not names:
            del self._slots[counted.slot]

    def claim(self, claim: QuotaClaim) -> bool:
        """Take a QuotaClaim as it is now. Returns whether its demand has changed."""
        now = claim.spec.owner.uid, {one.hash: one.count for one in claim.spec.slots}
        if self._wanted.get(claim.metadata.name) == now:
            return False
        self._wanted[claim.metadata.name] = now
        return True

    def drop_claim(self, name: str) -> bool:
        return self._wanted.pop(name, None) is not None

    def demands(self, ledger: Mapping[Slot, Grant]) -> Iterable[Demand]:
        """Return the demand for each slot, also for slots of the ledger without an instance."""
        wanted = dict(self._wanted.values())
        there_of: dict[str, int] = {}
        for slot, names in self._slots.items():
            there_of[slot.uid] = there_of.get(slot.uid, 0) + len(names)
        for slot in {**dict.fromkeys(self._slots), **dict.fromkeys(ledger)}:
            there = [self._counted[name] for name in self._slots.get(slot, ())]
            gated = [one.since for one in there if one.is_gated]
            # Its instances of other sizes are part of the number that it wants.
            others = there_of.get(slot.uid, 0) - len(there)
            claimed = wanted.get(slot.uid)
            count, running = len(there), len(there) - len(gated)
            if claimed is not None and any(one.is_reported for one in there):
                # A cell cannot charge a tenant for more than the hub has asked of the cell, now or before.
                most = max(claimed.get(slot.hash, 0), ledger[slot].number if slot in ledger else 0)
                count, running = min(count, most), min(running, most)
            yield Demand(
                slot,
                there[0].size if there else ledger[slot].size,
                wanted=max(0, sum((claimed or {}).values()) - others),
                there=count,
                running=running,
                since=min(gated, default=0.0),
            )

    def gated(self, slot: Slot) -> list[str]:
        """Return the names of the gated instances of a slot, in the order in which their gates are opened."""
        names = (name for name in self._slots.get(slot, ()) if self._counted[name].is_gated)
        return sorted(names, key=lambda name: (self._counted[name].ordinal, name))

    def running(self, slot: Slot) -> int:
        return sum(not self._counted[name].is_gated for name in self._slots.get(slot, ()))

    def _counted_as(self, instance: Instance) -> Counted:
        size = self._size_of(instance)
        created = instance.metadata.creation_timestamp
        return Counted(
            slot_of(instance, size),
            amount_of(size),
            is_gated(instance),
            instance.spec.ordinal,
            created.timestamp() if created is not None else 0.0,
            CELL_UID in instance.metadata.annotations,
        )


def slot_of(instance: Instance, size: Size) -> Slot:
    """Return the slot of an instance. An instance without an owner has one of its own."""
    owner = controller_of(instance)
    if owner is None:
        return Slot(Instance.api.name, instance.metadata.name, instance.metadata.uid, size.hash())
    return Slot(owner.kind, owner.name, owner.uid, size.hash())


def is_gated(instance: Instance) -> bool:
    """Report whether an instance waits for the quota of its own plane."""
    return any(gate.name == QUOTA_GATE for gate in instance.spec.scheduling_gates)
