"""The served OpenAPI documents against the server: what they declare is sent, and so is what they exclude.

Schemathesis makes the requests of every operation of every document, and holds the answers to their declared codes,
content types and schemas. It decides nothing about valid requests that are refused: names, selectors and rules across
fields are not in a schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from rota.api import KINDS, Kind
from rota.api.openapi import base_path, component, document
from rota.api.served import SERVED, group_versions
from tests.amount import amount
from tests.examples import examples
from tests.server.live import Live, live

CASES_PER_OPERATION = 1
DEEP_CASES_PER_KIND = amount(3, 30)
NEGATIVE_ONE_IN = amount(5, 1)
"""One in so many of the operations with a body, in turn: each verb is tried with some kinds, nearly each kind with one;
most kinds share the parts that are made wrong, and making them takes longer than sending them."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
DOCUMENTS = [base_path(*gv) for gv in group_versions()]
PLACE = {"namespace": "default", "name": "example"}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
PATCHES = {
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "strategic": "application/strategic-merge-patch+json",
}

load_all_checks()


class Asking(requests.Session):
    """An admin's session with the server."""

    def __init__(self, server: Live) -> None:
        super().__init__()
        self.base = server.url
        self.trust_env = False  # the environment's certificates would go before the server's own
        self.verify = str(server.home / "ca.crt")
        user = json.loads(server.kubeconfig.read_text())["users"][0]["user"]
        self.headers["Authorization"] = f"Bearer {user['token']}"

    def at(self, method: str, path: str, **more: Any) -> requests.Response:
        return self.request(method, self.base + path, timeout=20, **more)

    def restore(self, kind: Kind) -> None:
        """The example that others delete and change, as it was."""
        if kind.name not in KINDS:
            return  # of which there are none, or always the same
        obj = examples(kind.name)[-1] if kind.name != "Namespace" else {}
        self.at("POST", collection(kind), json={**obj, "metadata": {"name": PLACE["name"]}})


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    with live(tmp_path_factory.mktemp("fuzz"), "--no-controllers") as server, Asking(server) as session:
        yield session


def collection(kind: Kind) -> str:
    scope = f"/namespaces/{PLACE['namespace']}" if kind.namespaced else ""
    return f"/{base_path(kind.group, kind.version)}{scope}/{kind.plural}"


def bounded(test: Callable[..., None], cases: int) -> Callable[..., None]:
    """The same cases in every run, and no more than these."""
    checks = list(HealthCheck)
    bound = settings(
        max_examples=cases, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=checks
    )
    return seed(0)(bound(test))


def operations(path: str) -> Iterator[Any]:
    loaded = schemathesis.openapi.from_dict(document(*next(gv for gv in group_versions() if base_path(*gv) == path)))
    for found in loaded.get_all_operations():
        yield cast(Any, found).ok()


def placed(operation: Any) -> dict[str, str]:
    return {name: value for name, value in PLACE.items() if f"{{{name}}}" in operation.path}


def kind_of(operation: Any) -> Kind:
    gvk = operation.definition.raw["x-kubernetes-group-version-kind"]
    return next(kind for kind in SERVED if (kind.group, kind.name) == (gvk["group"], gvk["kind"]))


@pytest.mark.parametrize("path", DOCUMENTS)
def test_the_documents_that_are_served_are_those_that_are_tested(asking: Asking, path: str) -> None:
    index = asking.at("GET", "/openapi/v3").json()["paths"]
    assert sorted(index) == sorted(DOCUMENTS)
    served = asking.at("GET", index[path]["serverRelativeURL"]).json()
    assert served == json.loads(json.dumps(document(*next(gv for gv in group_versions() if base_path(*gv) == path))))


@pytest.mark.timeout(600)  # Many cases, of which a busy machine makes few in a second.
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_answer_is_as_declared(asking: Asking, path: str, mode: schemathesis.GenerationMode) -> None:
    with_body = 0
    for operation in operations(path):
        if mode.is_negative and not (operation.query or operation.body):
            continue  # everything that can be sent is as declared
        with_body += bool(operation.body)
        if mode.is_negative and operation.body and (with_body - 1) % NEGATIVE_ONE_IN:
            continue

        requested = operation.as_strategy(generation_mode=mode, path_parameters=placed(operation))
        bounded(given(case=requested)(answered_as_declared(asking, kind_of(operation))), CASES_PER_OPERATION)()


def answered_as_declared(asking: Asking, kind: Kind) -> Callable[[Any], None]:
    def answered(case: Any) -> None:
        asking.restore(kind)
        (case.query or {}).pop("watch", None)  # a stream does not end
        answer = case.call(base_url=asking.base, session=asking, verify=asking.verify, timeout=20)
        case.validate_response(answer, checks=CHECKS)

    return answered


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_objects_of_the_declared_form_never_break_a_verb(asking: Asking, kind: str) -> None:
    """Generated objects under a valid name, so that they come as far as they can, by every verb that writes one."""
    here = KINDS[kind]
    path = f"{collection(here)}/{PLACE['name']}"
    ways = ["create", "update", "merge", "apply", *([] if here.custom else ["strategic"])]
    places = ["", *(["/status"] if here.has_status else [])]
    loaded = schemathesis.openapi.from_dict(document(here.group, here.version))
    template = path.replace(f"/{PLACE['namespace']}/", "/{namespace}/").replace(f"/{PLACE['name']}", "/{name}")
    operation = loaded[template]["PUT"]

    def is_written_or_refused(case: Any, way: str, place: str) -> None:
        body = {**case.body, "apiVersion": here.api_version, "kind": kind, "metadata": {"name": PLACE["name"]}}
        if way == "create":
            asking.at("DELETE", path)
            answer = asking.at("POST", collection(here), json=body)
        else:
            asking.restore(here)
            method, type_ = ("PUT", "application/json") if way == "update" else ("PATCH", PATCHES[way])
            query = {"fieldManager": "fuzz", "force": "true"} if way == "apply" else {}
            sent = json.dumps(body).encode()
            answer = asking.at(method, path + place, data=sent, headers={"Content-Type": type_}, params=query)
        operation.validate_response(answer)
        assert answer.status_code < 500, answer.text
        table = asking.at("GET", path, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
        assert table.status_code in (200, 404)

    case = operation.as_strategy(path_parameters=placed(operation))
    written = given(case=case, way=st.sampled_from(ways), place=st.sampled_from(places))(is_written_or_refused)
    bounded(written, DEEP_CASES_PER_KIND)()


@pytest.mark.parametrize("path", DOCUMENTS)
def test_methods_that_are_not_declared_are_not_allowed(asking: Asking, path: str) -> None:
    declared: dict[str, set[str]] = {}
    for operation in operations(path):
        asking.restore(kind_of(operation))
        declared.setdefault(operation.path.format(**PLACE), set()).add(operation.method.upper())
    assert declared
    for url, methods in declared.items():
        for method in sorted(set(METHODS) - methods):
            answer = asking.at(method, url)
            assert (answer.status_code, answer.json()["reason"]) in NOT_ALLOWED, (method, url)


NOT_ALLOWED = [(405, "MethodNotAllowed"), (404, "NotFound"), (400, "BadRequest")]
"""As on Kubernetes, whose paths of custom resources are unknown to other methods, or want a name."""


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
def test_a_subresource_that_is_not_there_is_not_the_object(asking: Asking, method: str) -> None:
    asking.restore(KINDS["ConfigMap"])
    path = f"{collection(KINDS['ConfigMap'])}/{PLACE['name']}"
    for part in ("status", "scale", "log"):
        assert asking.at(method, f"{path}/{part}", json={}).status_code == 404
    assert asking.at("GET", path).status_code == 200


OF_LISTS = ["limit=many", "limit=", "limit=1_0", "limit=9223372036854775808", "watch=perhaps"]
OF_READS = [
    "timeoutSeconds=soon",
    "timeoutSeconds=1.5",
    "allowWatchBookmarks=perhaps",
    "sendInitialEvents=perhaps",
    "resourceVersion=new",
    "resourceVersion=-1",
    "resourceVersionMatch=Roughly",
    "labelSelector=a%3D%3D%3Db",
    "labelSelector=%00",
    "fieldSelector=spec",
    "fieldSelector=spec.replicas%3D1",
    "&".join(f"p{i}=1" for i in range(101)),
]


@pytest.mark.parametrize("query", [*OF_LISTS, *OF_READS, *(f"{query}&watch=true" for query in OF_READS)])
def test_bad_query_parameters_of_reads_are_refused(asking: Asking, query: str) -> None:
    answer = asking.at("GET", f"{collection(KINDS['WorkerPool'])}?{query}")
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["kind"] == "Status"


OF_WRITES = [
    "dryRun=Some",
    "fieldValidation=Lax",
    f"fieldManager={'m' * 129}",
    "fieldManager=%07",
    "force=perhaps",
]
OF_DELETES = [
    "dryRun=Some",
    "propagationPolicy=Sideways",
    "gracePeriodSeconds=soon",
    "orphanDependents=perhaps",
]
BAD_WRITES = [
    *((method, query) for method in ("POST", "PUT", "PATCH") for query in OF_WRITES),
    *(("DELETE", query) for query in OF_DELETES),
]


@pytest.mark.parametrize(("method", "query"), BAD_WRITES)
def test_bad_query_parameters_of_writes_are_refused(asking: Asking, method: str, query: str) -> None:
    asking.restore(KINDS["ConfigMap"])
    whole = collection(KINDS["ConfigMap"])
    one = f"{whole}/{PLACE['name']}"
    headers = {"Content-Type": PATCHES["merge"] if method == "PATCH" else "application/json"}
    body = {} if method == "DELETE" else {"metadata": {"name": "other" if method == "POST" else PLACE["name"]}}
    answer = asking.at(method, f"{whole if method == 'POST' else one}?{query}", json=body, headers=headers)
    assert answer.status_code in (400, 422), answer.text
    assert asking.at("GET", one).status_code == 200


@pytest.mark.parametrize(
    "options",
    [
        [],
        "now",
        {"gracePeriodSeconds": "soon"},
        {"propagationPolicy": 1},
        {"propagationPolicy": "Sideways"},
        {"orphanDependents": "yes"},
        {"preconditions": []},
        {"preconditions": {"uid": 1}},
        {"dryRun": "All"},
        {"dryRun": ["Some"]},
    ],
    ids=json.dumps,
)
def test_bad_delete_options_are_refused_and_nothing_is_deleted(asking: Asking, options: Any) -> None:
    asking.restore(KINDS["ConfigMap"])
    path = f"{collection(KINDS['ConfigMap'])}/{PLACE['name']}"
    for url in (path, collection(KINDS["ConfigMap"])):
        assert asking.at("DELETE", url, json=options).status_code in (400, 422)
    assert asking.at("GET", path).status_code == 200


def test_a_collection_is_deleted_as_far_as_its_limit(asking: Asking) -> None:
    path = collection(KINDS["Lease"])
    for name in "abc":
        assert asking.at("POST", path, json={"metadata": {"name": name, "labels": {"of": "three"}}}).status_code == 201
    asking.at("DELETE", path, params={"labelSelector": "of=three", "limit": "2"})
    left = asking.at("GET", path, params={"labelSelector": "of=three"}).json()["items"]
    assert [item["metadata"]["name"] for item in left] == ["c"]


def test_an_owner_that_is_there_twice_without_a_uid_is_invalid(asking: Asking) -> None:
    meta = {"generateName": "a", "ownerReferences": [{}, {}]}
    assert asking.at("POST", collection(KINDS["ConfigMap"]), json={"metadata": meta}).status_code == 422


@pytest.mark.parametrize("agent", ["a" * 500, "caf\xe9/1", "\x80\x81", "", "/1"])
def test_any_user_agent_may_write(asking: Asking, agent: str) -> None:
    headers = {"User-Agent": agent.encode("latin-1")}
    made = asking.at("POST", collection(KINDS["ConfigMap"]), json={"metadata": {"generateName": "a"}}, headers=headers)
    assert made.status_code == 201
    assert made.json()["metadata"]["managedFields"][0]["manager"]


def test_every_component_that_is_referred_to_is_there() -> None:
    for gv in group_versions():
        text = json.dumps(document(*gv))
        for kind in KINDS.values():
            if (kind.group, kind.version) == gv:
                assert component(kind) in document(*gv)["components"]["schemas"]
        parts = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
        assert parts <= set(document(*gv)["components"]["schemas"])
