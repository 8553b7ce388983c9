"""Definitions of kinds, which can be read, and kinds of a cluster of which there are no objects here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.api.crd import crds
from rota.api.served import FOREIGN
from tests.server.conftest import Server, served
from tests.server.test_access import make

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home", with_controllers=False) as running:
        yield running


async def test_the_definitions_are_those_that_a_cluster_gets(server: Server) -> None:
    listed = (await server.ask("GET", CRDS)).json
    assert (listed["kind"], listed["apiVersion"]) == ("CustomResourceDefinitionList", "apiextensions.k8s.io/v1")
    found = {item["metadata"]["name"]: item for item in listed["items"]}
    assert list(found) == sorted(crd["metadata"]["name"] for crd in crds())
    for crd in crds():
        read = found[crd["metadata"]["name"]]
        assert {**read["spec"], "conversion": None} == {**crd["spec"], "conversion": None}
        assert read["status"]["storedVersions"] == ["v1alpha1"]
        assert read["status"]["acceptedNames"] == crd["spec"]["names"]
        conditions = {each["type"]: each["status"] for each in read["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
        assert read["metadata"]["uid"] and read["metadata"]["creationTimestamp"]
    one = (await server.ask("GET", f"{CRDS}/workerpools.rota.dev")).json
    assert one == found["workerpools.rota.dev"]
    assert (await server.ask("GET", f"{CRDS}/nothing.rota.dev")).status == 404


async def test_definitions_are_selected_paged_and_shown_as_tables(server: Server) -> None:
    one = (await server.ask("GET", f"{CRDS}?fieldSelector=metadata.name%3Dtasks.rota.dev")).json["items"]
    assert [item["metadata"]["name"] for item in one] == ["tasks.rota.dev"]
    first = (await server.ask("GET", f"{CRDS}?limit=3")).json
    rest = (await server.ask("GET", f"{CRDS}?continue={first['metadata']['continue']}")).json
    assert len(first["items"]) == 3 and len(first["items"]) + len(rest["items"]) == len(crds())
    table = (await server.ask("GET", CRDS, headers={"Accept": TABLE})).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Created At"]
    assert len(table["rows"]) == len(crds())


async def test_definitions_are_watched(server: Server) -> None:
    version = (await server.ask("GET", CRDS)).json["metadata"]["resourceVersion"]
    answer = await server.ask("GET", f"{CRDS}?watch=1&timeoutSeconds=1&resourceVersion={version}")
    assert (answer.status, answer.body) == (200, b"")
    answer = await server.ask("GET", f"{CRDS}?watch=1&timeoutSeconds=1")
    assert answer.body.count(b'"type":"ADDED"') == len(crds())


async def test_a_watch_of_an_earlier_server_begins_anew(tmp_path: Path) -> None:
    async with served(tmp_path / "home", with_controllers=False) as server:
        first = (await server.ask("GET", CRDS)).json
        for i in range(40):
            body = {"metadata": {"name": f"c{i}"}}
            assert (await server.ask("POST", "/api/v1/namespaces/default/configmaps", body)).status == 201
    async with served(tmp_path / "home", with_controllers=False) as server:
        again = (await server.ask("GET", CRDS)).json
        assert int(again["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
        same = [[item["metadata"]["uid"] for item in listed["items"]] for listed in (first, again)]
        assert same[0] == same[1]
        since = first["metadata"]["resourceVersion"]
        answer = await server.ask("GET", f"{CRDS}?watch=1&timeoutSeconds=1&resourceVersion={since}")
        assert b'"code":410' in answer.body


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", CRDS),
        ("PUT", f"{CRDS}/tasks.rota.dev"),
        ("DELETE", f"{CRDS}/tasks.rota.dev"),
        ("DELETE", CRDS),
        ("PUT", f"{CRDS}/tasks.rota.dev/status"),
    ],
)
async def test_definitions_are_built_in(server: Server, method: str, path: str) -> None:
    refused = await server.ask(method, path, crds()[0] if method != "DELETE" else None)
    assert (refused.status, refused.json["reason"]) == (405, "MethodNotAllowed")
    assert "built in" in refused.json["message"]


def collection(kind: Any) -> str:
    root = f"/apis/{kind.group}/v1" if kind.group else "/api/v1"
    return f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


@pytest.mark.parametrize("kind", FOREIGN, ids=lambda kind: kind.name)
async def test_there_are_none_of_what_only_a_cluster_has(server: Server, kind: Any) -> None:
    path = collection(kind)
    listed = (await server.ask("GET", f"{path}?labelSelector=a%3Db&limit=500")).json
    assert (listed["kind"], listed["items"]) == (f"{kind.name}List", [])
    assert (await server.ask("GET", path, headers={"Accept": TABLE})).json["rows"] == []
    packed = await server.ask("GET", path, headers={"Accept": "application/vnd.kubernetes.protobuf"})
    assert (packed.status, packed.body[:4]) == (200, b"k8s\x00")
    assert (await server.ask("GET", f"{path}/a")).status == 404
    version = listed["metadata"]["resourceVersion"]
    watched = await server.ask("GET", f"{path}?watch=1&timeoutSeconds=1&resourceVersion={version}")
    assert (watched.status, watched.body) == (200, b"")
    refused = await server.ask("POST", path, {"metadata": {"name": "a"}})
    assert refused.status == 405
    assert refused.json["message"].endswith(f"there are no {kind.plural} here; {FOREIGN[kind]}")


async def test_pods_are_selected_by_the_fields_that_kubernetes_has(server: Server) -> None:
    path = "/api/v1/pods?fieldSelector=spec.nodeName%3Da,status.phase!%3DRunning"
    assert (await server.ask("GET", path)).json["items"] == []
    assert (await server.ask("GET", "/api/v1/pods?fieldSelector=spec.other%3Da")).status == 400


async def test_who_may_read_reads_these_too_and_nobody_else(server: Server) -> None:
    viewer, function = await make(server, "viewer"), await make(server, "function")
    for path in (CRDS, "/api/v1/pods", "/apis/events.k8s.io/v1/events"):
        assert (await server.ask("GET", path, token=viewer)).status == 200
        assert (await server.ask("GET", path, token=function)).status == 403
        assert (await server.ask("POST", path.replace("/v1/", "/v1/namespaces/default/"), {}, token=viewer)).status in (
            403,
            404,
        )
    inside = (await server.ask("POST", "/v1/tokens", {"name": "one", "scope": "viewer", "namespace": "shop"})).json[
        "token"
    ]
    events = "/apis/events.k8s.io/v1"
    assert (await server.ask("GET", f"{events}/namespaces/shop/events", token=inside)).status == 200
    assert (await server.ask("GET", f"{events}/namespaces/default/events", token=inside)).status == 403
    assert (await server.ask("GET", f"{events}/events", token=inside)).status == 403
