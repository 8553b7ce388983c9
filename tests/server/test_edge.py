"""The edge: webhooks come in by their signature, and nothing else does."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rota.api import Task
from rota.client import Client
from rota.server import edge
from rota.server.edge import EDGE_BODY_BYTES_MAX, Rates
from rota.server.main import Ready, run
from rota.server.sockets import AddressInUse
from tests.server.conftest import Reply, parsed
from tests.server.live import ROTA, live

KEY = b"a secret"
PATIENCE_SECONDS = 30
CRASHES = 3
DELIVERIES = 15
SPAWNER = "/-/hooks/default/hook"


class Running:
    """A server, its edge, and a client of its objects."""

    def __init__(self, ready: Ready, home: Path) -> None:
        self.ready = ready
        self.home = home
        self.port = urlsplit(ready.edge).port
        self.client = Client.connect(home=home)

    async def raw(self, data: bytes) -> Reply:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            await writer.drain()
            return parsed(await reader.read(-1))
        finally:
            writer.close()

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        sent = {"Host": "hooks.example", "Content-Length": str(len(body)), "Connection": "close", **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in sent.items())
        return await self.raw(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)

    async def deliver(self, body: Any, path: str = SPAWNER, key: bytes = KEY, **headers: str) -> Reply:
        content = json.dumps(body).encode()
        return await self.ask("POST", path, content, X_Hub_Signature_256=signature(content, key), **headers)

    async def served(self, body: Any, **more: Any) -> Reply:
        """The answer, once the controllers of the server run."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                reply = await self.deliver(body, **more)
                if reply.status != 503:
                    return reply

    async def spawner(self, **spec: Any) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}}
        await self.client.create({**secret, "stringData": {"secret": KEY.decode()}})
        pool = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "pool"}}
        await self.client.create({**pool, "spec": {"worker": {}, "replicas": 0}})
        await self.client.create(manifest(**spec))


def signature(body: bytes, key: bytes = KEY) -> str:
    return "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "TaskSpawner",
        "metadata": {"name": "hook"},
        "spec": {
            "source": {"webhook": {"secretRef": {"name": "key"}}},
            "taskTemplate": {"command": ["echo", "{{ item.title }}"], "workerPoolRef": {"name": "pool"}},
            **spec,
        },
    }


async def serving(home: Path, **more: Any) -> AsyncIterator[Running]:
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(home, port=0, on_ready=started.set_result, stop=stop, **more))
    await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    running = Running(started.result(), home)
    yield running
    await running.client.close()
    stop.set()
    await asyncio.wait_for(task, PATIENCE_SECONDS)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async for one in serving(tmp_path / "home"):
        yield one


@pytest.fixture
async def idle(tmp_path: Path) -> AsyncIterator[Running]:
    """A server that has no controllers."""
    async for one in serving(tmp_path / "home", with_controllers=False):
        yield one


async def test_a_delivery_is_durable_when_it_is_answered(running: Running) -> None:
    await running.spawner()
    reply = await running.served({"title": "Broken"})
    assert reply.status == 202
    task = await running.client.get(Task.api, reply.json["task"])
    assert task["spec"]["command"] == ["echo", "Broken"]
    again = await running.deliver({"title": "Broken"})
    assert (again.status, again.json) == (200, reply.json)


async def test_each_write_leaves_a_line_in_the_audit_trail(running: Running) -> None:
    await running.spawner()
    name = (await running.served({"title": "Broken"})).json["task"]
    lines = [json.loads(line) for line in (running.home / "audit.log").read_text().splitlines()]
    (line,) = [one for one in lines if one["scope"] == "webhook"]
    assert (line["user"], line["resource"], line["name"]) == ("taskspawner/hook", "tasks.rota.dev", name)


async def test_who_does_not_sign_cannot_tell_what_there_is(running: Running) -> None:
    await running.spawner()
    await running.served({"title": "x"})
    body = b'{"title": "x"}'
    replies = [
        await running.deliver({"title": "x"}, path, key=b"wrong")
        for path in (SPAWNER, "/-/hooks/default/nobody", "/-/hooks/nowhere/hook", "/-/hooks/default/%2e%2e")
    ]
    replies += [await running.ask("POST", SPAWNER, body), await running.ask("POST", "/-/hooks/a/b", body)]
    assert {reply.status for reply in replies} == {401}
    assert len({(reply.body, tuple(sorted(reply.headers.items()))) for reply in replies}) == 1


@pytest.mark.parametrize(
    ("spec", "body", "status", "retry"),
    [
        ({"suspend": True}, {"title": "x"}, 503, True),
        ({}, {"name": "x"}, 422, False),
        ({}, [], 400, False),
        (
            {"source": {"webhook": {"secretRef": {"name": "key"}, "filters": [{"path": "a", "values": ["b"]}]}}},
            {},
            200,
            False,
        ),
    ],
)
async def test_what_comes_to_nothing_has_its_answer(
    running: Running, spec: dict[str, Any], body: Any, status: int, retry: bool
) -> None:
    await running.spawner(**spec)
    await running.served({}, key=b"wrong")
    reply = await running.deliver(body)
    assert (reply.status, "retry-after" in reply.headers) == (status, retry)
    assert reply.json.keys() == ({"ignored"} if status == 200 else {"error"})


async def test_at_the_limit_there_is_a_time_to_come_back(running: Running) -> None:
    await running.spawner(maxConcurrency=1)
    await running.served({"title": "one"})
    reply = await running.deliver({"title": "two"})
    assert reply.status == 429 and int(reply.headers["retry-after"]) > 0 and "maxConcurrency" in reply.json["error"]


async def test_without_controllers_everybody_is_told_to_come_back(idle: Running) -> None:
    replies = [await idle.deliver({}), await idle.deliver({}, "/-/hooks/default/nobody", key=b"wrong")]
    assert [reply.status for reply in replies] == [503, 503] and replies[0].body == replies[1].body
    assert all(int(reply.headers["retry-after"]) > 0 for reply in replies)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/apis/rota.dev/v1alpha1/namespaces/default/tasks",
        "/v1/status",
        "/v1/tokens",
        "/version",
        "/openapi/v3",
        "/readyz",
        "/-/hooks",
        "/-/hooks/default",
        "/-/hooks//hook",
        "/-/hooks/default/hook/more",
        "/-/other",
        "/default/function",
        "/-/hooks/../../api",
    ],
)
async def test_nothing_of_the_other_listeners_is_here(idle: Running, path: str) -> None:
    config = json.loads(idle.ready.kubeconfig.read_text())
    token = config["users"][0]["user"]["token"]
    # What could be a function is not served without controllers, whether there is one or not.
    could_be_a_function = path.count("/") > 1 and not path.startswith("/-/")
    for method in ("GET", "POST"):
        reply = await idle.ask(method, path, Authorization=f"Bearer {token}")
        assert reply.status == (503 if could_be_a_function else 404)


async def test_health_is_told_and_a_webhook_is_a_post(idle: Running) -> None:
    assert (await idle.ask("GET", "/healthz")).body == b"ok"
    reply = await idle.ask("GET", SPAWNER)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


async def test_no_answer_sets_a_cookie_or_is_for_other_origins(idle: Running) -> None:
    for reply in (await idle.ask("GET", "/healthz", Origin="https://evil.example"), await idle.ask("GET", "/")):
        assert not {"set-cookie", "access-control-allow-origin"} & reply.headers.keys()


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(idle: Running) -> None:
    head = f"POST {SPAWNER} HTTP/1.1\r\nHost: x\r\nContent-Length: {EDGE_BODY_BYTES_MAX + 1}\r\n\r\n"
    reply = await idle.raw(head.encode())
    assert reply.status == 413 and "larger than" in reply.json["error"]


async def test_what_is_not_http_is_refused_in_its_own_words(idle: Running) -> None:
    assert (await idle.raw(b"\x16\x03\x01 hello\r\n\r\n")).json["error"].startswith("that is not HTTP/1.1")


async def test_one_webhook_that_is_called_too_often_does_not_take_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "HOOK_REQUESTS_BURST", 3.0)
    monkeypatch.setattr(edge, "HOOK_REQUESTS_PER_SECOND", 0.01)
    async for one in serving(tmp_path / "home"):
        await one.served({}, path="/-/hooks/default/none")
        replies = [await one.deliver({}, "/-/hooks/default/a") for _ in range(5)]
        assert [reply.status for reply in replies] == [401, 401, 401, 429, 429]
        assert int(replies[-1].headers["retry-after"]) == 100
        assert (await one.deliver({}, "/-/hooks/default/b")).status == 401


def test_a_rate_is_a_burst_and_then_so_many_a_second() -> None:
    rates = Rates(2.0, 3.0)
    assert [rates.pause("a", 100.0) for _ in range(4)] == [0, 0, 0, 1]
    assert [rates.pause("a", 101.0) for _ in range(3)] == [0, 0, 1]
    assert [rates.pause("a", 1000.0) for _ in range(4)] == [0, 0, 0, 1]


async def test_a_port_that_is_taken_is_told_before_anything_is_touched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUse, match=f"port {port} .* choose another with --edge-port"):
            await run(tmp_path / "home", port=0, edge_port=port)
    assert not (tmp_path / "home" / "rota.db").exists()


async def test_the_status_of_the_server_says_where_the_edge_is(idle: Running) -> None:
    raw = await idle.client.backend.raw("GET", "/v1/status")  # type: ignore[attr-defined]
    assert json.loads(raw.body)["edge"] == idle.ready.edge == f"http://127.0.0.1:{idle.port}"


def test_rota_up_says_where_webhooks_go_and_takes_one(tmp_path: Path) -> None:
    with live(tmp_path / "home", "--allow-api", "http://git.example:3000/api/v1") as server:
        address = _edge_of(server.home)
        server.kubectl("create", "secret", "generic", "key", f"--from-literal=secret={KEY.decode()}")
        pool = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "pool"}}
        server.kubectl("apply", "-f", "-", stdin=json.dumps({**pool, "spec": {"worker": {}, "replicas": 0}}))
        server.kubectl("apply", "-f", "-", stdin=json.dumps(manifest()))
        first = _curl(address, {"title": "Broken"})
        assert _curl(address, {"title": "Broken"}) == first
        assert [one["metadata"]["name"] for one in server.json("get", "tasks")["items"]] == [first["task"]]
        assert re.search(r"hook\s+false\s+1\s+1\s+1", server.kubectl("get", "taskspawner"))


def test_what_was_answered_is_there_after_a_crash_and_nothing_is_there_twice(tmp_path: Path) -> None:
    with live(tmp_path / "home") as server:
        server.kubectl("create", "secret", "generic", "key", f"--from-literal=secret={KEY.decode()}")
        server.kubectl("apply", "-f", "-", stdin=json.dumps(manifest()))
        answered: dict[int, str] = {}
        for _ in range(CRASHES):
            address = _edge_of(server.home)
            _curl(address, {"title": "0"})
            under_way = [_curling(address, {"title": str(number)}) for number in range(DELIVERIES)]
            under_way[0].communicate(timeout=PATIENCE_SECONDS)
            server.kill()
            said = [one.communicate(timeout=PATIENCE_SECONDS)[0] for one in under_way]
            for number, text in enumerate(said):
                if text:
                    name = json.loads(text)["task"]
                    assert answered.setdefault(number, name) == name
            server.start()
        address = _edge_of(server.home)
        for number in range(DELIVERIES):
            name = _curl(address, {"title": str(number)})["task"]
            assert answered.setdefault(number, name) == name
        tasks = server.json("get", "tasks")["items"]
        assert sorted(one["metadata"]["name"] for one in tasks) == sorted(answered.values())
        assert server.json("get", "taskspawner", "hook")["status"]["created"] == DELIVERIES


def _curl(address: str, body: Any) -> Any:
    """Return the answer that a patient sender gets."""
    done = _curling(address, body, "--fail", "--retry", "20", "--retry-delay", "1")
    said, _ = done.communicate(timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, said
    return json.loads(said)


def _curling(address: str, body: Any, *options: str) -> subprocess.Popen[str]:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    content = json.dumps(body)
    signed = ["-H", f"X-Rota-Signature: {signature(content.encode())}", f"{address}{SPAWNER}"]
    return subprocess.Popen(["curl", "-s", *options, "-d", content, *signed], stdout=subprocess.PIPE, text=True)


def test_an_api_that_is_no_address_is_bad_usage(tmp_path: Path) -> None:
    ran = subprocess.run(
        [ROTA, "up", "--home", str(tmp_path), "--port", "0", "--allow-api", "git.example"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2 and "--allow-api: 'git.example' is no address of an API" in ran.stderr


def _edge_of(home: Path) -> str:
    async def ask() -> str:
        client = Client.connect(home=home)
        try:
            raw = await client.backend.raw("GET", "/v1/status")  # type: ignore[attr-defined]
        finally:
            await client.close()
        found: str = json.loads(raw.body)["edge"]
        return found

    return asyncio.run(ask())
