"""Plan the grants of a budget: the ledger and all demands in, a new ledger out.

- *Never over.* New grants fit into the budget. A budget that was lowered grants nothing until enough is free.
- *What runs counts.* A started instance uses its slot, granted or not, until it is gone. Nothing that runs is ended.
- *Slots are kept.* An owner keeps a slot while it has an instance of that size, or wants one: an instance that is
  recreated needs no new grant.
- *In order.* The owner that has waited longest gets what fits, and nobody behind it gets anything before it has all.
  A demand that would not fit into the whole budget is skipped.

Never: reads a clock or an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rota.api.cell import HOLDERS_MAX
from rota.control.quotas.amounts import Amount, Bound


class Slot(NamedTuple):
    """An owner and one size of its instances: the unit of the ledger."""

    kind: str
    name: str
    uid: str
    hash: str
    """The hash of the size."""


class Demand(NamedTuple):
    """The instances of one size that an owner has and wants."""

    slot: Slot
    size: Amount
    wanted: int = 0
    there: int = 0
    """The number of existing instances, gated or not."""
    running: int = 0
    """The number of existing instances without the quota gate."""
    since: float = 0.0
    """Creation time of the oldest gated instance."""


class Grant(NamedTuple):
    """An entry of the ledger."""

    number: int
    size: Amount


class Waiting(NamedTuple):
    """A demand that could not be granted in full."""

    slot: Slot
    number: int
    short: Sequence[str]
    """Resources that do not suffice; empty: it only waits behind others."""
    is_too_large: bool = False
    """True if one such instance takes more than the whole budget."""


class GrantPlan(NamedTuple):
    ledger: Mapping[Slot, Grant]
    used: Amount
    waiting: Sequence[Waiting]


def plan_grants(hard: Bound, ledger: Mapping[Slot, Grant], demands: Iterable[Demand]) -> GrantPlan:
    everyone = sorted(demands, key=lambda one: (one.since, one.slot))
    after: dict[Slot, Grant] = {}
    used = Amount()
    for demand in everyone:
        before = ledger.get(demand.slot)
        keep = max(demand.running, min(before.number if before is not None else 0, max(demand.there, demand.wanted)))
        if keep:
            after[demand.slot] = Grant(keep, demand.size)
            used = used.plus(demand.size, keep)
    waiting: list[Waiting] = []
    is_blocked = False
    for demand in everyone:
        has = after[demand.slot].number if demand.slot in after else 0
        need = demand.there - has
        if need <= 0:
            continue
        if hard.short(Amount(), demand.size):
            waiting.append(Waiting(demand.slot, need, hard.short(Amount(), demand.size), is_too_large=True))
            continue
        if is_blocked or (demand.slot not in after and len(after) >= HOLDERS_MAX):
            waiting.append(Waiting(demand.slot, need, ()))
            continue
        room = hard.room(used, demand.size)
        given = need if room is None else min(need, room)
        if given:
            after[demand.slot] = Grant(has + given, demand.size)
            used = used.plus(demand.size, given)
        if given < need:
            is_blocked = True
            waiting.append(Waiting(demand.slot, need - given, hard.short(used, demand.size)))
    return GrantPlan(after, used, waiting)
