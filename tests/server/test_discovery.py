"""Discovery, as kubectl and other clients of every age ask for it."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.api import KINDS
from rota.api.served import SERVED, group_versions
from rota.server.negotiation import JSON, YAML, media_ranges, negotiated
from tests.server.conftest import Server, served

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
V2, V2_BETA = AGGREGATED.format("v2"), AGGREGATED.format("v2beta1")
RECORDED = {
    "kubectl 1.26": "application/json, */*",
    "kubectl 1.27": f"{V2_BETA},application/json",
    "kubectl 1.28": f"{V2_BETA},application/json",
    "kubectl 1.29": f"{V2_BETA},application/json",
    "kubectl 1.30": f"{V2},{V2_BETA},application/json",
    "kubectl 1.33": f"{V2},{V2_BETA},application/json",
    "kubernetes client for Python": "application/json",
    "curl": "*/*",
}
"""The Accept header of each client when it asks `/api` and `/apis`."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home", with_controllers=False) as running:
        yield running


async def resources(server: Server, accept: str) -> set[tuple[str, str, str]]:
    """Return the group, version and resource that a client which sends this finds. Its type says how to read it."""
    found: set[tuple[str, str, str]] = set()
    for path in ("/api", "/apis"):
        answer = await server.ask("GET", f"{path}?timeout=32s", headers={"Accept": accept})
        assert answer.status == 200
        type_ = answer.headers["content-type"]
        if type_ not in (V2, V2_BETA):
            assert type_ == "application/json"
            found |= await listed(server, path, answer.json)
            continue
        assert type_ in accept, "a client understands the versions that it accepts, and no other"
        assert answer.json["apiVersion"] in type_.replace(";v=", "/")
        found |= {
            (group["metadata"]["name"], version["version"], resource["resource"])
            for group in answer.json["items"]
            for version in group["versions"]
            for resource in version["resources"]
        }
    return found


async def listed(server: Server, path: str, body: Any) -> set[tuple[str, str, str]]:
    if path == "/api":
        versions = [("", version) for version in body["versions"]]
    else:
        versions = [(group["name"], each["version"]) for group in body["groups"] for each in group["versions"]]
    found: set[tuple[str, str, str]] = set()
    for group, version in versions:
        answer = await server.ask("GET", f"/apis/{group}/{version}" if group else f"/api/{version}")
        names = [entry["name"] for entry in answer.json["resources"] if "/" not in entry["name"]]
        found |= {(group, version, name) for name in names}
    return found


@pytest.mark.parametrize("client", RECORDED)
async def test_every_client_finds_every_kind(server: Server, client: str) -> None:
    found = await resources(server, RECORDED[client])
    assert found == {(kind.group, kind.version, kind.plural) for kind in SERVED}


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        (V2, "v2"),
        (V2_BETA, "v2beta1"),
        (f"{V2},{V2_BETA}", "v2"),
        (f"{V2_BETA},{V2}", "v2beta1"),
        (f"{V2};q=0.5,{V2_BETA};q=0.9,application/json;q=0.1", "v2beta1"),
        (f"{V2_BETA};q=0.5,{V2};q=0.9", "v2"),
        (f"application/json,{V2}", "v2"),
        (f"{AGGREGATED.format('v3')},{V2_BETA},application/json", "v2beta1"),
        (f"{AGGREGATED.format('v3')},application/json", ""),
        ("application/json;g=other;v=v2;as=APIGroupDiscoveryList,application/json", ""),
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=Other,application/json", ""),
        ("text/html", ""),
        ("", ""),
    ],
)
async def test_the_version_is_negotiated(server: Server, accept: str, version: str) -> None:
    answer = await server.ask("GET", "/apis", headers={"Accept": accept})
    assert answer.status == 200
    assert answer.headers["content-type"] == (AGGREGATED.format(version) if version else "application/json")
    assert answer.json["kind"] == ("APIGroupDiscoveryList" if version else "APIGroupList")


async def test_discovery_is_had_as_yaml(server: Server) -> None:
    answer = await server.ask("GET", "/apis", headers={"Accept": YAML})
    assert answer.headers["content-type"] == YAML
    assert answer.body.startswith(b"kind: APIGroupList\n")


async def test_what_a_client_has_is_not_sent_again(server: Server) -> None:
    for path, accept in (("/apis", V2), ("/api", V2_BETA), ("/openapi/v3", ""), ("/openapi/v2", "")):
        first = await server.ask("GET", path, headers={"Accept": accept})
        tag = first.headers["etag"]
        again = await server.ask("GET", path, headers={"Accept": accept, "If-None-Match": tag})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        other = await server.ask("GET", path, headers={"Accept": accept, "If-None-Match": '"OTHER"'})
        assert (other.status, other.body) == (200, first.body)


async def test_openapi_documents_are_compressed_and_kept_for_as_long_as_they_hold(server: Server) -> None:
    index = (await server.ask("GET", "/openapi/v3")).json["paths"]
    assert len(index) == len(group_versions())
    url = index["apis/rota.dev/v1alpha1"]["serverRelativeURL"]
    plain = await server.ask("GET", url)
    packed = await server.ask("GET", url, headers={"Accept-Encoding": "gzip, deflate"})
    assert packed.headers["content-encoding"] == "gzip" and len(packed.body) < len(plain.body) / 4
    assert gzip.decompress(packed.body) == plain.body
    assert plain.headers["cache-control"] == "public, immutable" and "expires" in plain.headers
    stale = await server.ask("GET", "/openapi/v3/apis/rota.dev/v1alpha1?hash=OLD")
    assert (stale.status, stale.headers["location"]) == (301, url)
    bare = await server.ask("GET", "/openapi/v3/apis/rota.dev/v1alpha1")
    assert (bare.status, bare.headers["etag"]) == (200, plain.headers["etag"])
    assert "immutable" not in bare.headers["cache-control"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "/apis/example.com/v1/things",
        "/apis/example.com/v1/namespaces/default/things/a",
        "/apis/rota.dev/v1alpha1/things",
        "/apis/rota.dev/v2/workerpools",
        "/api/v2/configmaps",
        "/apis/authorization.k8s.io/v1/others",
        "/nowhere",
    ],
)
async def test_a_path_that_there_is_not_is_not_found_by_any_method(server: Server, path: str, method: str) -> None:
    body: Any = {} if method in ("POST", "PUT", "PATCH") else None
    answer = await server.ask(method, path, body)
    assert (answer.status, answer.json["reason"]) == (404, "NotFound")


@pytest.mark.parametrize("path", ["/api", "/apis", "/apis/rota.dev", "/api/v1", "/version", "/openapi/v3", "/"])
async def test_discovery_is_for_reading(server: Server, path: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (await server.ask(method, path)).status == 405
    assert (await server.ask("HEAD", path)).status == 200


async def test_the_kinds_that_people_look_at_are_in_the_category_all(server: Server) -> None:
    listed = (await server.ask("GET", "/apis/rota.dev/v1alpha1")).json["resources"]
    everything = {entry["name"] for entry in listed if "all" in entry.get("categories", ())}
    assert {"workerpools", "tasks", "functions", "schedules", "instances", "claims", "workloads"} <= everything
    assert not {"workspaces", "agentconfigs", "cells", "quotas"} & everything
    assert all("rota" in entry["categories"] for entry in listed if "/" not in entry["name"])
    assert all(KINDS[entry["kind"]].namespaced for entry in listed if entry["name"] in everything)


def test_choices_are_in_the_order_of_their_weights() -> None:
    accept = "a/b;q=0.5, */*, c/d;q=1;x=y, e/*, f/g;q=wrong, h"
    assert [(choice.type, choice.subtype) for choice in media_ranges(accept)] == [
        ("c", "d"),
        ("e", "*"),
        ("*", "*"),
        ("a", "b"),
        ("f", "g"),
    ]
    assert media_ranges("c/d;q=1; x=y")[0].parameters == {"x": "y"}


@pytest.mark.parametrize(
    "accept", [",", ";", "a", "a/", "/b", "a/b/c", "*/json;q=;;=;", ",,,", "a/b;q=2", "é/é", "=" * 99]
)
def test_any_header_is_read(accept: str) -> None:
    for choice in media_ranges(accept):
        assert 0 <= choice.q <= 1
    negotiated(accept, (JSON,), lambda _, into: into is None)


async def test_a_header_without_end_is_read_up_to_a_bound(server: Server) -> None:
    accept = ",".join(["text/x"] * 5000)
    answer = await server.ask("GET", "/apis", headers={"Accept": accept})
    assert answer.status == 200 and json.loads(answer.body)["kind"] == "APIGroupList"
