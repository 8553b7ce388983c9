"""What an instance says of its quota."""

from __future__ import annotations

from rota.api import Condition, Instance, Quota
from rota.client import Key
from rota.control.gate import status_of
from rota.control.instances.reasons import HUB_QUOTA_GATE
from rota.control.quotas.asking import quota_of
from rota.control.quotas.tally import is_gated, slot_of
from rota.control.sizes import counted_of
from rota.engine.objects import Objects

QUOTA = "QuotaGranted"


class Gated:
    """Instances that wait for something before they are started: news of their quota is news to them."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Key, None]] = {}

    def note(self, instance: Instance) -> bool:
        """Take an instance as it is now, and return whether it waits."""
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
    """Return the condition QuotaGranted of an instance."""
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
