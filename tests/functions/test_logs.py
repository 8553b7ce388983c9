"""The output of calls, as somebody sees it who follows their function."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rota.api import Function
from rota.cli.gateway import backend_of
from tests.functions.town import PATIENCE_SECONDS, Town
from tests.server.conftest import served

LOGS = "/v1/functions/default/loud/logs"
CODE = """
    import os, time
    print("loaded")
    def handler(event, context):
        print("first", event["path"], flush=True)
        while event["path"] == "/slow" and not os.path.exists("/workspace/home/go"):
            time.sleep(0.01)
        open("/workspace/home/go", "w").close()
        print("last", event["path"])
"""


class Followed:
    """The text that has come so far."""

    def __init__(self) -> None:
        self.text = ""
        self._more = asyncio.Event()

    async def take(self, pieces: AsyncIterable[bytes]) -> None:
        async for piece in pieces:
            self.text += piece.decode()
            self._more.set()

    async def until(self, words: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while words not in self.text:
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def following(town: Town, query: str = "follow=true") -> AsyncIterator[Followed]:
    made = Followed()
    async with backend_of(town.client).stream("GET", f"{LOGS}?{query}") as pieces:
        reading = asyncio.create_task(made.take(pieces))
        try:
            yield made
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def test_who_follows_a_function_sees_each_line_once_and_when_it_is_written(town: Town) -> None:
    await town.deploy("loud", CODE, concurrency=2, scale={"max": 1})
    before = await town.call("/default/loud/before")
    slow = asyncio.create_task(town.call("/default/loud/slow"))
    await town.written("first /slow")
    async with following(town) as followed:
        await followed.until("first /slow")
        after = await town.call("/default/loud/after")
        await followed.until("last /slow")
        await followed.until("last /after")
    lines = [line.split(" ", 2) for line in followed.text.splitlines()]
    worker = (await town.instances("loud"))[0].metadata.name
    assert {one[1] for one in lines} == {worker}
    told = {name: [text for which, _, text in lines if which == name] for name, _, _ in lines}
    assert told == {
        "-": ["loaded"],
        before.call: ["first /before", "last /before"],
        (await slow).call: ["first /slow", "last /slow"],
        after.call: ["first /after", "last /after"],
    }


async def test_what_two_tries_of_a_task_write_comes_once(town: Town) -> None:
    code = """
        import os
        def handler(event, context):
            print("try", len(os.listdir("/workspace/home")))
            open(f"/workspace/home/{len(os.listdir('/workspace/home'))}", "w").close()
            if len(os.listdir("/workspace/home")) < 2:
                raise RuntimeError("not yet")
    """
    await town.deploy("loud", code)
    async with following(town) as followed:
        await town.run("t", "loud", retry={"limit": 1, "backoffSeconds": 0, "reasons": ["Failed"]})
        await followed.until("try 1")
    assert followed.text.count("try 0") == followed.text.count("try 1") == 1


async def test_the_stream_ends_with_the_function(town: Town) -> None:
    await town.deploy("loud", CODE)
    async with backend_of(town.client).stream("GET", f"{LOGS}?follow=true") as pieces:
        await town.client.delete(Function, "loud")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [piece async for piece in pieces] == []


async def test_logs_are_for_who_may_read_the_calls(tmp_path: Path) -> None:
    async with served(tmp_path / "home", with_controllers=False) as server:
        body = {"name": "v", "scope": "viewer", "namespace": "other"}
        viewer = (await server.ask("POST", "/v1/tokens", body)).json["token"]
        assert (await server.ask("GET", LOGS, token=viewer)).status == 403
        nothing_runs = await server.ask("GET", LOGS)
        assert (nothing_runs.status, nothing_runs.json["reason"]) == (503, "ServiceUnavailable")
