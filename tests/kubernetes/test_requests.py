"""Requests whatever they are about: paths, methods, media types and options."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota.api import KINDS
from tests.kubernetes.comparison import Both
from tests.kubernetes.server import Client

Object = dict[str, Any]
JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
META = "g=meta.k8s.io;v=v1"
POOLS = "/apis/rota.dev/v1alpha1/namespaces/default/workerpools"
CONFIGS = "/api/v1/namespaces/default/configmaps"

PATHS = [
    "/apis/example.com/v1/things",
    "/apis/example.com/v1/namespaces/default/things/a",
    "/apis/rota.dev/v1alpha1/things",
    "/apis/rota.dev/v1alpha1/namespaces/default/things",
    "/apis/rota.dev/v1alpha1/namespaces/default/things/a",
    "/apis/rota.dev/v2/namespaces/default/workerpools",
    "/api/v1/things",
    "/api/v2/configmaps",
    "/apis/rota.dev/v1alpha1/workerpools",
    f"{POOLS}/a/other",
    f"{CONFIGS}/a/other",
    f"{CONFIGS}/a/status",
    "/api/v1/configmaps",
    "/api/v1/namespaces/default/namespaces",
    "/apis/rota.dev/v1alpha1/namespaces/default/locations",
    "/nowhere",
    "/version/other",
]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", PATHS)
async def test_paths_that_there_are_not(both: Both, path: str, method: str) -> None:
    if method == "GET" and path in ("/apis/rota.dev/v1alpha1/workerpools", "/api/v1/configmaps"):
        return  # there are these
    body: Object | None = {} if method in ("POST", "PUT", "PATCH") else None
    type_ = "application/merge-patch+json" if method == "PATCH" else JSON
    theirs, mine = (server.send(method, path, body, content_type=type_).code for server in (both.client, both.rota))
    assert mine == theirs


ODD = [
    ("PUT", POOLS),
    ("PUT", f"{POOLS}/a"),
    ("PUT", f"{POOLS}/a/status"),
    ("POST", f"{POOLS}/a/status"),
    ("PUT", CONFIGS),
    ("POST", f"{CONFIGS}/a"),
    ("PUT", f"{CONFIGS}/a"),
    ("PUT", "/api/v1/namespaces"),
    ("POST", "/api/v1/namespaces/default/finalize"),
    ("GET", "/api/v1/namespaces/default/finalize"),
]


@pytest.mark.parametrize(("method", "path"), ODD)
async def test_methods_that_a_path_has_not(both: Both, path: str, method: str) -> None:
    codes = [server.send(method, path, {"kind": "Nothing"}).code for server in (both.client, both.rota)]
    assert codes[0] == codes[1]


ACCEPTS = [
    "",
    JSON,
    "*/*",
    "application/*",
    YAML,
    PROTOBUF,
    f"{PROTOBUF},{YAML}",
    f"{YAML};q=0.5,{JSON};q=0.4",
    f"{YAML};q=0.4,{JSON};q=0.5",
    "text/html",
    "text/html,*/*;q=0.1",
    "application/xml;q=0.9",
    f"{JSON};as=Table;{META}",
    f"{JSON};as=Table;g=meta.k8s.io;v=v1beta1",
    f"{YAML};as=Table;{META}",
    f"{JSON};as=Table;g=meta.k8s.io;v=v2",
    f"{JSON};as=Table;g=other;v=v1,{JSON}",
    f"{JSON};as=PartialObjectMetadata;{META}",
    f"{JSON};as=PartialObjectMetadataList;{META}",
    f"{PROTOBUF};as=PartialObjectMetadata;{META}",
    f"{PROTOBUF};as=PartialObjectMetadataList;{META}",
    f"{JSON};as=Other;{META}",
    f"{JSON};stream=watch",
    f"{JSON};pretty=1",
]


@pytest.mark.parametrize("accept", ACCEPTS)
@pytest.mark.parametrize("kind", ["WorkerPool", "ConfigMap", "Secret", "Lease"])
def test_media_types(both: Both, kind: str, accept: str) -> None:
    parts: Object = {"spec": {"worker": {"type": "shell"}}} if kind == "WorkerPool" else {}
    path = both.have(KINDS[kind], "media", **parts)
    collection = path.rpartition("/")[0]
    asked: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("GET", path, None, {}),
        ("GET", f"{path}-missing", None, {}),
        ("GET", collection, None, {"limit": "1"}),
        ("PATCH", path, {}, {"content_type": "application/merge-patch+json"}),
        ("POST", collection, {"metadata": {"name": "Bad Name"}}, {}),
    ]
    if accept.endswith(f"as=PartialObjectMetadataList;{META}"):
        asked = asked[2:3]  # Kubernetes does not look at it before it has the object, and fails then
    if accept == "application/*" and kind != "WorkerPool":
        return  # Kubernetes does not take this for its own kinds
    for method, where, body, more in asked:
        theirs, mine = (server.send(method, where, body, accept=accept, **more) for server in (both.client, both.rota))
        assert (mine.code, mine.headers["content-type"]) == (theirs.code, theirs.headers["content-type"]), method
        if (
            theirs.code == 406
            and kind == "WorkerPool"
            and accept != PROTOBUF
            and "you requested" not in str(theirs.body)
        ):
            assert mine.body["message"] == theirs.body["message"]


@pytest.mark.parametrize("accept", ACCEPTS)
@pytest.mark.parametrize("path", [POOLS, CONFIGS])
def test_media_types_of_a_watch(client: Client, rota: Client, path: str, accept: str) -> None:
    if accept == "application/*" and path == CONFIGS:
        return  # Kubernetes does not take this for its own kinds
    theirs, mine = (server.send("GET", path, accept=accept, watch="1", timeoutSeconds="1") for server in (client, rota))
    assert mine.code == theirs.code
    if mine.code == 200:
        assert mine.headers["content-type"] == theirs.headers["content-type"]


@pytest.mark.parametrize("include", ["", "None", "Metadata", "Object", "Other"])
@pytest.mark.parametrize("kind", ["WorkerPool", "ConfigMap"])
def test_rows_of_a_table_carry_what_is_asked_for(both: Both, kind: str, include: str) -> None:
    parts: Object = {"spec": {"worker": {"type": "shell"}}} if kind == "WorkerPool" else {"data": {"a": "1"}}
    path = both.have(KINDS[kind], "rows", **parts)
    only: dict[str, Any] = {"fieldSelector": "metadata.name=rows"}
    for where, more in ((path, {}), (path.rpartition("/")[0], only)):
        accept = f"{JSON};as=Table;{META}"
        theirs, mine = (
            server.send("GET", where, accept=accept, includeObject=include, **more)
            for server in (both.client, both.rota)
        )
        assert mine.code == theirs.code
        if mine.code == 200:
            shapes = [[_shape(row["object"]) for row in answer.body["rows"]] for answer in (theirs, mine)]
            assert shapes[0] == shapes[1]
            names = [[column["name"] for column in answer.body["columnDefinitions"]] for answer in (theirs, mine)]
            assert names[0] == names[1]
        else:
            assert mine.body["message"] == theirs.body["message"]


def _shape(obj: Object | None) -> Any:
    return None if obj is None else (obj["kind"], obj["apiVersion"], sorted(obj))


LIST_OPTIONS: list[dict[str, str]] = [
    {"sendInitialEvents": "true"},
    {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"},
    {"resourceVersionMatch": "Exact"},
    {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
    {"resourceVersionMatch": "NotOlderThan"},
    {"resourceVersionMatch": "Other", "resourceVersion": "1"},
    {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "0"},
    {"resourceVersion": "x"},
    {"resourceVersion": "-1"},
    {"continue": "x"},
    {"limit": "x"},
    {"limit": "-1"},
    {"timeoutSeconds": "x"},
    {"labelSelector": "a=("},
    {"labelSelector": "a in (b"},
    {"labelSelector": "a,,b"},
    {"fieldSelector": "metadata.name"},
    {"fieldSelector": "other=1"},
    {"fieldSelector": "metadata.name=a=b"},
    {"fieldSelector": "metadata.name=a\\b"},
]
WATCH_OPTIONS: list[dict[str, str]] = [
    {"sendInitialEvents": "true"},
    {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
    {"sendInitialEvents": "true", "resourceVersionMatch": "Other"},
    {"resourceVersionMatch": "NotOlderThan"},
    {"resourceVersionMatch": "Exact"},
    {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "continue": "x"},
    {"labelSelector": "a=("},
    {"fieldSelector": "other=1"},
]


@pytest.mark.parametrize("path", [POOLS, CONFIGS])
async def test_options_of_lists(both: Both, path: str) -> None:
    for options in LIST_OPTIONS:
        await _causes_alike(both, path, options)


@pytest.mark.parametrize("path", [POOLS, CONFIGS])
async def test_options_of_watches(both: Both, path: str) -> None:
    for options in WATCH_OPTIONS:
        await _causes_alike(both, path, {**options, "watch": "1", "timeoutSeconds": "1"})


async def _causes_alike(both: Both, path: str, options: dict[str, Any]) -> None:
    """Compare the code, and what is wrong by field; how the mistakes of a text are told is Go's."""
    theirs, mine = (server.send("GET", path, **options) for server in (both.client, both.rota))
    assert mine.code == theirs.code, (options, theirs.body, mine.body)
    if theirs.code == 422:
        parts = [_details(answer.body) for answer in (theirs, mine)]
        assert parts[0] == parts[1], options


def _details(body: Any) -> Any:
    """Return the details of a refusal. The answer of a watch is not decoded."""
    status = msgspec.json.decode(body) if isinstance(body, str) else body
    return status["details"]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/livez/ping", "/readyz/ping", "/livez/other"])
@pytest.mark.parametrize("query", ["", "verbose", "exclude=ping", "verbose&exclude=ping", "verbose&exclude=other"])
def test_health(client: Client, rota: Client, path: str, query: str) -> None:
    theirs, mine = (server.send("GET", f"{path}?{query}") for server in (client, rota))
    assert mine.code == theirs.code
    if mine.code == 200:
        assert mine.headers["content-type"] == theirs.headers["content-type"]
        # The checks are each server's own, but for the first.
        lines = [answer.body.splitlines() for answer in (theirs, mine)]
        assert (lines[0][0], lines[0][-1]) == (lines[1][0], lines[1][-1])
        warned = [[line for line in each if line.startswith("warn")] for each in lines]
        assert warned[0] == warned[1]


async def test_reviews_of_oneself(both: Both) -> None:
    base = "/apis/authorization.k8s.io/v1"
    for spec in (
        {"resourceAttributes": {"verb": "get", "resource": "pods"}},
        {"resourceAttributes": {"verb": "*", "resource": "*", "group": "*"}},
        {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}},
        {},
        {"resourceAttributes": 7},
    ):
        theirs, mine = (
            server.send("POST", f"{base}/selfsubjectaccessreviews", {"spec": spec})
            for server in (both.client, both.rota)
        )
        assert mine.code == theirs.code, (spec, theirs.body, mine.body)
        if mine.code == 201:
            assert mine.body["status"]["allowed"] == theirs.body["status"]["allowed"]
            assert (mine.body["kind"], mine.body["apiVersion"]) == (theirs.body["kind"], theirs.body["apiVersion"])
    answers = [
        server.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        for server in (both.client, both.rota)
    ]
    assert [answer.code for answer in answers] == [201, 201]
    shapes = [sorted(answer.body["status"]["userInfo"]) for answer in answers]
    assert {"username", "groups"} <= set(shapes[0]) and {"username", "groups"} <= set(shapes[1])
    for answer in answers:
        assert {"system:masters", "system:authenticated"} <= set(answer.body["status"]["userInfo"]["groups"])
