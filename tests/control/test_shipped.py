"""Objects that Rota ships are made once, and belong to people from then on."""

from __future__ import annotations

from typing import Any

from rota.api import KINDS
from rota.client import Client
from rota.control.cell import Cells
from rota.control.plane import HERE
from rota.control.shipped import Shipped, shipped
from rota.registry import ApiError
from tests.engine_loop.loops import World


async def names(world: World, kind: str) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in (await world.client.list(KINDS[kind])).items)


async def test_it_is_made_when_a_server_begins_and_is_ready(world: World) -> None:
    await world.serve(Shipped(), Cells(HERE))
    for type_, name, _ in shipped(HERE):
        found = await world.get(type_.api.name, name)
        assert found.readiness().state == "Ready"


async def test_a_second_beginning_changes_nothing(world: World) -> None:
    await world.serve(Shipped())
    before = [(await world.get(type_.api.name, name)).metadata.resource_version for type_, name, _ in shipped(HERE)]
    await world.stop()
    await world.serve(Shipped())
    after = [(await world.get(type_.api.name, name)).metadata.resource_version for type_, name, _ in shipped(HERE)]
    assert before == after


async def test_what_is_deleted_is_made_again(world: World) -> None:
    await world.serve(Shipped())
    await world.delete("Location", "local")
    await world.rest()
    assert await names(world, "Location") == ["local"]


async def test_what_people_change_stays_changed(world: World) -> None:
    await world.create("InstanceType", "d1-standard-2", {"cpu": 8, "memory": "1Gi"})
    await world.serve(Shipped())
    await world.patch("Location", "local", {"spec": {"displayName": "Mine"}})
    await world.rest()
    assert (await world.get("InstanceType", "d1-standard-2")).spec.cpu == 8
    assert (await world.get("Location", "local")).spec.display_name == "Mine"


async def test_others_beside_it_are_left_alone(world: World) -> None:
    await world.serve(Shipped())
    await world.create("Location", "ams", {"cityCode": "ams"})
    await world.delete("Location", "ams")
    await world.rest()
    assert await names(world, "Location") == ["local"]


class Late(Client):
    """Somebody else makes everything just before."""

    def __init__(self, world: World, error: ApiError | None = None) -> None:
        super().__init__(world.client.backend, manager="controllers", namespace="default")
        self._other = world.client
        self._error = error

    async def create(self, obj: Any, **more: Any) -> Any:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        await self._other.create(obj)
        return await super().create(obj, **more)


async def test_two_at_once_do_no_harm(world: World) -> None:
    await world.serve(Shipped(), client=Late(world))
    assert await names(world, "Location") == ["local"] and len(world.loop.view) == 0


async def test_a_refusal_is_tried_again(world: World) -> None:
    await world.serve(Shipped(), client=Late(world, ApiError(503, "ServiceUnavailable", "not now")))
    assert await names(world, "InstanceType") == []
    await world.pass_time(1)
    assert await names(world, "InstanceType") == ["d1-standard-2"]
