"""Opening the gate of an instance that has waited for its quota."""

from __future__ import annotations

from typing import Any, cast

from rota.api import Instance
from rota.control.instances.reasons import QUOTA_GATE
from rota.engine import Context
from rota.registry import ApiError


async def open_gate(context: Context, namespace: str, name: str, gate: str = QUOTA_GATE) -> None:
    """Open the gate of an instance; other gates, and those who write them, are left alone."""
    kind: Any = Instance
    found = cast("Instance | None", context.find(Instance.api, namespace, name))
    gates = [one.name for one in found.spec.scheduling_gates] if found is not None else []
    if gate not in gates:
        return
    path = f"/spec/schedulingGates/{gates.index(gate)}"
    patch = [{"op": "test", "path": f"{path}/name", "value": gate}, {"op": "remove", "path": path}]
    try:
        await context.client.patch(kind, name, patch, namespace=namespace, type="json")
    except ApiError as error:
        if error.code not in (404, 409, 422):
            raise  # It is gone, or has other gates by now: the news of that brings the next look.
