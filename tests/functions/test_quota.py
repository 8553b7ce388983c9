"""Functions and tasks whose workers the budget has no room for."""

from __future__ import annotations

from typing import Any

from rota.api import Quota, Task
from tests.functions.town import API, Town


async def put(town: Town, kind: str, name: str, spec: dict[str, Any]) -> None:
    await town.client.apply({"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}, force=True)


async def test_a_call_is_refused_with_when_to_come_again_and_a_task_waits(town: Town) -> None:
    await put(town, "Quota", "default", {"hard": {"instances": 1}})
    template = {"containers": [{"name": "main", "command": ["sleep", "1000"]}]}
    await put(town, "WorkerPool", "holder", {"replicas": 1, "template": template})

    async def is_held() -> bool:
        quota: Quota = await town.client.get(Quota, "default")
        return quota.status is not None and [one.name for one in quota.status.holders] == ["holder"]

    await town.until(is_held)
    await put(town, "Task", "patient", {"worker": {"type": "shell"}, "command": ["true"]})
    await town.deploy("f", "def handler(event, context):\n    return 'here'")
    queued = await town.task("patient", lambda task: task.status is not None and task.status.reason == "QuotaExceeded")
    assert queued.status is not None and queued.status.phase == "Queued"
    assert "WorkerPool/holder 1" in (queued.status.message or "")

    async def refused() -> bool:
        reply = await town.call("/default/f/")
        assert reply.status in (404, 503), reply
        return reply.status == 503 and b"quota" in reply.body and int(reply.headers["retry-after"]) > 0

    await town.until(refused)
    await put(town, "Quota", "default", {"hard": {"instances": 3}})
    done: Task = await town.task("patient")
    assert done.status is not None and done.status.phase == "Succeeded"

    async def answers() -> bool:
        return (await town.call("/default/f/")).status == 200

    await town.until(answers)
