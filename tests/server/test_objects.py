"""The object API over HTTPS: URLs, codes, forms and words."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import POOLS, Server, pool, served

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """Without controllers: nobody but the test changes an object."""
    async with served(tmp_path / "home", with_controllers=False) as running:
        yield running


async def test_the_verbs_answer_with_the_codes_of_kubernetes(server: Server) -> None:
    made = await server.ask("POST", POOLS, pool("a", replicas=1))
    assert made.status == 201
    assert made.json["metadata"]["uid"]
    assert (await server.ask("POST", POOLS, pool("a"))).status == 409
    assert (await server.ask("GET", f"{POOLS}/a")).json == made.json
    changed = made.json | {"spec": {**made.json["spec"], "replicas": 2}}
    assert (await server.ask("PUT", f"{POOLS}/a", changed)).status == 200
    assert (await server.ask("PUT", f"{POOLS}/a", changed)).json["reason"] == "Conflict"
    gone = await server.ask("DELETE", f"{POOLS}/a")
    assert (gone.status, gone.json["status"], gone.json["details"]["name"]) == (200, "Success", "a")
    assert (await server.ask("GET", f"{POOLS}/a")).json["reason"] == "NotFound"


@pytest.mark.parametrize(
    ("type_", "patch", "replicas"),
    [
        ("application/merge-patch+json", {"spec": {"replicas": 7}}, 7),
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/replicas", "value": 8}], 8),
    ],
)
async def test_patches_by_content_type(server: Server, type_: str, patch: Any, replicas: int) -> None:
    await server.ask("POST", POOLS, pool("a", replicas=1))
    patched = await server.ask("PATCH", f"{POOLS}/a", patch, headers={"Content-Type": type_})
    assert patched.json["spec"]["replicas"] == replicas


async def test_apply_makes_then_changes(server: Server) -> None:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    text = b"""
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: a}
spec: {worker: {type: shell}, replicas: 3}
"""
    path = f"{POOLS}/a?fieldManager=alice"
    assert (await server.ask("PATCH", path, text, headers=headers)).status == 201
    again = await server.ask("PATCH", path, text, headers=headers)
    assert (again.status, again.json["spec"]["replicas"]) == (200, 3)
    other = text.replace(b"3", b"4")
    refused = await server.ask("PATCH", f"{POOLS}/a?fieldManager=bob", other, headers=headers)
    assert refused.json["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    forced = await server.ask("PATCH", f"{POOLS}/a?fieldManager=bob&force=true", other, headers=headers)
    assert forced.json["spec"]["replicas"] == 4


async def test_apply_needs_a_manager_and_force_needs_apply(server: Server) -> None:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    assert (await server.ask("PATCH", f"{POOLS}/a", pool("a"), headers=headers)).status in (400, 422)
    merge = {"Content-Type": "application/merge-patch+json"}
    await server.ask("POST", POOLS, pool("a"))
    assert (await server.ask("PATCH", f"{POOLS}/a?force=true", {}, headers=merge)).status == 422


async def test_the_scale_subresource_is_a_scale(server: Server) -> None:
    await server.ask("POST", POOLS, pool("a", replicas=1))
    scale = await server.ask("GET", f"{POOLS}/a/scale")
    assert (scale.json["kind"], scale.json["spec"]) == ("Scale", {"replicas": 1})
    scale.json["spec"]["replicas"] = 5
    put = await server.ask("PUT", f"{POOLS}/a/scale", scale.json | {"spec": {"replicas": 5}})
    assert (put.json["kind"], put.json["spec"]) == ("Scale", {"replicas": 5})


async def test_a_table_is_given_to_who_asks_for_one(server: Server) -> None:
    await server.ask("POST", POOLS, pool("a"))
    table = (await server.ask("GET", POOLS, headers={"Accept": TABLE})).json
    assert table["kind"] == "Table"
    assert table["columnDefinitions"][0]["name"].lower() == "name"
    assert table["rows"][0]["cells"][0] == "a"
    assert table["rows"][0]["object"]["metadata"]["name"] == "a"


async def test_metadata_alone_is_given_to_who_asks_for_it(server: Server) -> None:
    await server.ask("POST", POOLS, pool("a"))
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    partial = (await server.ask("GET", f"{POOLS}/a", headers={"Accept": accept})).json
    assert partial["kind"] == "PartialObjectMetadata"
    assert "spec" not in partial


async def test_what_cannot_be_given_or_taken_is_refused(server: Server) -> None:
    assert (await server.ask("GET", POOLS, headers={"Accept": "text/html"})).status == 406
    assert (await server.ask("POST", POOLS, b"<a/>", headers={"Content-Type": "text/xml"})).status == 415
    assert (await server.ask("POST", POOLS, b"{", headers={"Content-Type": "application/json"})).status == 400
    assert (await server.ask("POST", f"{POOLS}/a", {})).status == 405
    assert (await server.ask("GET", "/apis/rota.dev/v1alpha1/namespaces/default/gadgets")).status == 404


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 50_000,
        b"- " * 20_000,
        b"{a: " * 20_000,
        b"a: &x [*x]",
        b"a: 1\n---\nb: 2",
        b"\xff",
        b"a: [",
        b"a: 1\na: 2",
        b"",
    ],
    ids=["deep list", "deep dashes", "deep map", "ring", "two documents", "no text", "open", "key twice", "empty"],
)
async def test_yaml_that_makes_no_sense_is_refused(server: Server, text: bytes) -> None:
    for type_, method, path in (
        ("application/yaml", "POST", POOLS),
        ("application/apply-patch+yaml", "PATCH", f"{POOLS}/a?fieldManager=me"),
    ):
        refused = await server.ask(method, path, text, headers={"Content-Type": type_})
        assert (refused.status, refused.json["reason"]) == (400, "BadRequest")


async def test_json_that_is_nested_too_deep_is_refused(server: Server) -> None:
    deep: Any = 1
    for _ in range(80):
        deep = {"a": [deep]}
    task: dict[str, Any] = {"apiVersion": "rota.dev/v1alpha1", "kind": "Task", "metadata": {"name": "a"}}
    task["spec"] = {"function": {"name": "f", "payload": {"deep": deep}}}
    refused = await server.ask("POST", "/apis/rota.dev/v1alpha1/namespaces/default/tasks", task)
    assert (refused.status, refused.json["message"]) == (400, "the body is nested more than 100 levels deep")
    brackets = {"text": '[{"' * 300 + "\\"}
    task["spec"] = {"function": {"name": "f", "payload": brackets}}
    assert (await server.ask("POST", "/apis/rota.dev/v1alpha1/namespaces/default/tasks", task)).status == 201


async def test_yaml_bombs_are_refused(server: Server) -> None:
    bomb = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for i in range(1, 9):
        bomb += b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 10))
    assert (await server.ask("POST", POOLS, bomb, headers={"Content-Type": "application/yaml"})).status == 400


async def test_unknown_fields_are_a_warning_header(server: Server) -> None:
    answer = await server.ask("POST", POOLS, pool("a", colour="red"))
    assert (answer.status, answer.warnings) == (201, ['299 - "unknown field \\"spec.colour\\""'])
    strict = await server.ask("POST", f"{POOLS}?fieldValidation=Strict", pool("b", colour="red"))
    assert strict.status == 400


async def test_large_lists_are_compressed_for_who_can_read_that(server: Server) -> None:
    for i in range(40):
        body = pool(f"p{i}") | {"metadata": {"name": f"p{i}", "annotations": {"a": "x" * 8000}}}
        await server.ask("POST", POOLS, body)
    plain = await server.ask("GET", POOLS)
    packed = await server.ask("GET", POOLS, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) / 10
    assert gzip.decompress(packed.body) == plain.body


async def test_pages_follow_each_other(server: Server) -> None:
    for i in range(5):
        await server.ask("POST", POOLS, pool(f"p{i}"))
    first = (await server.ask("GET", f"{POOLS}?limit=2")).json
    assert first["metadata"]["remainingItemCount"] == 3
    rest = (await server.ask("GET", f"{POOLS}?limit=9&continue={first['metadata']['continue']}")).json
    names = [item["metadata"]["name"] for item in first["items"] + rest["items"]]
    assert names == [f"p{i}" for i in range(5)]
    assert "continue" not in rest["metadata"]


class Events:
    """A watch, line by line."""

    def __init__(self, server: Server, query: str, accept: str = "application/json") -> None:
        self._server, self._query, self._accept = server, query, accept

    async def __aenter__(self) -> Events:
        self.reader, self.writer = await self._server.connect()
        head = (
            f"GET {POOLS}?watch=true&{self._query} HTTP/1.1\r\nHost: localhost\r\nAccept: {self._accept}\r\n"
            f"Authorization: Bearer {self._server.token}\r\n\r\n"
        )
        self.writer.write(head.encode())
        self.head = await self.reader.readuntil(b"\r\n\r\n")
        self._buffer = b""
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()

    async def next(self) -> Any:
        """The next event; None when the stream has ended in good order."""
        async with asyncio.timeout(10):
            while b"\n" not in self._buffer:
                size = int(await self.reader.readline(), 16)
                self._buffer += await self.reader.readexactly(size + 2)
                self._buffer = self._buffer[:-2]
                if not size:
                    return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)


async def test_a_watch_brings_changes_as_they_come(server: Server) -> None:
    version = (await server.ask("GET", POOLS)).json["metadata"]["resourceVersion"]
    async with Events(server, f"resourceVersion={version}") as events:
        await server.ask("POST", POOLS, pool("a", replicas=1))
        event = await events.next()
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        await server.ask("DELETE", f"{POOLS}/a")
        assert (await events.next())["type"] == "DELETED"


async def test_a_watch_ends_after_its_time(server: Server) -> None:
    async with Events(server, "timeoutSeconds=1") as events:
        assert await events.next() is None


async def test_a_watch_with_initial_events_marks_their_end(server: Server) -> None:
    await server.ask("POST", POOLS, pool("a"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with Events(server, query) as events:
        assert (await events.next())["type"] == "ADDED"
        end = await events.next()
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_of_tables_has_its_columns_once(server: Server) -> None:
    await server.ask("POST", POOLS, pool("a"))
    async with Events(server, "resourceVersion=0", accept=TABLE) as events:
        first = await events.next()
        await server.ask("POST", POOLS, pool("b"))
        second = await events.next()
    assert first["object"]["columnDefinitions"]
    assert not second["object"]["columnDefinitions"]
    assert second["object"]["rows"][0]["cells"][0] == "b"


async def test_a_watch_from_a_version_of_the_future_is_told_so(server: Server) -> None:
    async with Events(server, "resourceVersion=999999") as events:
        event = await events.next()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 504)


async def test_the_end_of_the_server_ends_watches_in_good_order(server: Server) -> None:
    async with Events(server, "resourceVersion=0") as events:
        reading = asyncio.create_task(events.next())
        await server.ask("GET", "/version")
        closing = asyncio.create_task(stop(server))
        assert await reading is None
        await closing


async def stop(server: Server) -> None:
    """End the server as a signal would."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGTERM)
