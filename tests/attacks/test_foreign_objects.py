"""To stop an operator for everybody by an object that another API server admits and that Rota cannot read."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from rota.api import ConfigMap, Kind, Secret, Task
from rota.client import Cache, Client
from rota.engine import CachedObjects
from tests.client.scripted import answer, client_of, serving, watch
from tests.until import until_async

DEEP = 5_000
"""Levels of a value: within the 10,000 that an API server takes."""
NESTED = b'{"a":' * DEEP + b"1" + b"}" * DEEP
FOREIGN: dict[str, tuple[type[Any], bytes]] = {
    "more keys than a ConfigMap of Rota's has": (
        ConfigMap,
        b'"data":' + msgspec.json.encode({f"k{i}": "" for i in range(1_025)}),
    ),
    "a type longer than a Secret of Rota's has": (Secret, b'"type":"' + b"x" * 300 + b'"'),
    "a value nested too deeply": (Task, b'"spec":{"function":{"name":"f","payload":{"a":' + NESTED + b"}}}"),
    "a time before the first year": (Task, b'"spec":{}'),
}
IDS = [name.replace(" ", "-") for name in FOREIGN]


def obj(kind: Kind, name: str, version: int, more: bytes = b"") -> bytes:
    meta: dict[str, Any] = {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version)}
    if b'"spec":{}' in more:
        meta["managedFields"] = [{"manager": "m", "operation": "Update", "time": "0000-06-01T00:00:00Z"}]
    head = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}
    return msgspec.json.encode(head)[:-1] + (b"," + more if more else b"") + b"}"


def good(kind: type[Any], name: str, version: int) -> bytes:
    return obj(kind.api, name, version, b'"spec":{"prompt":"p"}' if kind is Task else b"")


def listed(*items: bytes) -> bytes:
    return b'{"kind":"List","metadata":{"resourceVersion":"10"},"items":[' + b",".join(items) + b"]}"


def event(type_: str, item: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + item + b"}\n"


@pytest.mark.parametrize("name", FOREIGN, ids=IDS)
async def test_to_keep_an_operator_from_starting(name: str, caplog: pytest.LogCaptureFixture) -> None:
    kind, more = FOREIGN[name]
    items = listed(good(kind, "before", 1), obj(kind.api, "hostile", 2, more), good(kind, "behind", 3))
    async with (
        asyncio.timeout(20),
        serving(answer(200, items), watch()) as server,
        client_of(server) as backend,
        CachedObjects(Client(backend), [kind.api]) as objects,
    ):
        assert sorted(one.metadata.name for one in objects.list(kind.api)) == ["before", "behind"]
    assert [record.levelno for record in caplog.records if "hostile" in record.getMessage()] == [logging.WARNING]


@pytest.mark.parametrize("name", FOREIGN, ids=IDS)
async def test_to_have_an_operator_see_nothing_any_more(name: str, caplog: pytest.LogCaptureFixture) -> None:
    kind, more = FOREIGN[name]
    hostile = [event("MODIFIED", obj(kind.api, "first", version, more)) for version in (11, 12)]
    acts = [answer(200, listed(good(kind, "first", 1))), watch(*hostile, event("ADDED", good(kind, "later", 13)))]
    async with (
        asyncio.timeout(20),
        serving(*acts) as server,
        client_of(server) as backend,
        Cache(Client(backend), kind) as cache,
    ):

        async def is_read() -> bool:
            return cache.get("later", "default") is not None

        await until_async(is_read)
        assert cache.get("first", "default") is None
    assert sum("first" in record.getMessage() for record in caplog.records) == 1


async def test_an_object_that_can_be_read_again_is_there_again() -> None:
    _, more = FOREIGN[next(iter(FOREIGN))]
    hostile = obj(ConfigMap.api, "a", 11, more)
    events = [event("MODIFIED", hostile), event("MODIFIED", good(ConfigMap, "a", 12))]
    acts = [answer(200, listed(hostile, good(ConfigMap, "b", 2))), watch(*events)]
    async with (
        asyncio.timeout(20),
        serving(*acts) as server,
        client_of(server) as backend,
        Cache(Client(backend), ConfigMap) as cache,
    ):

        async def is_read() -> bool:
            return cache.get("a", "default") is not None

        await until_async(is_read)
        assert len(cache) == 2
