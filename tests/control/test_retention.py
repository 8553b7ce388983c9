"""Events that Rota made go after an hour, and sooner when there are too many."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from rota.api import Event
from rota.control.retention import LOOK_SECONDS, EventRetention
from rota.engine import retention
from rota.engine.pacing import SPIN_RUNS_MAX
from rota.engine.retention import EVENT_KEEP_SECONDS
from tests.engine_loop.loops import World


async def event(
    world: World, name: str, component: str = "rota", *, age: float = 0, namespace: str = "default"
) -> None:
    at = datetime.fromtimestamp(world.clock.time() - age, UTC).isoformat().replace("+00:00", "Z")
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"namespace": namespace, "kind": "Task", "name": "t"},
        "reason": "R",
        "type": "Warning",
        "reportingComponent": component,
        "lastTimestamp": at,
        "firstTimestamp": at,
    }
    await world.client.create(body)


async def names(world: World, namespace: str = "default") -> list[str]:
    found = (await world.client.list(Event, namespace=namespace)).items
    return sorted(one.metadata.name for one in found)


async def test_an_event_goes_an_hour_after_it_was_last_seen(world: World) -> None:
    await world.serve(EventRetention())
    await event(world, "e")
    await world.pass_time(EVENT_KEEP_SECONDS - 1)
    assert await names(world) == ["e"]
    await world.pass_time(1 + LOOK_SECONDS)
    assert await names(world) == []
    await world.pass_time(LOOK_SECONDS)
    assert len(world.loop.view) == 0


async def test_one_that_was_seen_again_stays_for_another_hour(world: World) -> None:
    await world.serve(EventRetention())
    await event(world, "e")
    await world.pass_time(3000, step=10)
    at = datetime.fromtimestamp(world.clock.time(), UTC).isoformat().replace("+00:00", "Z")
    await world.client.patch(Event, "e", {"lastTimestamp": at, "count": 2})
    await world.pass_time(3599, step=59)
    assert await names(world) == ["e"]
    await world.pass_time(1 + LOOK_SECONDS)
    assert await names(world) == []


async def test_many_events_in_a_moment_are_no_sign_that_it_does_not_come_to_rest(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.serve(EventRetention())
    for number in range(2 * SPIN_RUNS_MAX):
        await event(world, f"e-{number}")
        await world.rest()
    assert "again and again" not in caplog.text


async def test_those_of_others_stay(world: World) -> None:
    await world.serve(EventRetention())
    await event(world, "mine", age=EVENT_KEEP_SECONDS)
    await event(world, "theirs", "example.com/maker", age=EVENT_KEEP_SECONDS)
    await event(world, "nobodys", "", age=EVENT_KEEP_SECONDS)
    await world.pass_time(10 * EVENT_KEEP_SECONDS, step=EVENT_KEEP_SECONDS)
    assert await names(world) == ["nobodys", "theirs"]


async def test_those_that_were_overdue_when_it_began_go_at_once(world: World) -> None:
    await event(world, "e")
    world.clock.advance(2 * EVENT_KEEP_SECONDS)
    await world.serve(EventRetention())
    assert await names(world) == []


async def test_beyond_a_number_the_oldest_of_a_namespace_go_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "EVENTS_PER_NAMESPACE_MAX", 3)
    await world.create("Namespace", "other")
    await world.serve(EventRetention())
    for i in range(5):
        await event(world, f"e{i}")
        if i < 3:
            await event(world, f"o{i}", namespace="other")
        await event(world, f"theirs-{i}", "example.com/maker")
        await world.pass_time(1)
    assert [name for name in await names(world) if name.startswith("e")] == ["e2", "e3", "e4"]
    assert len([name for name in await names(world) if name.startswith("theirs")]) == 5
    assert await names(world, "other") == ["o0", "o1", "o2"]


async def test_one_that_somebody_else_deletes_meanwhile_is_no_error(world: World) -> None:
    await event(world, "e")
    await event(world, "f")
    await world.prepare(EventRetention())
    world.clock.advance(2 * EVENT_KEEP_SECONDS)

    real = world.loop._client.delete

    async def late(kind: Any, name: str, **more: Any) -> Any:
        await world.client.delete(Event, name)
        if name == "e":
            await event(world, "e")
        return await real(kind, name, **more)

    world.loop._client.delete = late  # type: ignore[method-assign]
    world.serving = asyncio.create_task(world.loop.serve())
    await world.rest()
    assert await names(world) == ["e"], "a namesake made meanwhile is another Event"
    assert not world.loop.view.sleeping()
