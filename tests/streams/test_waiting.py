"""Answers that are long in coming, and watches: the client knows that the server is alive, or that it is not."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from pathlib import Path

import pytest

from rota.api import Claim, ConfigMap
from rota.cli.following import follow
from rota.cli.patience import Patience
from rota.client import Client, keepalive
from rota.client.failures import TimedOut
from rota.client.http import HttpBackend
from rota.server.app import refusal
from rota.server.heartbeats import INTERIM
from rota.server.http import Response
from rota.server.http_server import HttpServer
from tests.client.scripted import Exchange, client_of, serving
from tests.functions.town import Town
from tests.server.conftest import Server
from tests.server.live import ROTA
from tests.streams.conftest import ANSWER_SECONDS, BEAT_SECONDS, PATIENCE_SECONDS
from tests.streams.wire import Wire, wired
from tests.until import until_async

API = "rota.dev/v1alpha1"
LONG_SECONDS = 1000.0
"""A patience of callers that no test has."""


def pool(replicas: int) -> dict[str, object]:
    template = {
        "containers": [{"name": "main", "command": ["sleep", "100000"]}],
        "isolation": "none",
        "terminationGracePeriodSeconds": 0,
    }
    spec = {"replicas": replicas, "template": template}
    return {"apiVersion": API, "kind": "WorkerPool", "metadata": {"name": "boxes"}, "spec": spec}


async def test_a_claim_waits_for_longer_than_any_answer_may_take(client: Client, wire: Wire) -> None:
    await client.create(pool(0))

    async def claim() -> str:
        async with client.claim("boxes", wait_seconds=LONG_SECONDS) as box:
            return box.instance

    claiming = asyncio.create_task(claim())
    beats = round(3 * ANSWER_SECONDS / BEAT_SECONDS)
    await until_async(lambda: wire.said.count(INTERIM) >= beats or claiming.done())
    assert not claiming.done()
    await client.apply(pool(1), force=True)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await claiming == "boxes-0"
    assert len((await client.list(Claim)).items) == 1


async def test_a_server_that_stops_giving_signs_of_life_is_noticed() -> None:
    async def act(exchange: Exchange) -> None:
        assert exchange.headers["prefer"] == "heartbeat"
        for _ in range(3):
            await exchange.send(INTERIM)
            await asyncio.sleep(0)
        await exchange.gone()

    async with serving(act) as server, client_of(server, read_seconds=ANSWER_SECONDS) as backend:
        with pytest.raises(TimedOut, match=r"said nothing for 0\.5 s"):
            await backend.once("POST", "/v1/pools/default/boxes/claims", b"{}", patience_seconds=LONG_SECONDS)


async def test_only_who_asks_for_them_gets_signs_of_life(town: Town) -> None:
    code = """
        import time
        def handler(event, context):
            time.sleep(0.4)
            return {"path": event["path"], "prefer": event["headers"].get("prefer")}
    """
    await town.deploy("slow", code)
    await town.served("/default/slow/warm")
    plain, asked = await asyncio.gather(
        raw(town.port, "/default/slow/a"), raw(town.port, "/default/slow/b", "Prefer: heartbeat\r\n")
    )
    assert plain.startswith(b"HTTP/1.1 200 ") and plain.endswith(b'{"path": "/a", "prefer": null}')
    beats = asked.count(INTERIM)
    assert beats >= 2 and asked.startswith(beats * INTERIM + b"HTTP/1.1 200 ")
    assert asked.endswith(b'{"path": "/b", "prefer": null}')


async def test_a_call_whose_caller_is_cut_off_gives_its_result_all_the_same(town: Town, tmp_path: Path) -> None:
    code = """
        import os, time
        def handler(event, context):
            print("began", flush=True)
            while event.get("waits") and not os.path.exists("/workspace/home/go"):
                time.sleep(0.01)
            open("/workspace/home/go", "w").close()
            print("ended")
            return {"answer": 42}
    """
    await town.deploy("slow", code, concurrency=2, scale={"max": 1})
    (tmp_path / "wired").mkdir()
    async with wired(tmp_path / "wired" / "rota.sock", town.home / "rota.sock") as wire:
        words = [ROTA, "call", "slow", "--home", str(tmp_path / "wired"), "-d", '{"waits": true}']
        calling = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        await town.written("began")
        wire.cut()
        assert (await town.call("/default/slow")).status == 200
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, err = await calling.communicate()
    assert (calling.returncode, out) == (0, b'{"answer":42}\n'), err
    assert [line for line in err.splitlines() if line in (b"began", b"ended")] == [b"began", b"ended"]


async def raw(port: int, path: str, headers: str = "") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n".encode())
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await reader.read()
    finally:
        writer.close()


async def test_before_http_1_1_there_are_no_signs_of_life(town: Town) -> None:
    await town.deploy("slow", "import time\ndef handler(event, context):\n    time.sleep(0.2)")
    await town.served("/default/slow/warm")
    reader, writer = await asyncio.open_connection("127.0.0.1", town.port)
    writer.write(b"GET /default/slow/a HTTP/1.0\r\nHost: localhost\r\nPrefer: heartbeat\r\n\r\n")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_the_kernel_looks_after_connections_on_which_nothing_is_said() -> None:
    http = HttpServer(lambda request: Response(200, b""), refusal)
    listening = socket.create_server(("127.0.0.1", 0))
    await http.listen(sock=listening)
    _, writer = await asyncio.open_connection(*listening.getsockname())
    await until_async(lambda: http.connections)
    (connection,) = http.connections
    accepted = connection._transport.get_extra_info("socket")
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == keepalive.IDLE_SECONDS
    writer.close()
    await http.close(grace_seconds=0)


async def test_a_watch_goes_on_after_a_cut_and_tells_each_change_once(
    client: Client, server: Server, wire: Wire
) -> None:
    direct = Client(HttpBackend.connect(home=server.home))
    config = {"apiVersion": "v1", "kind": "ConfigMap"}
    seen: list[str] = []

    async def watch() -> None:
        patience = Patience(seconds_max=PATIENCE_SECONDS)
        async for changed, gone in follow(client, ConfigMap.api, namespace=None, patience=patience):
            seen.extend(one["metadata"]["name"] for one in changed)
            seen.extend(f"no {one['metadata']['name']}" for one in gone)

    watching = asyncio.create_task(watch())
    try:
        await direct.create({**config, "metadata": {"name": "one"}})
        await until_async(lambda: seen == ["one"])
        for name in ("two", "three"):
            wire.cut()
            await direct.create({**config, "metadata": {"name": name}})
            await until_async(lambda name=name: name in seen, lambda: f"seen: {seen}")  # type: ignore[misc]
        assert seen == ["one", "two", "three"]
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await direct.close()
