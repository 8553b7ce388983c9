"""Schedules that are only thought of."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.api import Schedule
from rota.control.schedules.making import time_text

TARGET = {"taskTemplate": {"command": ["true"], "workerPoolRef": {"name": "pool"}}}


def schedule(
    cron: str = "* * * * *", *, created: int = 0, uid: str = "uid-1", status: dict[str, Any] | None = None, **spec: Any
) -> Schedule:
    body = {
        "metadata": {"name": "tick", "namespace": "default", "uid": uid, "creationTimestamp": time_text(created)},
        "spec": {"cron": cron, **({"target": TARGET} | spec)},
        **({"status": status} if status is not None else {}),
    }
    return msgspec.convert(body, Schedule)
