"""kr8s against `rota up`: its objects for our kinds, looked up by discovery."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import kr8s.asyncio
import pytest
from kr8s.asyncio.objects import new_class

from tests.server.live import Live, live

SECONDS_MAX = 60
Kr8s = Any
"""Of kr8s, whose objects have the fields of what they stand for."""


@pytest.fixture(scope="module")
def rota(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("kr8s")) as server:
        yield server


@pytest.fixture
async def api(rota: Live) -> AsyncIterator[Kr8s]:
    made: Kr8s = await kr8s.asyncio.api(kubeconfig=str(rota.kubeconfig))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            yield made
    finally:
        await made._session.aclose()  # It has no way of its own to close it.


async def pool(api: Kr8s, name: str, replicas: int = 1) -> Kr8s:
    kind: Kr8s = new_class(kind="WorkerPool", version="rota.dev/v1alpha1", namespaced=True, scalable=True, asyncio=True)
    spec = {"worker": {"type": "shell"}, "replicas": replicas}
    made = await kind({"metadata": {"name": name, "labels": {"of": name}}, "spec": spec}, api=api)
    await made.create()
    return made


async def ready(made: Kr8s) -> None:
    while "status" not in made.raw:  # It does not wait for one that has no status yet.
        await asyncio.sleep(0.05)
        await made.refresh()
    await made.wait("condition=Ready", timeout=SECONDS_MAX)


async def test_every_kind_is_found_and_who_asks_is_told(api: Kr8s) -> None:
    found = {one["name"] for one in await api.api_resources()}
    assert {"workerpools", "functions", "tasks", "customresourcedefinitions", "events", "configmaps"} <= found
    assert await api.whoami()


async def test_a_pool_is_made_awaited_scaled_marked_and_removed(api: Kr8s) -> None:
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


async def test_a_watch_tells_what_comes(api: Kr8s) -> None:
    watched: Kr8s = api.watch("workerpools.rota.dev", label_selector="of=watched")
    first = asyncio.ensure_future(anext(watched))
    made = await pool(api, "watched", replicas=0)
    event, obj = await first
    assert (event, obj.name) == ("ADDED", "watched")
    await made.delete()
    async for event, obj in watched:
        if event == "DELETED":
            assert obj.name == "watched"
            break
    await watched.aclose()
