"""The right to `/v1/stream`, and that a worker's token opens nothing else."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from rota.api import Instance
from rota.client import Client
from rota.client.upgrading import connect_unix
from rota.client.websocket import handshake
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import PROTOCOL, Report, encode
from rota.runtime.runners import BAD_MESSAGE
from rota.server.main import Ready
from rota.server.signed_tokens import SignedTokens
from tests.client.running import running
from tests.workers.running import end_of

Way = Literal["unix", "tls"]
WAYS = pytest.mark.parametrize("way", ["unix", "tls"])
INSTANCES = "/apis/rota.dev/v1alpha1/namespaces/default/instances"
OPENED = 101


class Place(NamedTuple):
    """A server with an instance that runs nothing, for a gate holds it."""

    ready: Ready
    home: Path
    client: Client
    tokens: SignedTokens
    subject: Subject

    @property
    def own(self) -> str:
        return self.tokens.of(self.subject)

    @property
    def admin(self) -> str:
        return str(json.loads(self.ready.kubeconfig.read_text())["users"][0]["user"]["token"])

    async def opens(self, way: Way, token: str | None, path: str = "default/w-0") -> int:
        """The status with which a stream is answered."""
        asked = handshake.request_headers(handshake.new_key(), (PROTOCOL,))
        return await self.ask("GET", f"/v1/stream/{path}", token, way=way, headers=asked)

    async def ask(
        self,
        method: str,
        path: str,
        token: str | None,
        *,
        way: Way,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> int:
        """The status of an answer."""
        if way == "unix":
            reader, writer = await asyncio.open_unix_connection(str(self.ready.socket))
        else:
            port = int(self.ready.url.rpartition(":")[2])
            context = ssl.create_default_context(cafile=str(self.home / "ca.crt"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        content = b"" if body is None else json.dumps(body).encode()
        type_ = "application/merge-patch+json" if method == "PATCH" else "application/json"
        sent = {"Host": "localhost", "Content-Type": type_, "Content-Length": str(len(content)), **(headers or {})}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + content)
            return int((await reader.readline()).split()[1])
        finally:
            writer.transport.abort()


async def _make(client: Client) -> Subject:
    made: Any = await client.create(
        {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "Instance",
            "metadata": {"name": "w-0", "namespace": "default"},
            "spec": {
                "containers": [{"name": "worker"}],
                "worker": {"type": "shell"},
                "schedulingGates": [{"name": "tests.example/never"}],
                "templateHash": "x",
                "ordinal": 0,
            },
        }
    )
    return Subject("default", "w-0", made["metadata"]["uid"])


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with running(tmp_path) as ready:
        client = Client.connect(home=tmp_path)
        try:
            yield Place(ready, tmp_path, client, SignedTokens(tmp_path / "worker.key", "worker"), await _make(client))
        finally:
            await client.close()


@WAYS
async def test_an_instances_own_runner_is_let_in(place: Place, way: Way) -> None:
    assert await place.opens(way, place.own) == OPENED


@WAYS
async def test_a_runner_of_another_version_is_refused(place: Place, way: Way) -> None:
    asked = handshake.request_headers(handshake.new_key(), ("rota-runner-v1",))
    assert await place.ask("GET", "/v1/stream/default/w-0", place.own, way=way, headers=asked) == 400


async def test_without_a_token_nobody_is_let_in(place: Place) -> None:
    assert await place.opens("tls", None) == 401


async def test_who_runs_the_server_is_no_worker_either(place: Place) -> None:
    assert await place.opens("unix", None) == 403


@WAYS
async def test_another_instances_token_is_refused(place: Place, way: Way) -> None:
    assert await place.opens(way, place.tokens.of(place.subject._replace(name="w-1"))) == 403


@WAYS
async def test_a_namesakes_token_of_another_namespace_is_refused(place: Place, way: Way) -> None:
    other = place.tokens.of(place.subject._replace(namespace="other"))
    assert await place.opens(way, other) == 403
    assert await place.opens(way, other, "other/w-0") == 404


@WAYS
async def test_the_token_of_an_instance_that_was_made_anew_is_refused(place: Place, way: Way) -> None:
    before = place.own
    await place.client.delete(Instance, "w-0")
    assert await place.opens(way, before) == 404
    again = await _make(place.client)
    assert again.uid != place.subject.uid
    assert await place.opens(way, before) == 404
    assert await place.opens(way, place.tokens.of(again)) == OPENED


@WAYS
async def test_an_admin_is_no_worker(place: Place, way: Way) -> None:
    assert await place.opens(way, place.admin) == 403


@WAYS
async def test_a_signature_that_was_changed_is_nobodys(place: Place, way: Way) -> None:
    changed = place.own[:-1] + ("0" if place.own[-1] != "0" else "1")
    for wrong in (changed, place.own[:-1], place.own + "0", place.own.rpartition("/")[0]):
        assert await place.opens(way, wrong) == 401


@WAYS
async def test_a_token_that_another_home_signed_is_nobodys(place: Place, way: Way, tmp_path: Path) -> None:
    assert await place.opens(way, SignedTokens(tmp_path / "other.key", "worker").of(place.subject)) == 401


@WAYS
async def test_a_token_has_so_many_parts_and_no_more(place: Place, way: Way) -> None:
    head, _, signature = place.own.rpartition("/")
    assert await place.opens(way, f"{head}/extra/{signature}") == 401


GATEWAY = [
    ("GET", "/v1/status"),
    ("GET", "/v1/tokens"),
    ("POST", "/v1/tokens"),
    ("DELETE", "/v1/tokens/x"),
    ("GET", "/v1/metrics"),
    ("GET", "/v1/backup"),
    ("GET", "/v1/logs/default/w-0"),
    ("GET", "/v1/exec/default/w-0?command=id&stdout=true"),
    ("GET", "/v1/why/instances/default/w-0"),
    ("GET", "/v1/why/workerpools/default/p"),
]
"""Everything of the gateway that is not a runner's, nor a batch."""


@WAYS
async def test_a_workers_token_opens_nothing_else_of_the_gateway(place: Place, way: Way) -> None:
    for method, path in GATEWAY:
        body: Any = {} if method == "POST" else None
        assert await place.ask(method, path, place.own, way=way, body=body) == 403, (method, path)


@WAYS
async def test_a_workers_token_is_no_way_into_a_batch(place: Place, way: Way) -> None:
    one = {"verb": "delete", "apiVersion": "rota.dev/v1alpha1", "kind": "Instance", "namespace": "default"}
    body = {"operations": [{**one, "name": "w-0"}]}
    assert await place.ask("POST", "/v1/batch", place.own, way=way, body=body) == 403


OBJECTS = [
    ("GET", INSTANCES),
    ("GET", f"{INSTANCES}?watch=true"),
    ("GET", f"{INSTANCES}/w-0"),
    ("PATCH", f"{INSTANCES}/w-0"),
    ("PATCH", f"{INSTANCES}/w-0/status"),
    ("PUT", f"{INSTANCES}/w-0/status"),
    ("DELETE", f"{INSTANCES}/w-0"),
    ("POST", INSTANCES),
    ("DELETE", INSTANCES),
    ("GET", "/api/v1/namespaces/default/secrets"),
    ("GET", "/api/v1/namespaces"),
    ("POST", "/api/v1/namespaces/default/events"),
    ("GET", "/apis/rota.dev/v1alpha1/namespaces/default/workspaces"),
]


@WAYS
async def test_a_workers_token_patches_no_instance_not_even_its_own_nor_any_other_object(
    place: Place, way: Way
) -> None:
    before = await place.client.get(Instance, "w-0")
    for method, path in OBJECTS:
        body = {"metadata": {"name": "w-0"}} if method in ("PATCH", "PUT", "POST") else None
        assert await place.ask(method, path, place.own, way=way, body=body) == 403, (method, path)
    after = await place.client.get(Instance, "w-0")
    assert (after.spec, after.metadata.uid, after.metadata.labels) == (before.spec, before.metadata.uid, {})


async def test_the_key_is_the_servers_alone_and_stays(place: Place) -> None:
    key = place.home / "worker.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert SignedTokens(key, "worker").user(place.own) is not None


async def test_a_token_of_scope_worker_that_a_person_made_is_no_instances(place: Place) -> None:
    reader, writer = await asyncio.open_unix_connection(str(place.ready.socket))
    content = json.dumps({"name": "w-0", "scope": "worker", "namespace": "default"})
    head = f"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write((head + content).encode())
    answer = (await reader.read()).decode()
    writer.close()
    made = json.loads(answer.partition("\r\n\r\n")[2])["token"]
    assert await place.opens("unix", made) in (401, 403, 404)


async def test_rubbish_on_a_stream_ends_it_and_the_next_one_is_let_in(place: Place) -> None:
    target, headers = "/v1/stream/default/w-0", {"Authorization": f"Bearer {place.own}"}
    stream = await connect_unix(str(place.ready.socket), target, headers=headers, protocols=(PROTOCOL,))
    stream.send(encode([Report(0, "Idle")]).decode())
    stream.send("{")
    assert (await end_of(stream)).code == BAD_MESSAGE
    assert await place.opens("unix", place.own) == OPENED
