"""Watches over HTTP: batches of events, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import cast

import msgspec
import pytest

from rota.api import ConfigMap
from rota.client.failures import BadAnswer, ConnectionCut
from rota.client.http import WATCH_SECONDS_MAX, WATCH_SECONDS_MIN, Events, HttpBackend
from rota.registry import ApiError, WatchEvent, WatchOptions
from tests.client.scripted import Exchange, client_of, serving, status, watch

KIND = ConfigMap.api


def line(type_: str, name: str, version: int) -> bytes:
    obj = {"kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": str(version)}}
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'


def watching(backend: HttpBackend, options: WatchOptions = WatchOptions()) -> AsyncGenerator[Events, None]:  # noqa: B008
    return cast(AsyncGenerator[Events, None], backend.watch(KIND, "default", options))


def told(events: Events) -> list[tuple[str, int]]:
    return [(event.type, event.revision) for event in events]


async def test_all_events_that_came_together_are_told_together() -> None:
    chunk = line("ADDED", "a", 1) + line("MODIFIED", "a", 2) + line("DELETED", "a", 3)
    async with serving(watch(chunk)) as server, client_of(server) as backend:
        batches = [told(batch) async for batch in watching(backend)]
    assert batches == [[("ADDED", 1), ("MODIFIED", 2), ("DELETED", 3)]]


async def test_an_event_is_told_when_its_line_is_complete() -> None:
    text = line("ADDED", "a", 1) + line("ADDED", "b", 2)
    next_one = asyncio.Event()

    async def byte_by_byte(exchange: Exchange) -> None:
        await exchange.begin_chunks()
        await exchange.chunk(text[:-5])
        await next_one.wait()
        for i in range(len(text) - 5, len(text)):
            await exchange.chunk(text[i : i + 1])
        await exchange.send(b"0\r\n\r\n")

    async with serving(byte_by_byte) as server, client_of(server) as backend:
        batches = watching(backend)
        assert told(await anext(batches)) == [("ADDED", 1)]
        next_one.set()
        assert told(await anext(batches)) == [("ADDED", 2)]
        assert await anext(batches, None) is None


async def test_an_object_is_told_as_the_bytes_that_came() -> None:
    text = b'{"type":"ADDED","object":{"metadata":{"name":"\\u00e9"}, "a":1.50}}\n'
    async with serving(watch(text)) as server, client_of(server) as backend:
        [batch] = [batch async for batch in watching(backend)]
    assert batch == [WatchEvent("ADDED", b'{"metadata":{"name":"\\u00e9"}, "a":1.50}', 0)]


async def test_bookmarks_are_told_with_their_version() -> None:
    async with serving(watch(line("BOOKMARK", "", 99))) as server, client_of(server) as backend:
        [batch] = [batch async for batch in watching(backend)]
    assert told(batch) == [("BOOKMARK", 99)]


async def test_an_error_ends_the_watch_after_what_came_before_it() -> None:
    async with serving(watch(line("ADDED", "a", 1) + EXPIRED)) as server, client_of(server) as backend:
        batches = watching(backend)
        assert told(await anext(batches)) == [("ADDED", 1)]
        with pytest.raises(ApiError) as caught:
            await anext(batches)
    assert (caught.value.code, caught.value.reason, caught.value.message) == (410, "Expired", "too old")


async def test_a_watch_that_is_refused_is_refused() -> None:
    async with serving(status(410, "Expired")) as server, client_of(server) as backend:
        with pytest.raises(ApiError) as caught:
            await anext(watching(backend))
    assert caught.value.code == 410


async def test_a_watch_that_the_server_ends_is_over() -> None:
    async with serving(watch(line("ADDED", "a", 1))) as server, client_of(server) as backend:
        assert len([batch async for batch in watching(backend)]) == 1


@pytest.mark.parametrize("rest", [b"", b'{"type":"ADD'], ids=["between events", "within an event"])
async def test_a_watch_that_is_cut_fails(rest: bytes) -> None:
    cut_off = watch(line("ADDED", "a", 1) + rest, ends=False)
    async with serving(cut_off) as server, client_of(server) as backend:
        batches = watching(backend)
        assert told(await anext(batches)) == [("ADDED", 1)]
        with pytest.raises(ConnectionCut):
            await anext(batches)


async def test_a_watch_that_ends_within_an_event_fails_however_politely() -> None:
    async with serving(watch(b'{"type":"ADD')) as server, client_of(server) as backend:
        with pytest.raises(ConnectionCut, match="within an event"):
            await anext(watching(backend))


async def test_events_are_bounded() -> None:
    async with serving(watch(b"x" * 600, b"x" * 600)) as server, client_of(server, line_bytes=1000) as backend:
        with pytest.raises(BadAnswer, match="larger than 1000 bytes"):
            await anext(watching(backend))


async def test_a_watch_that_is_left_closes_its_connection() -> None:
    ended = asyncio.Event()

    async def endless(exchange: Exchange) -> None:
        await exchange.begin_chunks()
        await exchange.chunk(line("ADDED", "a", 1))
        await exchange.gone()
        ended.set()

    async with serving(endless) as server, client_of(server) as backend:
        batches = watching(backend)
        await anext(batches)
        await batches.aclose()
        await asyncio.wait_for(ended.wait(), 60)


async def test_a_watch_whose_reader_is_cancelled_closes_its_connection() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def silent(exchange: Exchange) -> None:
        await exchange.begin_chunks()
        began.set()
        await exchange.gone()
        ended.set()

    async with serving(silent) as server, client_of(server) as backend:
        reading = asyncio.ensure_future(anext(watching(backend)))
        await began.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await asyncio.wait_for(ended.wait(), 60)


async def test_what_is_watched_is_said_in_kubernetes_words() -> None:
    options = WatchOptions("a in (b,c)", "metadata.name=x", "7", bookmarks=True, send_initial_events=True)
    async with serving(watch()) as server, client_of(server) as backend:
        assert [batch async for batch in watching(backend, options)] == []
        path, _, query = server.seen[0].path.partition("?")
    assert path == "/api/v1/namespaces/default/configmaps"
    said = dict(pair.split("=", 1) for pair in query.split("&"))
    assert WATCH_SECONDS_MIN <= int(said.pop("timeoutSeconds")) <= WATCH_SECONDS_MAX
    assert said == {
        "watch": "true",
        "labelSelector": "a%20in%20%28b%2Cc%29",
        "fieldSelector": "metadata.name%3Dx",
        "resourceVersion": "7",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
