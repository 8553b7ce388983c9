"""To get in where nobody thought of asking who one is: every way in, with every sort of credential.

The rows come from the routing tables, so that a new endpoint is among them. `WHO` says who is let in, apart from the
code that decides it: an endpoint that is not in it fails.
"""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator, Iterator, Set
from inspect import isawaitable
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from rota.api import Claim, Instance, Kind, Role
from rota.api.reviews import REVIEWS
from rota.api.served import SERVED
from rota.registry import Registry, WriteOptions
from rota.registry.roles import rules_of
from rota.runtime.interface import Subject
from rota.server import discovery, objects
from rota.server.app import App
from rota.server.audit import Audit
from rota.server.auth import BRIEF_PREFIX, Tokens
from rota.server.definitions import definitions, establish
from rota.server.gateway_server import ENDPOINTS, server_gateway
from rota.server.health import PATHS
from rota.server.http import Request, Response, Stream
from rota.server.signed_tokens import SignedTokens
from rota.server.tables import Tables
from rota.server.upgrade import Upgrade
from rota.store import MemoryStore
from tests.attacks.conftest import TENANT

IT = "it"
"""The name of everything: the Instance, the Claim that has it, and each object that is asked for."""
DIGEST = "sha256:" + "0" * 64
BERLIN = "berlin"
CELL = f"rota-cell-{BERLIN}"

ADMINS = frozenset(("admin", "local"))
DEPLOYERS = frozenset(("deployer", "deployer-of-all", "brief", "role"))
"""Callers who may write objects that run; `brief` has a signed token, `role` a Role that names everything."""
READERS = ADMINS | DEPLOYERS | {"viewer", "viewer-of-all"}
STRANGERS = frozenset(
    (
        *("none", "garbage", "basic", "expired", "revoked", "forged-claim", "other-user"),
        *("brief-expired", "brief-revoked", "brief-forged"),
    )
)
"""Callers without a valid credential."""
KNOWN = READERS | {
    "deployer-of-other",
    "viewer-of-other",
    "role-of-other",
    "role-of-one",
    "role-of-nothing",
    "cell",
    "cell-of-other",
    "invited",
    "invited-of-other",
    "function",
    "function-of-other",
    "function-of-all",
    "runner",
    "runner-of-other",
    "claim",
    "claim-of-other",
}
READ_ALL = READERS - {"role"} | {"deployer-of-other", "viewer-of-other"}
"""Callers who may read objects of the cluster, which is beyond a Role."""

WHO = {
    "GET /v1/status": ADMINS,
    "GET /v1/metrics": ADMINS,
    "GET /v1/backup": ADMINS,
    "GET /v1/tokens": ADMINS,
    "POST /v1/tokens": ADMINS,
    "DELETE /v1/tokens/{token_id}": ADMINS,
    "POST /v1/cells/{name}/invite": ADMINS,
    "POST /v1/cells/{name}/join": {"invited"},
    "POST /v1/cells/{name}/report": {"cell"},
    "GET /v1/cells/{name}/reach": {"cell"},
    "GET /v1/cells/{name}/reach/{session}": {"cell"},
    "POST /v1/link/{act}": ADMINS,
    "POST /v1/batch": KNOWN,  # Of what is in it, each operation is decided for itself: see below.
    "GET /v1/why/{plural}/{name}": READ_ALL,
    "GET /v1/why/{plural}/{namespace}/{name}": READERS,
    "GET /v1/stream/{namespace}/{name}": {"runner"},
    "GET /v1/exec/{namespace}/{name}": ADMINS | DEPLOYERS | {"claim"},
    "GET /v1/instances/{namespace}/{name}/files": ADMINS | DEPLOYERS | {"claim"},
    "PUT /v1/instances/{namespace}/{name}/files": ADMINS | DEPLOYERS | {"claim"},
    "DELETE /v1/instances/{namespace}/{name}/files": ADMINS | DEPLOYERS | {"claim"},
    "GET /v1/instances/{namespace}/{name}/archive": ADMINS | DEPLOYERS | {"claim"},
    "PUT /v1/instances/{namespace}/{name}/archive": ADMINS | DEPLOYERS | {"claim"},
    "DELETE /v1/instances/{namespace}/{name}/archive": ADMINS | DEPLOYERS | {"claim"},
    "GET /v1/logs/{namespace}/{name}": READERS | {"claim"},
    "GET /v1/tasks/{namespace}/{name}/logs": READERS,
    "GET /v1/tasks/{namespace}/{name}/result": READERS,
    "GET /v1/functions/{namespace}/{name}/logs": READERS,
    "GET /v1/blobs/{digest}": ADMINS | DEPLOYERS | {"deployer-of-other", "role-of-other"},
    "HEAD /v1/blobs/{digest}": ADMINS | DEPLOYERS | {"deployer-of-other", "role-of-other"},
    "PUT /v1/blobs/{digest}": ADMINS | DEPLOYERS | {"deployer-of-other", "role-of-other"},
    "POST /v1/pools/{namespace}/{pool}/claims": ADMINS | DEPLOYERS | {"role-of-one"},
    "GET /v1/pools/{namespace}/{pool}/claims": READERS,
    "GET /v1/claims/{namespace}/{name}": READERS | {"claim"},
    "POST /v1/claims/{namespace}/{name}/renew": ADMINS | DEPLOYERS | {"claim"},
    "DELETE /v1/claims/{namespace}/{name}": ADMINS | DEPLOYERS | {"claim"},
}
"""The callers who are let in to each endpoint below `/v1`."""


class Credential(NamedTuple):
    headers: dict[str, str]
    peer_uid: int | None = None


class Matrix:
    """A server without sockets, and one credential of every sort."""

    def __init__(
        self, app: App, registry: Registry, credentials: dict[str, Credential], tokens: Tokens, audit: Audit
    ) -> None:
        self.app = app
        self.registry = registry
        self.credentials = credentials
        self.tokens = tokens
        self.audit = audit

    async def status(self, who: str, method: str, target: str, body: Any = None) -> int:
        """The status of the answer; of one that goes on, that of its beginning."""
        given = self.credentials[who]
        headers = {"host": "localhost", "content-type": "application/json", **given.headers}
        content = b"" if body is None else msgspec.json.encode(body)
        request = Request(method, target.encode(), headers, content, given.peer_uid)
        if target.startswith("/v1/blobs/"):
            request.pieces = cast(Any, _no_body())
        answer: Any = self.app(request)
        if isawaitable(answer):
            answer = await answer
        if isinstance(answer, Stream):
            await answer.chunks.aclose()  # type: ignore[attr-defined]
        assert isinstance(answer, Response | Stream | Upgrade)
        if isinstance(answer, Response) and b'"results":[' in answer.body:
            # Of a batch whose operations are decided each by itself.
            (result,) = msgspec.json.decode(answer.body)["results"]
            return int(result["code"])
        return 101 if isinstance(answer, Upgrade) else answer.status

    async def check(self, allowed: Set[str], method: str, target: str, body: Any = None) -> None:
        """Ask as everybody: who is nobody gets 401, who is somebody else 403, and nothing is changed by that."""
        assert allowed <= self.credentials.keys()
        for who in self.credentials:
            if who in allowed:
                continue
            before = self.registry.store.revision
            status = await self.status(who, method, target, body)
            # A token of a claim is nobody's once the claim is over; there is none of that name elsewhere.
            refusals = (401,) if who in STRANGERS else (401, 403) if who == "claim-of-other" else (403,)
            assert status in refusals, f"{who}: {method} {target}"
            assert self.registry.store.revision == before, f"{who}: {method} {target}"
        for who in sorted(allowed):
            assert await self.status(who, method, target, body) not in (401, 403), f"{who}: {method} {target}"


@pytest.fixture
async def matrix(tmp_path: Path) -> AsyncIterator[Matrix]:
    store = MemoryStore()
    registry = Registry(store)
    await registry.start()
    defined = definitions(store)
    await establish(defined, store)
    moments = [0.0]
    tokens = Tokens(
        tmp_path / "tokens.json",
        clock=lambda: moments[0],
        rules=lambda namespace, role: rules_of(store, namespace, role),
    )
    claims, runners = (SignedTokens(tmp_path / "worker.key", scope) for scope in ("claim", "worker"))
    audit = Audit(tmp_path / "audit.log")
    gateway = server_gateway(registry, tokens, audit, tmp_path, tmp_path / "ca.crt", claims, Tables())
    uid = os.getuid()
    app = App(
        registry,
        defined,
        tokens,
        audit,
        gateway,
        hosts=frozenset(("localhost",)),
        server_uid=uid,
        authority=tmp_path / "ca.crt",
        signed=(claims, runners),
    )
    for namespace in (TENANT, "other", CELL):
        await registry.ensure_namespace(namespace)
    claim = await _claim(registry)
    instance = await _instance(registry, claim)

    for namespace in (TENANT, "other"):
        await _role(registry, namespace, "all", _rule("*", "*"))
    await _role(
        registry, TENANT, "one", _rule("create", "functions/call", IT), _rule("create", "workerpools/claims", IT)
    )

    def token(name: str, scope: Any, namespace: str = "", expires: int = 0, role: str = "") -> Credential:
        return _bearer(tokens.create(name, scope, namespace=namespace, expires_seconds=expires, role=role)[0])

    revoked, kept = tokens.create("revoked", "admin")
    brief, kept_brief = tokens.sign("brief-revoked", "admin", seconds=100)
    deployers = tokens.sign("brief", "deployer", namespace=TENANT, seconds=100)[0]
    credentials = {
        "admin": token("admin", "admin"),
        "local": Credential({}, uid),
        "deployer": token("deployer", "deployer", TENANT),
        "deployer-of-other": token("deployer", "deployer", "other"),
        "deployer-of-all": token("deployer", "deployer"),
        "viewer": token("viewer", "viewer", TENANT),
        "viewer-of-other": token("viewer", "viewer", "other"),
        "viewer-of-all": token("viewer", "viewer"),
        "brief": _bearer(deployers),
        "role": token("role", "role", TENANT, role="all"),
        "role-of-other": token("role", "role", "other", role="all"),
        "role-of-one": token("role", "role", TENANT, role="one"),
        "role-of-nothing": token("role", "role", TENANT, role="none"),
        "cell": token("cell", "cell", CELL),
        "cell-of-other": token("cell", "cell", "rota-cell-other"),
        "invited": _bearer(tokens.invite(BERLIN, CELL, seconds=100, cell="")[0]),
        "invited-of-other": _bearer(tokens.invite("other", "rota-cell-other", seconds=100, cell="")[0]),
        "function": token("function", "function", TENANT),
        "function-of-other": token("function", "function", "other"),
        "function-of-all": token("function", "function"),
        "runner": _bearer(runners.of(Subject(TENANT, IT, instance))),
        "runner-of-other": _bearer(runners.of(Subject("other", IT, instance))),
        "claim": _bearer(claims.of(Subject(TENANT, IT, claim))),
        "claim-of-other": _bearer(claims.of(Subject("other", IT, claim))),
        "none": Credential({}),
        "garbage": _bearer("rota-\x00\xff garbage"),
        "basic": Credential({"authorization": "Basic YWRtaW46YWRtaW4="}),
        "expired": token("expired", "admin", expires=1),
        "revoked": _bearer(revoked),
        "forged-claim": _bearer(f"rota-claim-{TENANT}/{IT}/{claim}/{'0' * 64}"),
        "other-user": Credential({}, uid + 12345),
        "brief-expired": _bearer(tokens.sign("brief-expired", "admin", seconds=1)[0]),
        "brief-revoked": _bearer(brief),
        "brief-forged": _bearer(_forged(deployers)),
    }
    assert credentials.keys() == KNOWN | STRANGERS
    assert tokens.revoke(kept.id) and tokens.revoke(kept_brief.id)
    moments[0] = 10.0
    yield Matrix(app, registry, credentials, tokens, audit)
    audit.close()
    await registry.stop()


async def _no_body() -> AsyncIterator[bytes]:
    pieces: tuple[bytes, ...] = ()
    for piece in pieces:
        yield piece


def _bearer(secret: str) -> Credential:
    return Credential({"authorization": f"Bearer {secret}"})


def _forged(secret: str) -> str:
    """A token that says it is an admin's, with the signature of another."""
    said, _, signature = secret.removeprefix(BRIEF_PREFIX).partition(".")
    text = base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)).replace(b'"deployer"', b'"admin"')
    return f"{BRIEF_PREFIX}{base64.urlsafe_b64encode(text).decode().rstrip('=')}.{signature}"


def _rule(verb: str, resource: str, *names: str) -> dict[str, Any]:
    return {"verbs": [verb], "apiGroups": ["*"], "resources": [resource], "resourceNames": list(names)}


async def _role(registry: Registry, namespace: str, name: str, *rules: dict[str, Any]) -> None:
    frame = {"apiVersion": Role.api.api_version, "kind": "Role", "metadata": {"name": name}}
    await registry.create(Role.api, namespace, {**frame, "rules": list(rules)}, WriteOptions("test"))


async def _claim(registry: Registry) -> str:
    body = {"apiVersion": Claim.api.api_version, "kind": "Claim", "metadata": {"name": IT}}
    body["spec"] = {"poolRef": {"name": IT}, "holder": "somebody"}
    made = await registry.create(Claim.api, TENANT, body, WriteOptions("test"))
    status = {"status": {"phase": "Bound", "instanceName": IT}}
    await registry.patch(Claim.api, TENANT, IT, status, WriteOptions("test"), subresource="status")
    return str(msgspec.json.decode(made.value)["metadata"]["uid"])


async def _instance(registry: Registry, claim: str) -> str:
    held = {"kind": "Claim", "name": IT, "uid": claim, "id": "1", "since": "2026-01-01T00:00:00Z"}
    spec = {"containers": [{"name": "a", "command": ["true"]}], "templateHash": "x", "ordinal": 0, "assignment": held}
    body = {"apiVersion": Instance.api.api_version, "kind": "Instance", "metadata": {"name": IT}, "spec": spec}
    made = await registry.create(Instance.api, TENANT, body, WriteOptions("test"))
    apart = {"type": "Isolated", "status": "True", "reason": "Sandboxed", "message": ""}
    status = {"status": {"conditions": [{**apart, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
    await registry.patch(Instance.api, TENANT, IT, status, WriteOptions("test"), subresource="status")
    return str(msgspec.json.decode(made.value)["metadata"]["uid"])


# Below /v1.


def test_an_endpoint_says_who_is_let_in() -> None:
    assert {f"{one.method} {one.pattern}" for one in ENDPOINTS.all} == WHO.keys(), "say in WHO who is let in"


@pytest.mark.parametrize("endpoint", ENDPOINTS.all, ids=lambda one: f"{one.method} {one.pattern}")
async def test_to_get_in_below_v1(matrix: Matrix, endpoint: Any) -> None:
    plural = "tasks" if "{namespace}" in endpoint.pattern else "cells"
    names = {"namespace": TENANT, "name": IT, "pool": IT, "plural": plural, "digest": DIGEST, "token_id": "unknown"}
    if "/cells/" in endpoint.pattern:
        names["name"] = BERLIN
    names["act"], names["session"] = "cut", "x" * 22
    allowed = WHO[f"{endpoint.method} {endpoint.pattern}"]
    await matrix.check(allowed, endpoint.method, endpoint.pattern.format(**names), _body(endpoint.pattern))


def _body(pattern: str) -> Any:
    return {"operations": []} if pattern == "/v1/batch" else None


async def test_to_find_a_way_in_that_is_in_no_table(matrix: Matrix) -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"):
        for path in ("/v1", "/v1/", "/v1/status/", "/v1//status", "/v1/unknown", "/v1/status/../tokens", "/v2/status"):
            for who in ("deployer", "viewer", "claim", "runner", "function"):
                assert await matrix.status(who, method, path) in (403, 404, 405), f"{who}: {method} {path}"


# Everybody.


async def test_everybody_may_ask_for_health_and_who_is_known_for_what_there_is(matrix: Matrix) -> None:
    for path in PATHS:
        for who in matrix.credentials:
            assert await matrix.status(who, "GET", path) in (200, 500)
    for path in discovery.paths():
        if path not in PATHS and not path.startswith(tuple(f"{one}/" for one in PATHS)):
            await matrix.check(KNOWN, "GET", path)


# Objects.


class Way(NamedTuple):
    """One way to an object."""

    method: str
    target: str
    verb: str
    kind: Kind
    is_inside: bool
    part: str = ""


def ways(kind: Kind) -> Iterator[Way]:
    """Every request that the routing of objects knows for a kind."""
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    everywhere = f"{base}/{kind.plural}"
    inside = f"{base}/namespaces/{TENANT}/{kind.plural}" if kind.namespaced else everywhere
    if kind.namespaced:
        for method, verb in objects.ALL_NAMESPACES_VERBS.items():
            yield Way(method, everywhere, verb, kind, False)
        yield Way("GET", f"{everywhere}?watch=1", "watch", kind, False)
    for method, verb in objects.COLLECTION_VERBS.items():
        yield Way(method, f"{inside}?dryRun=All", verb, kind, kind.namespaced)
    yield Way("GET", f"{inside}?watch=1", "watch", kind, kind.namespaced)
    for method, verb in objects.OBJECT_VERBS.items():
        yield Way(method, f"{inside}/{IT}?dryRun=All", verb, kind, kind.namespaced)
    parts = (["status"] if kind.has_status else []) + (["scale"] if kind.scale else [])
    for part in parts:
        for method, verb in objects.SUBRESOURCE_VERBS.items():
            yield Way(method, f"{inside}/{IT}/{part}?dryRun=All", verb, kind, kind.namespaced, part)
    if kind.name == "Namespace":
        yield Way("PUT", f"{inside}/{IT}/finalize", "update", kind, False, "finalize")


def let_in(way: Way) -> frozenset[str]:
    """Return the scopes that may do this, as the reference of scopes has it."""
    kind, reads = way.kind, way.verb in ("get", "list", "watch")
    if kind in REVIEWS:
        return KNOWN if way.verb == "create" else ADMINS
    if kind.name == "Role" and not reads:
        return ADMINS | ({"role"} if way.is_inside else set())
    if not kind.namespaced:
        if kind.name == "Namespace":
            # Who has a token for one of them sees that one.
            seen = READ_ALL if way.verb != "get" else {"deployer-of-all", "viewer-of-all"}
            return ADMINS | (seen if reads else {"deployer-of-all"} if way.verb == "create" else set())
        cells = {"cell", "cell-of-other"} if reads and kind.name == "InstanceType" else set()
        return ADMINS | (READ_ALL if reads else set()) | cells
    writers = DEPLOYERS if way.is_inside else {"deployer-of-all"}
    viewers = {"viewer", "viewer-of-all"} if way.is_inside else {"viewer-of-all"}
    if reads:
        return ADMINS | writers | (viewers if kind.name != "Secret" else set())
    is_theirs = not kind.made and kind.name != "Quota" and way.part != "status"
    return ADMINS | (writers if is_theirs else set())


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: f"{kind.plural}.{kind.group}")
async def test_to_reach_objects_of_somebody_else(matrix: Matrix, kind: Kind) -> None:
    for way in ways(kind):
        await matrix.check(let_in(way), way.method, way.target, {} if way.method in ("PUT", "POST", "PATCH") else None)


@pytest.mark.parametrize("kind", [kind for kind in SERVED if kind.custom], ids=lambda kind: kind.plural)
async def test_to_reach_objects_of_somebody_else_in_a_batch(matrix: Matrix, kind: Kind) -> None:
    """The same as by their own URL, operation by operation."""
    for verb in ("create", "update", "patch", "delete"):
        for part in ("", *kind.parts):
            allowed = let_in(Way("", "", verb, kind, kind.namespaced, part))
            place: dict[str, Any] = {"namespace": TENANT} if kind.namespaced else {}
            operation: dict[str, Any] = {
                "verb": verb,
                "apiVersion": kind.api_version,
                "kind": kind.name,
                "name": IT,
                **place,
            }
            operation |= {"subresource": part, "body": {}, "dryRun": True}
            for atomic in (True, False):
                await matrix.check(allowed, "POST", "/v1/batch", {"atomic": atomic, "operations": [operation]})
