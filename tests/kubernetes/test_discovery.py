"""Discovery: what both servers have is described alike, in every form that clients ask for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota.api.served import FOREIGN, SERVED, group_versions
from tests.kubernetes.server import Client

Object = dict[str, Any]
KINDS = sorted({(kind.group, kind.version, kind.plural) for kind in SERVED if kind not in FOREIGN})
AGGREGATED = "g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
V2, V2_BETA = f"application/json;{AGGREGATED.format('v2')}", f"application/json;{AGGREGATED.format('v2beta1')}"
PLAIN = "application/json"
ACCEPTS = [
    "",
    PLAIN,
    "*/*",
    V2,
    V2_BETA,
    f"{V2},{V2_BETA},{PLAIN}",
    f"{V2_BETA},{PLAIN}",
    f"{V2_BETA},{V2},{PLAIN}",
    f"{V2};q=0.5,{V2_BETA};q=0.9,{PLAIN};q=0.1",
    f"{PLAIN},{V2}",
    f"application/json;{AGGREGATED.format('v3')},{PLAIN}",
    f"application/json;{AGGREGATED.format('v3')},{V2}",
    "application/json;g=other;v=v2;as=APIGroupDiscoveryList,application/json",
    f"application/vnd.kubernetes.protobuf;{AGGREGATED.format('v2')},{V2}",
    f"*/*;{AGGREGATED.format('v2')}",
    f"text/html,{V2}",
]


@pytest.mark.parametrize(("group", "version"), group_versions())
def test_resources_of_a_group(client: Client, rota: Client, group: str, version: str) -> None:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    theirs, mine = (_resources(server, path, group, version) for server in (client, rota))
    assert mine == theirs


def _resources(server: Client, path: str, group: str, version: str) -> dict[str, Object]:
    """The resources that Rota has, by name. Hashes and what Rota has no use for are left out."""
    ours = {plural for g, v, plural in KINDS if (g, v) == (group, version)}
    listed = server.send("GET", path).body["resources"]
    return {entry["name"]: _bare(entry) for entry in listed if entry["name"].partition("/")[0] in ours}


def _bare(entry: Object) -> Object:
    out = {name: value for name, value in entry.items() if name != "storageVersionHash"}
    return {**out, "verbs": _verbs(entry)}


def _verbs(entry: Object) -> list[str]:
    """Return the verbs of a resource; of definitions of kinds, which are built in here, only those that read."""
    definition = "CustomResourceDefinition" in str(entry)
    return sorted(verb for verb in entry["verbs"] if not definition or verb in ("get", "list", "watch"))


def test_groups_and_their_versions(client: Client, rota: Client) -> None:
    theirs, mine = (
        {group["name"]: group["preferredVersion"] for group in server.send("GET", "/apis").body["groups"]}
        for server in (client, rota)
    )
    assert mine == {name: theirs[name] for name in mine}
    for name in mine:
        answers = [server.send("GET", f"/apis/{name}").body for server in (client, rota)]
        assert [answer["kind"] for answer in answers] == ["APIGroup", "APIGroup"]
        assert answers[0]["preferredVersion"] == answers[1]["preferredVersion"]


@pytest.mark.parametrize("path", ["/api", "/apis"])
@pytest.mark.parametrize("accept", ACCEPTS)
def test_every_form_is_negotiated_alike(client: Client, rota: Client, path: str, accept: str) -> None:
    theirs, mine = (server.send("GET", path, accept=accept) for server in (client, rota))
    if "v2beta1" in accept and "v=v2beta1" in mine.headers["content-type"]:
        # Kubernetes has dropped this version meanwhile; kubectl up to 1.29 knows no other.
        assert (mine.code, mine.body["apiVersion"]) == (200, "apidiscovery.k8s.io/v2beta1")
        return
    assert mine.code == theirs.code
    wanted = theirs.headers["content-type"]
    if "protobuf" in wanted:
        wanted = V2  # Rota has no protobuf of it, and takes the next.
    assert mine.headers["content-type"] == wanted
    if "json" in theirs.headers["content-type"]:
        assert (mine.body["kind"], mine.body.get("apiVersion")) == (theirs.body["kind"], theirs.body.get("apiVersion"))


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_resources(client: Client, rota: Client, path: str) -> None:
    theirs, mine = (_aggregated(server.send("GET", path, accept=V2).body) for server in (client, rota))
    assert _aggregated(rota.send("GET", path, accept=V2_BETA).body) == mine, "the versions have the same form"
    ours = {key for key in KINDS if bool(key[0]) == (path == "/apis")}
    assert {key: mine[key] for key in ours} == {key: theirs[key] for key in ours}


def _aggregated(body: Object) -> dict[tuple[str, str, str], Object]:
    found = {}
    for group in body["items"]:
        for version in group["versions"]:
            assert version["freshness"] == "Current"
            for entry in version["resources"]:
                key = (group["metadata"].get("name", ""), version["version"], entry["resource"])
                parts = sorted(entry.get("subresources", ()), key=lambda part: str(part["subresource"]))
                found[key] = {**_settled(entry, key), "subresources": [_settled(part, key) for part in parts]}
    return found


def _settled(part: Object, key: tuple[str, str, str]) -> Object:
    """Fill in an empty response kind: it has the group and version of the answer."""
    kind = part["responseKind"]
    of_key = {"group": key[0], "version": key[1], "kind": kind["kind"]}
    return {**part, "verbs": _verbs(part), "responseKind": kind if kind["version"] else of_key}


def test_what_a_client_has_is_not_sent_again(client: Client, rota: Client) -> None:
    for server in (client, rota):
        first = server.send("GET", "/apis", accept=V2)
        again = server.send("GET", "/apis", accept=V2, headers={"If-None-Match": first.headers["etag"]})
        assert (again.code, again.body) == (304, "")
        listed = server.send("GET", "/openapi/v3").body
        paths = (msgspec.json.decode(listed) if isinstance(listed, str) else listed)["paths"]
        index = paths["apis/coordination.k8s.io/v1"]["serverRelativeURL"]
        document = server.send("GET", index)
        assert document.headers["cache-control"] == "public, immutable"
        again = server.send("GET", index, headers={"If-None-Match": document.headers["etag"]})
        assert (again.code, again.body) == (304, "")
        stale = server.send("GET", "/openapi/v3/apis/coordination.k8s.io/v1?hash=OLD")
        assert (stale.code, stale.headers["location"]) == (301, index)


def test_the_version_is_of_the_server_that_was_compared(client: Client, rota: Client) -> None:
    theirs, mine = (server.send("GET", "/version").body for server in (client, rota))
    assert (mine["major"], mine["minor"]) == (theirs["major"], theirs["minor"].rstrip("+"))
