"""The client and a real server of Rota's, over its socket and over TLS; and a cache across what befalls a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from rota import ApiError, Client
from rota.api import ConfigMap
from rota.client import Cache, HttpBackend, Operation, Update
from rota.registry import Answer, WriteOptions
from tests.client.running import running
from tests.client.scripted import answer, client_of, serving, status, watch

PATIENCE_SECONDS = 30.0
KIND = ConfigMap.api
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


@pytest.fixture(params=["socket", "tls"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    async with running(tmp_path / "home") as ready:
        over_tls = request.param == "tls"
        client = Client.connect(kubeconfig=ready.kubeconfig) if over_tls else Client.connect(home=tmp_path / "home")
        yield client
        await client.close()


@pytest.fixture
def backend(client: Client) -> HttpBackend:
    return cast(HttpBackend, client.backend)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_an_apply_says_whether_it_made_the_object(backend: HttpBackend) -> None:
    for data, created in ({}, True), ({"b": "c"}, False):
        operation = Operation("apply", KIND, "default", "a", config_map("a", **data), WriteOptions("tester"))
        (answer,) = await backend.write([operation])
        assert isinstance(answer, Answer) and answer.created == created


async def test_a_delete_says_whether_the_object_is_gone(client: Client, backend: HttpBackend) -> None:
    held = config_map("held")
    held["metadata"]["finalizers"] = ["rota.dev/test"]
    await client.create(held)
    await client.create(config_map("free"))
    for name, gone in ("held", False), ("free", True):
        (answer,) = await backend.write([Operation("delete", KIND, "default", name)])
        assert isinstance(answer, Answer) and answer.gone == gone


async def test_warnings_come_with_the_answer(backend: HttpBackend) -> None:
    unknown = {**config_map("a"), "unheardOf": 7}
    options = WriteOptions("tester", field_validation="Warn")
    (answered,) = await backend.write([Operation("create", KIND, "default", body=unknown, options=options)])
    assert answered.warnings == ('unknown field "unheardOf"',)


async def test_a_batch_is_one_commit(client: Client) -> None:
    made = [Operation("create", KIND, "default", body=config_map(name)) for name in ("a", "b")]
    objects = await client.batch(made)
    assert [obj["metadata"]["name"] for obj in objects] == ["a", "b"]
    with pytest.raises(ApiError) as caught:
        await client.batch([Operation("create", KIND, "default", body=config_map("c")), made[0]])
    assert caught.value.code == 409
    assert [obj.metadata.name for obj in (await client.list(ConfigMap)).items] == ["a", "b"]


async def test_a_batch_takes_every_verb(client: Client) -> None:
    for name in ("patched", "updated", "deleted"):
        await client.create(config_map(name))
    await client.batch(
        [
            Operation("create", KIND, "default", body=config_map("created")),
            Operation("apply", KIND, "default", "applied", config_map("applied")),
            Operation("update", KIND, "default", "updated", config_map("updated", a="b")),
            Operation("patch", KIND, "default", "patched", [{"op": "add", "path": "/data", "value": {"a": "c"}}],
                      patch_type="json"),
            Operation("delete", KIND, "default", "deleted"),
        ]
    )  # fmt: skip
    listed = {obj.metadata.name: obj.data for obj in (await client.list(ConfigMap)).items}
    assert listed == {"applied": {}, "created": {}, "patched": {"a": "c"}, "updated": {"a": "b"}}


async def test_a_server_that_is_no_rota_has_no_batch() -> None:
    async with serving(answer(200, {"gitVersion": "v1.33.0"})) as server, client_of(server) as backend:
        client = Client(backend)
        for _ in range(2):
            with pytest.raises(ApiError, match="no atomic batch: write one object at a time"):
                await client.batch([Operation("create", KIND, "default", body=config_map(name)) for name in "ab"])
        assert not client.atomic
        assert server.requests == [("GET", "/version")]


async def test_what_is_too_much_for_one_request_is_written_in_several(client: Client) -> None:
    large = {name: config_map(name, a="x" * 1_000_000, b="[" * 10_000) for name in "abcdef"}
    many = {f"n{i}": config_map(f"n{i}") for i in range(1_100)}
    made = [Operation("create", KIND, "default", body=body) for body in (large | many).values()]
    answers = await client.write_each(made)
    assert [answer for answer in answers if not isinstance(answer, Answer)] == []
    assert len((await client.list(KIND)).items) == len(made)


async def test_operations_that_a_server_does_not_answer_are_an_error() -> None:
    acts = (answer(200, {"rotaVersion": "1"}), answer(200, {"results": []}))
    async with serving(*acts) as server, client_of(server) as backend:
        (refused,) = await backend.write([Operation("delete", KIND, "default", "a")], atomic=False)
    assert isinstance(refused, ApiError) and refused.message == "the server answered 0 of 1 operations"


async def test_what_only_a_registry_in_this_process_writes_is_not_sent() -> None:
    operation = Operation("amend", KIND, "default", "a")
    async with serving(answer(200, {"rotaVersion": "1"})) as server, client_of(server) as backend:
        for write in (
            backend.write([operation]),
            backend.write([operation] * 2),
            backend.write([operation], atomic=False),
        ):
            with pytest.raises(ApiError, match="amend"):
                await write
        assert server.requests == [("GET", "/version")]


async def test_objects_can_be_had_as_a_table(client: Client, backend: HttpBackend) -> None:
    await client.create(config_map("a"))
    response = await backend.raw("GET", "/api/v1/namespaces/default/configmaps", headers=TABLE)
    table = msgspec.json.decode(response.body)
    assert table["kind"] == "Table"
    assert table["rows"][0]["cells"][0] == "a"


async def test_a_backup_is_streamed(backend: HttpBackend) -> None:
    async with backend.stream("GET", "/v1/backup") as stream:
        content = b"".join([piece async for piece in stream])
    assert content.startswith(b"SQLite format 3\0")


async def test_a_refused_stream_is_an_error(backend: HttpBackend) -> None:
    with pytest.raises(ApiError) as caught:
        await backend.stream("GET", "/v1/nothing").__aenter__()
    assert caught.value.code == 404


# A cache.


class Told:
    """The updates of a cache, to be waited for."""

    def __init__(self, cache: Cache[ConfigMap]) -> None:
        self.updates: list[tuple[str, str]] = []
        self._more = asyncio.Event()
        cache.subscribe(self._hear)

    def _hear(self, update: Update[ConfigMap]) -> None:
        what = "gone" if update.new is None else "new" if update.old is None else "changed"
        self.updates.append((what, update.key.name))
        self._more.set()

    async def until(self, *update: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while update not in self.updates:
                self._more.clear()
                await self._more.wait()


async def test_a_cache_follows_the_server(client: Client) -> None:
    await client.create(config_map("before"))
    async with Cache(client, ConfigMap, namespace="default") as cache:
        told = Told(cache)
        await client.create(config_map("after"))
        await told.until("new", "after")
        await client.patch(ConfigMap, "after", {"data": {"a": "b"}})
        await told.until("changed", "after")
        await client.delete(ConfigMap, "before")
        await told.until("gone", "before")
        assert [obj.data for obj in cache.list()] == [{"a": "b"}]


async def test_a_cache_goes_on_where_it_was_when_the_server_is_started_again(tmp_path: Path) -> None:
    client = Client.connect(home=tmp_path)
    async with AsyncExitStack() as cached:
        async with running(tmp_path):
            await client.create(config_map("before"))
            cache = await cached.enter_async_context(Cache(client, ConfigMap, namespace="default"))
            told = Told(cache)
        async with running(tmp_path):
            await client.create(config_map("after"))
            await told.until("new", "after")
            assert told.updates == [("new", "before"), ("new", "after")]
            assert cache.relists == 0
            await cached.aclose()
            await client.close()


def page(*names: str, version: int) -> dict[str, Any]:
    items = [
        {**config_map(name), "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}}
        for name in names
    ]
    return {"kind": "ConfigMapList", "metadata": {"resourceVersion": str(version)}, "items": items}


def added(name: str, version: int) -> bytes:
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version)}
    return msgspec.json.encode({"type": "ADDED", "object": {**config_map(name), "metadata": meta}}) + b"\n"


async def test_a_cache_takes_up_a_watch_that_was_cut_within_an_event() -> None:
    half = watch(added("b", 11) + added("c", 12)[:20], ends=False)
    acts = [answer(200, page("a", version=10)), half, watch(added("c", 12))]
    async with serving(*acts) as server, client_of(server) as backend:
        async with Cache(Client(backend), ConfigMap, namespace="default") as cache:
            told = Told(cache)
            await told.until("new", "c")
            assert told.updates == [("new", "a"), ("new", "b"), ("new", "c")]
            assert cache.relists == 0
        assert "resourceVersion=10" in server.seen[1].path
        assert "resourceVersion=11" in server.seen[2].path


@pytest.mark.parametrize("told_as", ["status", "event"])
async def test_a_cache_lists_again_when_the_history_is_gone(told_as: str) -> None:
    expired = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
    refusal = status(410, "Expired") if told_as == "status" else watch(expired)
    acts = [answer(200, page("a", version=10)), refusal, answer(200, page("b", version=20)), watch(added("c", 21))]
    async with (
        serving(*acts) as server,
        client_of(server) as backend,
        Cache(Client(backend), ConfigMap, namespace="default") as cache,
    ):
        told = Told(cache)
        await told.until("new", "c")
        assert cache.relists == 1
        assert sorted(obj.metadata.name for obj in cache.list()) == ["b", "c"]


async def test_items_of_a_list_say_what_they_are_also_where_the_server_leaves_it_out() -> None:
    listed = {"kind": "ConfigMapList", "metadata": {}, "items": [{"metadata": {"name": "a"}, "data": {}}]}
    async with serving(answer(200, listed)) as server, client_of(server) as backend:
        found = await Client(backend).list(KIND)
    assert found.items == [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {}}]
