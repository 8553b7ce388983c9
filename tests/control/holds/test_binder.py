"""The beginning of a hold: what becomes of a binding that cannot be written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.client import Client, Key, LocalBackend
from rota.control.claims.lifecycle import over
from rota.control.holds.binder import RETRY_SECONDS
from rota.engine.fence import Fenced
from rota.registry import ApiError
from tests.control.claims.party import (
    PLAIN,
    WORKERS,
    Party,
    a_claim,
    answer_of,
    claim,
    held,
    is_clean,
    phases,
    release,
    settles,
    status,
)
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.loops import World


class Led:
    """Controllers that can lose the right to write."""

    def __init__(self, world: World) -> None:
        self.world, self.leads = world, True
        self.party = Party(world, FakeRuntime(world.clock))

    async def up(self, spec: dict[str, Any]) -> None:
        await self.world.create("WorkerPool", "p", {"replicas": 1, **spec})
        backend = Fenced(LocalBackend(self.world.registry), lambda: self.leads, lambda: "another")
        client = Client(backend, manager="controllers", namespace="default")
        await self.world.serve(*self.party.controllers(), client=client)
        await self.world.pass_time(30, step=5)


@pytest.fixture
def led(world: World) -> Led:
    return Led(world)


async def test_a_caller_is_asked_to_come_again_when_this_process_does_not_lead_any_more(world: World, led: Led) -> None:
    await led.up(PLAIN)
    led.leads = False
    with pytest.raises(ApiError) as refused:
        await answer_of(world, led.party.claims.callers.open(a_claim("a"), may_wait=True))
    assert refused.value.code == 503 and "ask again under the same name" in refused.value.message
    assert await phases(world) == {} and await held(world) == {} and is_clean(led.party)


async def test_a_claim_keeps_its_place_while_this_process_does_not_lead(world: World, led: Led) -> None:
    await led.up({**PLAIN, "reset": "Keep"})
    await claim(world, "a")
    await claim(world, "b")
    led.leads = False
    await release(world, "a")
    await world.pass_time(3, step=RETRY_SECONDS)
    assert (await status(world, "b")).phase == "Waiting"
    led.leads = True

    async def is_bound() -> bool:
        return (await phases(world))["b"] == "Bound"

    await settles(world, is_bound)


async def test_a_task_is_begun_when_its_process_leads_again(world: World, led: Led) -> None:
    await led.up(WORKERS)
    led.leads = False
    await world.create("Task", "t", {"command": ["run"], "workerPoolRef": {"name": "p"}})
    await world.rest()
    assert led.party.running() == {}
    led.leads = True
    await world.pass_time(2 * RETRY_SECONDS, step=RETRY_SECONDS / 2)
    assert led.party.running() == {"p-0": "run"}


async def test_a_claim_waits_when_its_instance_goes_before_its_hold_is_written(world: World, led: Led) -> None:
    await led.up(PLAIN)
    asking = asyncio.create_task(led.party.claims.callers.open(a_claim("a"), may_wait=True))
    await asyncio.sleep(0)
    led.party.executor.remove(Key("default", "p-0"))
    await world.rest()
    assert (await phases(world)) == {"a": "Waiting"} and not asking.done()
    asking.cancel()


async def test_a_release_is_answered_though_this_process_stops_to_lead_while_it_is_written(
    world: World, led: Led
) -> None:
    await led.up({**PLAIN, "reset": "Keep"})
    await claim(world, "a")
    found = await world.get("Claim", "a")
    released = over(found.status, "Released", world.clock.time())
    ending = asyncio.create_task(led.party.claims.end(found, released))
    await asyncio.sleep(0)
    led.party.executor.close()
    with pytest.raises(ApiError) as refused:
        await ending
    assert refused.value.code == 503
    with pytest.raises(ApiError):
        await led.party.claims.end(found, released)
