"""Creates of one turn of the event loop: one request, and to each caller its own answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota import ApiError, Client
from rota.api import ConfigMap
from rota.client import HttpBackend
from rota.client.failures import ConnectionCut
from tests.client.running import running
from tests.client.scripted import Act, Exchange, answer, client_of, cut, serving, status

ROTA = answer(body={"rotaVersion": "1"})
OTHER = answer(body={"gitVersion": "v1.31.0"})


def config_map(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}


def made(*names: str) -> Act:
    """Answer a batch: all of these were made."""
    return answer(body={"results": [{"code": 201, "object": config_map(name)} for name in names]})


def created(name: str) -> Act:
    return answer(201, config_map(name))


async def create_all(backend: HttpBackend, *names: str) -> list[Any]:
    client = Client(backend)
    return [*await asyncio.gather(*(client.create(config_map(name)) for name in names), return_exceptions=True)]


def targets(seen: list[Exchange]) -> list[str]:
    return [f"{one.method} {one.path.partition('?')[0]}" for one in seen]


def names_of(found: list[Any]) -> list[str]:
    return [one["metadata"]["name"] for one in found]


async def test_creates_of_one_turn_are_one_request() -> None:
    async with serving(ROTA, made("a", "b", "c")) as server, client_of(server) as backend:
        assert names_of(await create_all(backend, "a", "b", "c")) == ["a", "b", "c"]
        assert targets(server.seen) == ["GET /version", "POST /v1/batch"]
        sent = msgspec.json.decode(server.seen[-1].body)
        assert sent["atomic"] is False and [one["verb"] for one in sent["operations"]] == ["create"] * 3


async def test_one_that_comes_alone_has_its_own_request() -> None:
    async with serving(created("a"), created("b")) as server, client_of(server) as backend:
        assert names_of([*await create_all(backend, "a"), *await create_all(backend, "b")]) == ["a", "b"]
        assert targets(server.seen) == ["POST /api/v1/namespaces/default/configmaps"] * 2


async def test_on_a_server_without_batches_each_has_its_own_request() -> None:
    acts = (OTHER, created("a"), created("b"))
    async with serving(*acts) as server, client_of(server) as backend:
        assert sorted(names_of(await create_all(backend, "a", "b"))) == ["a", "b"]
        assert targets(server.seen)[1:] == ["POST /api/v1/namespaces/default/configmaps"] * 2


async def test_one_that_the_server_has_no_room_for_is_sent_again_by_itself() -> None:
    busy = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "later"}
    results = [{"code": 201, "object": config_map("a")}, {"code": 429, "status": busy}]
    acts = (ROTA, answer(body={"results": results}), created("b"))
    async with serving(*acts) as server, client_of(server) as backend:
        assert names_of(await create_all(backend, "a", "b")) == ["a", "b"]
        assert targets(server.seen)[2:] == ["POST /api/v1/namespaces/default/configmaps"]


async def test_a_cut_connection_is_told_to_all_and_nothing_is_sent_twice() -> None:
    async with serving(ROTA, cut()) as server, client_of(server) as backend:
        found = await create_all(backend, "a", "b")
        assert [type(one) for one in found] == [ConnectionCut] * 2
        assert len(server.seen) == 2


async def test_a_refused_request_is_told_to_all() -> None:
    async with serving(ROTA, status(403, "Forbidden")) as server, client_of(server) as backend:
        found = await create_all(backend, "a", "b")
        assert [one.code for one in found] == [403, 403]


async def test_a_caller_that_is_cancelled_takes_nobody_with_it() -> None:
    async with serving(ROTA, made("a", "b")) as server, client_of(server) as backend:
        client = Client(backend)
        first, second = (asyncio.create_task(client.create(config_map(name))) for name in ("a", "b"))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second)["metadata"]["name"] == "b"
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_those_under_way_end_with_the_client() -> None:
    async def hold(exchange: Exchange) -> None:
        arrived.set()
        await exchange.gone()

    arrived = asyncio.Event()
    async with serving(ROTA, hold) as server, client_of(server) as backend:
        under_way = asyncio.create_task(create_all(backend, "a", "b"))
        await arrived.wait()
        await backend.close()
        assert [type(one) for one in await under_way] == [asyncio.CancelledError] * 2


async def test_a_real_server_answers_each_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path / "home"):
        client = Client.connect(home=tmp_path / "home")
        wrong = config_map("wrong", data={"a": 7})
        every = [config_map("a"), config_map("b"), config_map("a"), wrong, config_map("c", namespace="x")]
        found: list[Any] = [*await asyncio.gather(*(client.create(one) for one in every), return_exceptions=True)]
        assert names_of(found[:2]) == ["a", "b"]
        codes = [one.code if isinstance(one, ApiError) else one for one in found[2:]]
        assert codes == [409, 400, 400]
        assert len((await client.list(ConfigMap)).items) == 2
        await client.close()
