"""Gated instances: an index of them, the condition on their quota, and the removal of a gate."""

from __future__ import annotations

from typing import cast

from rota.api import Condition, Instance, Quota
from rota.client import Key
from rota.control.gate import status_of
from rota.control.instances.reasons import HUB_QUOTA_GATE, QUOTA_GATE
from rota.control.quotas.asking import quota_of
from rota.control.quotas.tally import is_gated, slot_of
from rota.control.sizes import counted_of
from rota.engine import Context
from rota.engine.objects import Objects
from rota.registry import ApiError

QUOTA = "QuotaGranted"


class GatedInstances:
    """The instances with a scheduling gate, by namespace. A change of the quota wakes each of them."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Key, None]] = {}

    def note(self, instance: Instance) -> bool:
        """Take an instance as it is now. Returns whether it has a gate."""
        key = Key(instance.metadata.namespace, instance.metadata.name)
        if not instance.spec.scheduling_gates:
            self.forget(key)
            return False
        self._waiting.setdefault(key.namespace, {})[key] = None
        return True

    def forget(self, key: Key) -> None:
        waiting = self._waiting.get(key.namespace, {})
        waiting.pop(key, None)
        if not waiting:
            self._waiting.pop(key.namespace, None)

    def by_quota(self, quota: Quota) -> list[Key]:
        return list(self._waiting.get(quota.metadata.namespace, ()))


def quota_condition(objects: Objects, instance: Instance) -> Condition:
    quota = quota_of(objects, instance.metadata.namespace)
    if any(one.name == HUB_QUOTA_GATE for one in instance.spec.scheduling_gates):
        message = "the quota at the hub has not granted it: `rota quota` shows there who holds it"
        return Condition(type=QUOTA, status="False", reason="QuotaNotGranted", message=message)
    if not is_gated(instance):
        return Condition(type=QUOTA, status="True", reason="NotRequired" if quota is None else "QuotaAvailable")
    if quota is not None:
        slot = slot_of(instance, counted_of(objects, instance.spec))
        status = status_of(quota)
        for one in status.waiting:
            if (one.uid, one.hash) == (slot.uid, slot.hash):
                return Condition(type=QUOTA, status="False", reason="QuotaExceeded", message=one.message or "")
        if status.waiting_instances > sum(one.count for one in status.waiting):
            return Condition(type=QUOTA, status="False", reason="QuotaExceeded", message="many have waited for longer")
    return Condition(type=QUOTA, status="False", reason="QuotaNotGranted", message="its quota is not granted yet")


async def open_gate(context: Context, namespace: str, name: str, gate: str = QUOTA_GATE) -> None:
    """Remove one gate of an instance. Other gates stay; if the instance or the gate is gone, nothing happens."""
    found = cast("Instance | None", context.find(Instance.api, namespace, name))
    gates = [one.name for one in found.spec.scheduling_gates] if found is not None else []
    if gate not in gates:
        return
    path = f"/spec/schedulingGates/{gates.index(gate)}"
    patch = [{"op": "test", "path": f"{path}/name", "value": gate}, {"op": "remove", "path": path}]
    try:
        await context.client.patch(Instance, name, patch, namespace=namespace, type="json")
    except ApiError as error:
        if error.code not in (404, 409, 422):
            raise  # It is gone, or its gates have changed: the news of that wakes the controller again.
