"""A user's program with kr8s, run as a process since kr8s leaves connections open until its process ends.

python -m tests.server.kr8s_program KUBECONFIG
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import kr8s.asyncio
from kr8s.asyncio.objects import new_class

from tests.until import until_async

SECONDS_MAX = 60
Kr8s = Any
"""An object of kr8s, which has the fields of the stored one."""


async def pool(api: Kr8s, name: str, replicas: int = 1) -> Kr8s:
    kind: Kr8s = new_class(kind="WorkerPool", version="rota.dev/v1alpha1", namespaced=True, scalable=True, asyncio=True)
    spec = {"worker": {"type": "shell"}, "replicas": replicas}
    made = await kind({"metadata": {"name": name, "labels": {"of": name}}, "spec": spec}, api=api)
    await made.create()
    return made


async def ready(made: Kr8s) -> None:
    # It does not wait for one that has no status yet.
    await until_async(lambda: "status" in made.raw or made.refresh(), lambda: made.raw)
    await made.wait("condition=Ready", timeout=SECONDS_MAX)


async def discover(api: Kr8s) -> None:
    found = {one["name"] for one in await api.api_resources()}
    assert {"workerpools", "functions", "tasks", "customresourcedefinitions", "events", "configmaps"} <= found


async def change(api: Kr8s) -> None:
    made = await pool(api, "crew")
    await ready(made)
    await made.scale(2)
    assert made.spec.replicas == 2
    await made.label(team="blue")
    await made.annotate(note="seen")
    await made.patch({"spec": {"replicas": 0}})
    (found,) = [one async for one in api.get("workerpools.rota.dev", label_selector="of=crew")]
    assert (found.labels.team, found.annotations.note, found.spec.replicas) == ("blue", "seen", 0)
    await made.delete()
    await made.wait("delete", timeout=SECONDS_MAX)
    assert not await made.exists()


async def watch(api: Kr8s) -> None:
    watched: Kr8s = api.watch("workerpools.rota.dev", label_selector="of=watched")
    first = asyncio.ensure_future(anext(watched))
    made = await pool(api, "watched", replicas=0)
    event, obj = await first
    assert (event, obj.name) == ("ADDED", "watched")
    await made.delete()
    async for event, obj in watched:
        if event == "DELETED":
            assert obj.name == "watched"
            return


async def main(kubeconfig: str) -> None:
    api: Kr8s = await kr8s.asyncio.api(kubeconfig=kubeconfig)
    async with asyncio.timeout(SECONDS_MAX):
        for step in (discover, change, watch):
            await step(api)
            print(step.__name__, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
