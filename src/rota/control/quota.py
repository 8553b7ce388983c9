"""The Quota controller: it lets the instances of a namespace run as far as the budget allows.

The status of the Quota is the ledger. One write of it, with the revision that was read as its precondition, decides.
The rest follows from the ledger and is repeated after a crash: the status of QuotaClaims, and the gates of instances,
which are opened only after the ledger has granted them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec

from rota.api import Condition, Instance, InstanceType, Object, Quota, QuotaClaim
from rota.api.cell import SIZES_MAX, WAITING_MAX, QuotaGrant, QuotaHolder, QuotaStatus, QuotaWaiting
from rota.client import Key
from rota.control.gate import status_of, with_conditions
from rota.control.quotas.amounts import bound_of, parsed, used_of
from rota.control.quotas.asking import QUOTA_NAME, is_charged_here
from rota.control.quotas.gates import open_gate
from rota.control.quotas.granting import Grant, GrantPlan, Slot, Waiting, plan_grants
from rota.control.quotas.tally import Tally, is_gated
from rota.control.sizes import counted_of
from rota.control.writing import unless_overtaken
from rota.engine import DONE, Context, ObjectReconciler, Outcome, Watch
from rota.engine.objects import Objects

ENFORCED = "Enforced"
GRANTED = "Granted"
NAMED_MAX = 3
"""Holders that a message names."""


class Quotas(ObjectReconciler[Quota]):
    """Keeps the ledgers of all namespaces, and opens the gates of what is granted."""

    owns = (Instance, QuotaClaim)
    """These kinds have no owner reference to a Quota. `wants` maps each object to the Quota of its namespace."""

    def __init__(self) -> None:
        super().__init__(Quota)
        self._tallies: dict[str, Tally] = {}
        self._wake: Callable[[Key], None] = lambda key: None
        self.watches = (Watch(InstanceType, self._by_type),)

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        self._wake = wake
        self._tallies.clear()
        return super().begin(wake)

    def wants(self, old: Object | None, new: Object | None) -> bool:
        changed = new or old
        if not isinstance(changed, Instance | QuotaClaim):
            return True
        meta = changed.metadata
        tally = self._tallies.get(meta.namespace)
        if tally is None:
            # The gate of a quota that was deleted would never be opened.
            if isinstance(new, Instance) and is_gated(new):
                self._wake(Key(meta.namespace, QUOTA_NAME))
            return True
        if isinstance(changed, Instance):
            matters = tally.drop(meta.name) if new is None else tally.count(changed)
        else:
            matters = tally.drop_claim(meta.name) if new is None else tally.claim(changed)
        if matters:
            self._wake(Key(meta.namespace, QUOTA_NAME))
        return True

    def _by_type(self, type_: InstanceType) -> list[Key]:
        """Discard all tallies: sizes may have changed."""
        namespaces = list(self._tallies)
        self._tallies.clear()
        return [Key(namespace, QUOTA_NAME) for namespace in namespaces]

    async def gone(self, context: Context, key: Key) -> Outcome:
        """Open the gates of all instances in the namespace of a deleted Quota."""
        if key.name != QUOTA_NAME:
            return DONE
        self._tallies.pop(key.namespace, None)
        for one in cast("list[Instance]", context.objects.list(Instance.api, key.namespace)):
            if is_gated(one):
                await open_gate(context, key.namespace, one.metadata.name)
        return DONE

    async def sync(self, context: Context, obj: Quota) -> Outcome:
        if obj.metadata.deletion_timestamp is not None:
            return DONE
        if obj.metadata.name != QUOTA_NAME:
            message = f'only the Quota named "{QUOTA_NAME}" of a namespace is enforced: name it so'
            other = Condition(type=ENFORCED, status="False", reason="NotDefault", message=message)
            await context.write_status(obj, with_conditions(context, obj, [other]))
            return DONE
        tally = self._tally(context.objects, obj.metadata.namespace)
        ledger = _ledger(obj)
        decided = plan_grants(bound_of(obj.spec.hard), ledger, tally.demands(ledger))
        if not context.client.in_process and _drops(ledger, decided.ledger):
            # The cache may lag behind the server: a slot in use must not be granted to another.
            await self._recount(context, obj.metadata.namespace, tally)
            decided = plan_grants(bound_of(obj.spec.hard), ledger, tally.demands(ledger))
        opening = _opening(tally, decided.ledger)
        await self._commit(context, obj, decided, is_moved=bool(opening) or ledger != decided.ledger)
        for name in opening:
            await open_gate(context, obj.metadata.namespace, name)
        await self._write_claims(context, obj.metadata.namespace, decided)
        return DONE

    # Counting.

    def _tally(self, objects: Objects, namespace: str) -> Tally:
        known = self._tallies.get(namespace)
        if known is not None:
            return known
        tally = Tally(
            lambda instance: counted_of(objects, instance.spec), lambda instance: is_charged_here(objects, instance)
        )
        for one in objects.list(Instance.api, namespace):
            tally.count(cast(Instance, one))
        for claim in objects.list(QuotaClaim.api, namespace):
            tally.claim(cast(QuotaClaim, claim))
        # Only now: `wants` must not take a partial tally for a complete one.
        self._tallies[namespace] = tally
        return tally

    async def _recount(self, context: Context, namespace: str, tally: Tally) -> None:
        found = (await context.client.list(Instance, namespace=namespace)).items
        tally.clear()
        for one in found:
            tally.count(one)

    # Deciding.

    async def _commit(self, context: Context, obj: Quota, decided: GrantPlan, *, is_moved: bool) -> None:
        """Write the ledger. This comes before any gate is opened, also when nothing else in the status changed."""
        before = status_of(obj)
        enforced = Condition(type=ENFORCED, status="True", reason=ENFORCED)
        status: QuotaStatus = with_conditions(context, obj, [enforced])
        await context.write_status(
            obj,
            msgspec.structs.replace(
                status,
                observed_generation=obj.metadata.generation,
                used=used_of(decided.used),
                sequence=before.sequence + is_moved,
                holders=[_holder(slot, held) for slot, held in sorted(decided.ledger.items())],
                waiting=[_waiting(one, decided) for one in decided.waiting[:WAITING_MAX]],
                waiting_instances=sum(one.number for one in decided.waiting),
            ),
        )

    async def _write_claims(self, context: Context, namespace: str, decided: GrantPlan) -> None:
        """Copy the ledger into the status of each claim."""
        short = {one.slot.uid: one for one in reversed(decided.waiting)}
        for claim in cast("list[QuotaClaim]", context.objects.list(QuotaClaim.api, namespace)):
            uid = claim.spec.owner.uid
            held = [(slot.hash, each.number) for slot, each in decided.ledger.items() if slot.uid == uid]
            granted = [QuotaGrant(hash=hash_, count=number) for hash_, number in sorted(held)[:SIZES_MAX]]
            condition = Condition(type=GRANTED, status="True", reason="QuotaAvailable")
            if uid in short:
                message = _message(short[uid], decided)
                condition = Condition(type=GRANTED, status="False", reason="QuotaExceeded", message=message)
            status = msgspec.structs.replace(with_conditions(context, claim, [condition]), granted=granted)
            await unless_overtaken(context.write_status(claim, status))


def _ledger(quota: Quota) -> dict[Slot, Grant]:
    status = status_of(quota)
    return {
        Slot(one.kind, one.name, one.uid, one.hash): Grant(one.count, parsed(one.requests)) for one in status.holders
    }


def _drops(before: Mapping[Slot, Grant], after: Mapping[Slot, Grant]) -> bool:
    return any(slot not in after or after[slot].number < held.number for slot, held in before.items())


def _opening(tally: Tally, ledger: Mapping[Slot, Grant]) -> list[str]:
    """Return the instances whose gates are to be opened, the lowest ordinals of each owner first."""
    names: list[str] = []
    for slot, held in ledger.items():
        names += tally.gated(slot)[: max(0, held.number - tally.running(slot))]
    return names


def _holder(slot: Slot, held: Grant) -> QuotaHolder:
    return QuotaHolder(
        kind=slot.kind, name=slot.name, uid=slot.uid, hash=slot.hash, count=held.number, requests=used_of(held.size)
    )


def _waiting(one: Waiting, decided: GrantPlan) -> QuotaWaiting:
    slot = one.slot
    return QuotaWaiting(
        kind=slot.kind, name=slot.name, uid=slot.uid, hash=slot.hash, count=one.number, message=_message(one, decided)
    )


def _message(one: Waiting, decided: GrantPlan) -> str:
    if one.is_too_large:
        return f"one of them is more than the whole budget has of {' and '.join(one.short)}"
    held: dict[str, int] = {}
    for slot, each in decided.ledger.items():
        held[f"{slot.kind}/{slot.name}"] = held.get(f"{slot.kind}/{slot.name}", 0) + each.number
    most: Sequence[str] = sorted(held, key=lambda name: (-held[name], name))
    named = ", ".join(f"{name} {held[name]}" for name in most[:NAMED_MAX])
    more = f" and {len(most) - NAMED_MAX} more" if len(most) > NAMED_MAX else ""
    what = f"the budget is short of {' and '.join(one.short)}" if one.short else "others have waited for longer"
    return f"{what}; instances are held by {named}{more}" if named else what
