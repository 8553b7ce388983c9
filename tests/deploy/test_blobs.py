"""Blobs: what is kept under a digest has that digest, whole or not at all; and who may have it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from rota import Client
from rota.api import KINDS
from rota.client import HttpBackend
from rota.engine import StoreObjects
from rota.engine.clock import VirtualClock, VirtualTimer
from rota.manifest.code_stores import GatewayBlobs
from rota.runtime import blobs as kept
from rota.runtime.blobs import COUNTED_BYTES_MIN, BlobRefused, Blobs, digest_of
from rota.runtime.interface import Subject
from rota.server.collectors import BLOBS_SECONDS, BlobCollector
from rota.server.signed_tokens import SignedTokens
from tests.conformance.planes import LocalPlane, memory
from tests.server.conftest import Reply, Server, served
from tests.until import until_async, until_so

CODE = b"def handler(event, context): return 1\n" * 1000
DIGEST = digest_of(CODE)


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for piece in given:
        yield piece


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home", with_controllers=False) as running:
        yield running


async def put(server: Server, digest: str, body: bytes, token: str = "") -> Reply:
    return await server.ask("PUT", f"/v1/blobs/{digest}", body, token=token)


async def token(server: Server, scope: str) -> str:
    made = await server.ask("POST", "/v1/tokens", {"name": scope, "scope": scope, "namespace": ""})
    secret: str = made.json["token"]
    return secret


def files(server: Server) -> list[str]:
    return sorted(path.name for path in (server.home / "blobs").glob("*"))


def function(digest: str, name: str = "f") -> dict[str, Any]:
    spec = {"entrypoint": "a:b", "source": {"digest": digest}}
    return {"apiVersion": "rota.dev/v1alpha1", "kind": "Function", "metadata": {"name": name}, "spec": spec}


# Over HTTP.


async def test_a_blob_that_was_put_is_there_and_can_be_had(server: Server) -> None:
    assert (await server.ask("HEAD", f"/v1/blobs/{DIGEST}")).status == 404
    assert (await put(server, DIGEST, CODE)).status == 201
    assert (await put(server, DIGEST, CODE)).status == 200, "it is there already"
    assert (await server.ask("HEAD", f"/v1/blobs/{DIGEST}")).status == 200
    stat = await server.ask("GET", f"/v1/blobs/{DIGEST}?stat=true")
    assert stat.json == {"digest": DIGEST, "bytes": len(CODE)}
    assert (await server.ask("GET", f"/v1/blobs/{DIGEST}")).body == CODE
    assert files(server) == [DIGEST.removeprefix("sha256:")]


async def test_what_has_another_digest_is_refused_and_not_kept(server: Server) -> None:
    refused = await put(server, DIGEST, CODE + b"x")
    assert refused.status == 400 and "not sha256:" in refused.json["message"]
    assert files(server) == []


@pytest.mark.parametrize("name", ["sha256:12", "md5:" + "0" * 64, "sha256:" + "A" * 64, "..%2F..%2Ftokens.json"])
async def test_what_is_no_digest_is_refused(server: Server, name: str) -> None:
    for method in ("PUT", "GET"):
        assert (await server.ask(method, f"/v1/blobs/{name}", b"x")).status in (400, 404)
    assert files(server) == []


async def test_a_blob_that_is_cut_off_leaves_nothing(server: Server) -> None:
    _, writer = await server.connect()
    head = f"PUT /v1/blobs/{DIGEST} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n"
    writer.write(f"{head}Content-Length: {len(CODE)}\r\n\r\n".encode() + CODE[:1000])
    await writer.drain()
    await until_async(lambda: files(server), "no file", poll_seconds=0)
    writer.transport.abort()
    await until_so(lambda: files(server), lambda there: not there, "no files", poll_seconds=0)
    assert (await put(server, DIGEST, CODE)).status == 201


async def test_a_blob_that_says_it_is_too_large_is_refused_before_it_comes(server: Server) -> None:
    huge = f"PUT /v1/blobs/{DIGEST} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n"
    said = await server.raw(f"{huge}Content-Length: {kept.BLOB_BYTES_MAX + 1}\r\nExpect: 100-continue\r\n\r\n".encode())
    assert said.status == 413


async def test_two_at_once_are_one_blob(server: Server) -> None:
    answers = await asyncio.gather(*(put(server, DIGEST, CODE) for _ in range(4)))
    assert {answer.status for answer in answers} <= {200, 201}
    assert files(server) == [DIGEST.removeprefix("sha256:")]
    assert (await server.ask("GET", f"/v1/blobs/{DIGEST}")).body == CODE


async def test_deployers_put_and_get_and_viewers_do_neither(server: Server) -> None:
    deployer, viewer = await token(server, "deployer"), await token(server, "viewer")
    assert (await put(server, DIGEST, CODE, viewer)).status == 403
    assert (await put(server, DIGEST, CODE, deployer)).status == 201
    assert (await server.ask("GET", f"/v1/blobs/{DIGEST}", token=deployer)).body == CODE
    assert (await server.ask("GET", f"/v1/blobs/{DIGEST}", token=viewer)).status == 403
    assert (await server.ask("GET", f"/v1/blobs/{DIGEST}", token=None)).status == 401


async def test_a_worker_gets_the_code_of_its_own_namespace_and_puts_nothing(server: Server) -> None:
    await put(server, DIGEST, CODE)
    spec = {"containers": [{"name": "main"}], "templateHash": "h", "ordinal": 0}
    instance = {"apiVersion": "rota.dev/v1alpha1", "kind": "Instance", "metadata": {"name": "w"}, "spec": spec}
    made = await server.ask("POST", "/apis/rota.dev/v1alpha1/namespaces/default/instances", instance)
    subject = Subject("default", "w", made.json["metadata"]["uid"])
    worker = SignedTokens(server.home / "worker.key", "worker").of(subject)
    assert (await server.ask("GET", f"/v1/blobs/{DIGEST}", token=worker)).status == 403
    await server.ask("POST", "/apis/rota.dev/v1alpha1/namespaces/default/functions", function(DIGEST))
    assert (await server.ask("GET", f"/v1/blobs/{DIGEST}", token=worker)).body == CODE
    assert (await put(server, digest_of(b"x"), b"x", worker)).status == 403
    await server.ask("DELETE", "/apis/rota.dev/v1alpha1/namespaces/default/instances/w")
    assert (await server.ask("GET", f"/v1/blobs/{DIGEST}", token=worker)).status == 403


class Asked(VirtualClock):
    """Remembers what it is to call back for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    def call_at(self, when: float, callback: Callable[[], None]) -> VirtualTimer:
        self.asked.append(when)
        return super().call_at(when, callback)


async def test_what_no_function_refers_to_goes_when_it_is_time_though_nobody_asks(tmp_path: Path) -> None:
    used, unused, new = (digest_of(one) for one in (b"used", b"unused", b"new"))
    blobs, clock = Blobs(tmp_path), Asked()
    async with memory(tmp_path) as plane:
        assert isinstance(plane, LocalPlane)
        await Client(plane.backend).create(function(used))
        async with BlobCollector(blobs, StoreObjects(plane.registry), clock):
            await until_async(lambda: clock.asked == [BLOBS_SECONDS])
            for digest, content in ((used, b"used"), (unused, b"unused"), (new, b"new")):
                await blobs.put(digest, pieces(content))
            for digest in (used, unused):
                os.utime(blobs.path(digest), (0, 0))
            clock.advance(BLOBS_SECONDS)
            await until_async(lambda: clock.asked == [BLOBS_SECONDS, 2 * BLOBS_SECONDS])
    assert [blobs.size(one) is None for one in (used, unused, new)] == [False, True, False]


async def test_a_server_that_begins_looks_what_nothing_refers_to(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "home")
    await blobs.put(DIGEST, pieces(CODE))
    os.utime(blobs.path(DIGEST), (0, 0))
    async with served(tmp_path / "home", with_controllers=False):
        await until_async(lambda: blobs.size(DIGEST) is None)


async def test_the_client_asks_before_it_sends(server: Server) -> None:
    backend = HttpBackend.connect(kubeconfig=server.kubeconfig)
    try:
        store = GatewayBlobs(backend)
        assert not await store.has(DIGEST)
        await store.put(DIGEST, CODE)
        assert await store.has(DIGEST)
        created = await Client(backend).create(function(DIGEST))
        assert (await Client(backend).get(KINDS["Function"], "f"))["spec"] == created["spec"]
    finally:
        await backend.close()


# In a folder.


async def test_the_bounds_hold_while_a_blob_comes(tmp_path: Path) -> None:
    size = COUNTED_BYTES_MIN
    blobs = Blobs(tmp_path, blob_bytes_max=size, blobs_bytes_max=size * 3 // 2)
    with pytest.raises(BlobRefused, match=f"a blob has at most {size} bytes"):
        await blobs.put(digest_of(b"a" * (size + 1)), pieces(b"a" * size, b"a"))
    assert await blobs.put(digest_of(b"b" * size), pieces(b"b" * size))
    # A small one counts as well: it is a file.
    for content in (b"c" * size, b"c"):
        with pytest.raises(BlobRefused, match=f"all blobs together have at most {size * 3 // 2} bytes"):
            await blobs.put(digest_of(content), pieces(content))
    assert [path.stat().st_size for path in (tmp_path / "blobs").iterdir()] == [size]


async def test_what_a_killed_server_left_unfinished_goes(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    await blobs.put(DIGEST, pieces(CODE))
    left = tmp_path / "blobs" / "incoming-x"
    left.write_bytes(b"half")
    assert blobs.collect({DIGEST}) == [] and left.exists(), "it may still be on its way"
    os.utime(left, (0, 0))
    blobs.collect({DIGEST})
    assert not left.exists() and blobs.size(DIGEST) == len(CODE)


async def test_asking_for_a_blob_keeps_it_though_nothing_refers_to_it_yet(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    await blobs.put(DIGEST, pieces(CODE))
    os.utime(blobs.path(DIGEST), (0, 0))
    assert blobs.keep(DIGEST)
    assert blobs.collect(()) == []
    os.utime(blobs.path(DIGEST), (0, 0))
    assert blobs.collect(()) == [DIGEST] and not blobs.keep(DIGEST)
