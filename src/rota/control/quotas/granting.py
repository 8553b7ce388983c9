"""Who gets how much of a budget: the ledger and all wishes in, a new ledger out.

- *Never over.* What is granted fits into the budget. A budget that was lowered grants nothing until enough is free.
- *What runs counts.* Whatever was started holds its slot, granted or not, until it is gone. Nothing that runs is ended.
- *Slots are kept.* An owner keeps a slot while an instance is there that has it, or while it wants one of that size: an
  instance that is made anew needs no new grant.
- *In order.* Who has waited longest gets what fits, and nobody behind it gets anything before it has all. What would
  not fit into the whole budget does not stand in the way.

Never: reads a clock or an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rota.api.cell import HOLDERS_MAX
from rota.control.quotas.amounts import Amount, Bound


class Slot(NamedTuple):
    """A size of one owner's instances."""

    kind: str
    name: str
    uid: str
    hash: str
    """Tells sizes apart."""


class Wish(NamedTuple):
    """What an owner has of a size, and wants."""

    slot: Slot
    size: Amount
    wanted: int = 0
    """Instances of this size that the owner is to have."""
    there: int = 0
    """Instances that are there, started or not."""
    running: int = 0
    """Of these, those that may run."""
    since: float = 0.0
    """Since when the oldest of the others waits."""


class Held(NamedTuple):
    """An entry of the ledger."""

    number: int
    size: Amount


class Waiting(NamedTuple):
    """A wish that the budget has too little for."""

    slot: Slot
    number: int
    short: Sequence[str]
    """What there is too little of. Empty: others waited before."""
    is_too_large: bool = False
    """One of it is more than the whole budget."""


class Granting(NamedTuple):
    """What is decided."""

    ledger: Mapping[Slot, Held]
    used: Amount
    waiting: Sequence[Waiting]


def grant(hard: Bound, ledger: Mapping[Slot, Held], wishes: Iterable[Wish]) -> Granting:
    """Decide who holds how much from now on."""
    everyone = sorted(wishes, key=lambda one: (one.since, one.slot))
    after: dict[Slot, Held] = {}
    used = Amount()
    for wish in everyone:
        before = ledger.get(wish.slot)
        keep = max(wish.running, min(before.number if before is not None else 0, max(wish.there, wish.wanted)))
        if keep:
            after[wish.slot] = Held(keep, wish.size)
            used = used.plus(wish.size, keep)
    waiting: list[Waiting] = []
    is_blocked = False
    for wish in everyone:
        has = after[wish.slot].number if wish.slot in after else 0
        need = wish.there - has
        if need <= 0:
            continue
        if hard.short(Amount(), wish.size):
            waiting.append(Waiting(wish.slot, need, hard.short(Amount(), wish.size), is_too_large=True))
            continue
        if is_blocked or (wish.slot not in after and len(after) >= HOLDERS_MAX):
            waiting.append(Waiting(wish.slot, need, ()))
            continue
        room = hard.room(used, wish.size)
        given = need if room is None else min(need, room)
        if given:
            after[wish.slot] = Held(has + given, wish.size)
            used = used.plus(wish.size, given)
        if given < need:
            is_blocked = True
            waiting.append(Waiting(wish.slot, need - given, hard.short(used, wish.size)))
    return Granting(after, used, waiting)
