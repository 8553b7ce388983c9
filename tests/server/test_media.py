"""The forms of answers: YAML, protobuf, tables, metadata alone; and bodies with a field twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota.registry import ApiError
from rota.server import media, protobuf
from tests.server.conftest import POOLS, Reply, Server, pool, served

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
META = "g=meta.k8s.io;v=v1"
TABLE = f"{JSON};as=Table;{META}"
CONFIGS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home", with_controllers=False) as running:
        yield running


def config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def asked(server: Server, method: str, path: str, body: Any = None, *, accept: str, **more: str) -> Reply:
    return await server.ask(method, path, body, headers={"Accept": accept, **more})


async def test_yaml_is_what_json_is(server: Server) -> None:
    made = await asked(server, "POST", POOLS, pool("a", replicas=1), accept=YAML)
    assert (made.status, made.headers["content-type"]) == (201, YAML)
    for path in (f"{POOLS}/a", POOLS, f"{POOLS}/a/scale", f"{POOLS}/missing"):
        plain, as_yaml = await server.ask("GET", path), await asked(server, "GET", path, accept=YAML)
        assert as_yaml.headers["content-type"] == YAML
        assert as_yaml.status == plain.status and yaml.safe_load(as_yaml.body) == plain.json
    refused = await asked(server, "POST", POOLS, pool("Bad Name"), accept=YAML)
    assert refused.status == 422 and yaml.safe_load(refused.body)["reason"] == "Invalid"


async def test_texts_that_other_tools_take_for_something_else_stay_texts_in_yaml(server: Server) -> None:
    odd = {
        "a": "on",
        "b": "0644",
        "c": "1e3",
        "d": "null",
        "e": "2026-01-01",
        "f": "~",
        "g": "line\nline\n",
        "h": ": #",
    }
    await server.ask("POST", CONFIGS, config("odd", **odd))
    answer = await asked(server, "GET", f"{CONFIGS}/odd", accept=YAML)
    assert yaml.safe_load(answer.body)["data"] == odd


async def test_protobuf_of_core_kinds_is_what_json_is(server: Server) -> None:
    await server.ask("POST", CONFIGS, config("a", one="1", two="é"))
    paths = (f"{CONFIGS}/a", CONFIGS, "/api/v1/namespaces/default", "/api/v1/namespaces", f"{CONFIGS}/missing")
    for path in paths:
        plain, packed = await server.ask("GET", path), await asked(server, "GET", path, accept=PROTOBUF)
        assert (packed.status, packed.headers["content-type"]) == (plain.status, PROTOBUF)
        assert without_frames(protobuf.decode(packed.body)) == without_frames(plain.json)


def without_frames(obj: Any) -> Any:
    """As protobuf has it: items do not say what they are, and what is empty is not there."""
    out = {name: value for name, value in obj.items() if value not in ({}, [], None, "")}
    if "items" in out:
        out["items"] = [{k: v for k, v in item.items() if k not in ("apiVersion", "kind")} for item in out["items"]]
    return out


async def test_events_of_a_watch_come_in_protobuf(server: Server) -> None:
    await server.ask("POST", CONFIGS, config("a", one="1"))
    path = f"{CONFIGS}?watch=1&timeoutSeconds=1"
    answer = await asked(server, "GET", path, accept=f"{PROTOBUF};stream=watch")
    assert answer.headers["content-type"] == f"{PROTOBUF};stream=watch"
    size = int.from_bytes(answer.body[:4], "big")
    assert len(answer.body) == 4 + size
    # A WatchEvent: its type, and its object within a RawExtension.
    assert answer.body[4:11] == b"\x0a\x05ADDED"
    inner = answer.body[answer.body.index(b"k8s\x00") :]
    assert protobuf.decode(inner)["data"] == {"one": "1"}


async def test_custom_resources_have_no_protobuf_but_of_their_metadata(server: Server) -> None:
    await server.ask("POST", POOLS, pool("a"))
    for path in (f"{POOLS}/a", POOLS, f"{POOLS}?watch=1"):
        refused = await asked(server, "GET", path, accept=PROTOBUF)
        assert (refused.status, protobuf.decode(refused.body)["reason"]) == (406, "NotAcceptable")
    for path, what in ((f"{POOLS}/a", "PartialObjectMetadata"), (POOLS, "PartialObjectMetadataList")):
        answer = await asked(server, "GET", path, accept=f"{PROTOBUF};as={what};{META}")
        read = protobuf.decode(answer.body)
        assert (answer.status, read["kind"], read["apiVersion"]) == (200, what, "meta.k8s.io/v1")
        assert (read["items"][0] if "items" in read else read)["metadata"]["name"] == "a"


async def test_who_takes_json_as_gladly_gets_it(server: Server) -> None:
    for accept in (f"{PROTOBUF},{JSON}", f"{JSON},{PROTOBUF}", "*/*", "application/*"):
        assert (await asked(server, "GET", CONFIGS, accept=accept)).headers["content-type"] == JSON
    for accept in (f"{PROTOBUF},{JSON};q=0.9", f"{YAML};q=0.2,{PROTOBUF};q=0.3"):
        assert (await asked(server, "GET", CONFIGS, accept=accept)).headers["content-type"] == PROTOBUF
    assert (await asked(server, "GET", POOLS, accept=f"{PROTOBUF},{YAML}")).headers["content-type"] == YAML


async def test_what_cannot_be_answered_is_not_done(server: Server) -> None:
    for accept in ("text/html", PROTOBUF, f"{JSON};as=Table;g=meta.k8s.io;v=v2"):
        assert (await asked(server, "POST", POOLS, pool("a"), accept=accept)).status == 406
    assert (await server.ask("GET", f"{POOLS}/a")).status == 404
    await server.ask("POST", POOLS, pool("a"))
    assert (await asked(server, "DELETE", f"{POOLS}/a", accept="text/html")).status == 406
    assert (await server.ask("GET", f"{POOLS}/a")).status == 200


async def test_a_watch_is_not_had_as_yaml(server: Server) -> None:
    refused = await asked(server, "GET", f"{POOLS}?watch=1", accept=YAML)
    assert refused.status == 406
    assert "application/json;stream=watch" in yaml.safe_load(refused.body)["message"]


@pytest.mark.parametrize(
    ("include", "kind"),
    [("None", None), ("Metadata", "PartialObjectMetadata"), ("", "PartialObjectMetadata"), ("Object", "WorkerPool")],
)
async def test_rows_of_a_table_carry_what_is_asked_for(server: Server, include: str, kind: str | None) -> None:
    await server.ask("POST", POOLS, pool("a"))
    for path in (f"{POOLS}/a", POOLS):
        answer = await asked(server, "GET", f"{path}?includeObject={include}", accept=TABLE)
        (row,) = answer.json["rows"]
        assert row["cells"][0] == "a"
        assert (row["object"] and row["object"]["kind"]) == kind
    refused = await asked(server, "GET", f"{POOLS}?includeObject=Some", accept=TABLE)
    assert (refused.status, refused.json["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_both_versions_of_a_table_are_had(server: Server, version: str) -> None:
    answer = await asked(server, "GET", POOLS, accept=f"{JSON};as=Table;g=meta.k8s.io;v={version}")
    assert (answer.json["kind"], answer.json["apiVersion"]) == ("Table", f"meta.k8s.io/{version}")


async def test_a_scale_is_a_table_of_its_own(server: Server) -> None:
    await server.ask("POST", POOLS, pool("a", replicas=3))
    table = (await asked(server, "GET", f"{POOLS}/a/scale", accept=TABLE)).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert table["rows"][0]["cells"][:3] == ["a", 3, 0]


async def test_metadata_alone_is_of_one_or_of_a_list(server: Server) -> None:
    await server.ask("POST", POOLS, pool("a"))
    one, many = (f"{JSON};as={kind};{META}" for kind in ("PartialObjectMetadata", "PartialObjectMetadataList"))
    assert (await asked(server, "GET", f"{POOLS}/a", accept=one)).json["kind"] == "PartialObjectMetadata"
    assert (await asked(server, "GET", POOLS, accept=many)).json["kind"] == "PartialObjectMetadataList"
    assert (await asked(server, "GET", POOLS, accept=one)).status == 406
    assert (await asked(server, "GET", f"{POOLS}/a", accept=many)).status == 406


def test_an_answer_beyond_a_bound_is_not_made_into_yaml() -> None:
    with pytest.raises(ApiError) as refusal:
        media.encoded(b'{"a":"' + b"x" * media.REENCODED_BYTES_MAX + b'"}', YAML)
    assert refusal.value.code == 406 and "limit" in refusal.value.message


# A field twice in one object.

TWICE = {
    "one": (b'{"a":1,"a":2}', ["a"]),
    "deep": (b'{"a":{"b":1,"c":[{"d":1},{"e":1, "e" :2}],"b":3}}', ["a.c[1].e", "a.b"]),
    "three times": (b'{"a":1,"a":2,"a":3}', ["a"]),
    "within both": (b'{"a":{"b":1},"a":{"b":2,"b":3}}', ["a", "a.b"]),
    "escaped": (b'{"a":1,"\\u0061":2}', ["a"]),
    "in different objects": (b'{"a":{"c":1},"b":{"c":1}}', []),
    "in a text": (b'{"a":"\\"b\\":1,\\"b\\":2"}', []),
    "texts with colons": (b'["a:", "b", {"c": "d:e"}]', []),
    "no object": (b"[1,2]", []),
    "a text": (b'"a"', []),
}


@pytest.mark.parametrize(("body", "paths"), TWICE.values(), ids=TWICE)
def test_fields_that_a_body_has_twice_are_found(body: bytes, paths: list[str]) -> None:
    assert list(media.duplicates(body, json.loads(body), JSON)) == paths


async def test_a_field_twice_is_refused_reported_or_taken(server: Server) -> None:
    body = (
        b'{"apiVersion":"rota.dev/v1alpha1","kind":"WorkerPool","metadata":{"name":"a"},'
        b'"spec":{"worker":{"type":"shell"},"replicas":1,"replicas":2}}'
    )
    strict = await server.ask("POST", f"{POOLS}?fieldValidation=Strict", body)
    assert strict.status == 400 and 'strict decoding error: duplicate field "spec.replicas"' in strict.json["message"]
    warned = await server.ask("POST", f"{POOLS}?dryRun=All", body)
    assert (warned.status, warned.json["spec"]["replicas"]) == (201, 2)
    assert warned.warnings == ['299 - "duplicate field \\"spec.replicas\\""']
    ignored = await server.ask("POST", f"{POOLS}?fieldValidation=Ignore", body)
    assert (ignored.status, ignored.warnings) == (201, [])
    patch = b'{"spec":{"replicas":3,"replicas":4}}'
    merge = {"Content-Type": "application/merge-patch+json"}
    refused = await server.ask("PATCH", f"{POOLS}/a?fieldValidation=Strict", patch, headers=merge)
    assert refused.status == 422 and 'duplicate field "spec.replicas"' in refused.json["message"]
    patched = await server.ask("PATCH", f"{POOLS}/a", patch, headers=merge)
    assert patched.json["spec"]["replicas"] == 4 and len(patched.warnings) == 1


async def test_a_refusal_comes_with_its_warnings(server: Server) -> None:
    refused = await server.ask("POST", POOLS, pool("a", replicas=-1, stray=1))
    assert refused.status == 422
    assert refused.warnings == ['299 - "unknown field \\"spec.stray\\""']


# Options of deletions and lists.


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("?orphanDependents=true&propagationPolicy=Orphan", None),
        ("", {"orphanDependents": False, "propagationPolicy": "Foreground"}),
        ("?orphanDependents=true", {"propagationPolicy": "Background"}),
    ],
)
async def test_two_ways_to_say_what_becomes_of_dependents_are_one_too_many(
    server: Server, query: str, body: Any
) -> None:
    await server.ask("POST", CONFIGS, config("a"))
    refused = await server.ask("DELETE", f"{CONFIGS}/a{query}", body)
    assert (refused.status, refused.json["details"]["kind"]) == (422, "DeleteOptions")
    assert refused.json["details"]["causes"][0]["field"] == "propagationPolicy"
    assert (await server.ask("GET", f"{CONFIGS}/a")).status == 200


async def test_initial_events_are_of_watches(server: Server) -> None:
    refused = await server.ask("GET", f"{POOLS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
    assert (refused.status, refused.json["details"]["kind"]) == (422, "ListOptions")
    assert [cause["field"] for cause in refused.json["details"]["causes"]] == [
        "resourceVersionMatch",
        "sendInitialEvents",
    ]


async def test_large_lists_are_compressed(server: Server) -> None:
    await asyncio.gather(*(server.ask("POST", CONFIGS, config(f"c{i}", a="x" * 20_000)) for i in range(10)))
    answer = await server.ask("GET", CONFIGS, headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
