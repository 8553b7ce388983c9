"""To get in by the edge: every door of it, with every sort of credential, and what there is of signatures.

The rows come from its table of doors. `EDGE` says who is let in, apart from the code that decides it: a door that is
not in it fails.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator, Set
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

import pytest

from rota.api import Function, Kind, Secret, Task, TaskSpawner
from rota.client import Client
from rota.control.functions.asynchronous import ASYNCHRONOUS, AsynchronousCalls
from rota.control.functions.call_tasks import CALL_LABEL
from rota.control.spawner import Spawning
from rota.engine import StoreObjects
from rota.engine.clock import RealClock
from rota.registry import WriteOptions
from rota.server.calls import CallHandler
from rota.server.edge import EDGE_ROUTES, Edge, EdgeRoute
from rota.server.gateway_server import ENDPOINTS
from rota.server.http import Request, Response
from tests.attacks.conftest import TENANT
from tests.attacks.test_matrix import DIGEST, IT, KNOWN, STRANGERS, Credential, Matrix, matrix

__all__ = ["matrix"]

SIGNED = frozenset(("signed", "signed-by-another", "signed-by-nothing"))
CALLERS = frozenset(("function", "function-of-all", "role", "role-of-one"))

EDGE: dict[str, Set[str]] = {
    "GET,HEAD /healthz": KNOWN | STRANGERS | SIGNED,
    "POST /-/hooks/{namespace}/{name}": {"signed"},
    "GET,HEAD /-/calls/{namespace}/{name}": CALLERS,
    " /{namespace}/{name}/*": CALLERS,
}
"""The callers whom the edge lets in, by the kind of function that is not public."""


def _door(door: EdgeRoute) -> str:
    return f"{','.join(door.methods)} {door.pattern}"


class Outside:
    """The edge of a server without sockets. What is called is put off, so that nothing has to run."""

    def __init__(self, matrix: Matrix) -> None:
        objects, client = StoreObjects(matrix.registry), Client.local(matrix.registry)
        self.spawning = Spawning(client, objects, RealClock())
        serving: Any = SimpleNamespace(objects=objects, asynchronous=AsynchronousCalls(client, objects))
        calling = CallHandler(serving, matrix.tokens)
        self.edge = Edge(lambda: self.spawning, matrix.audit, lambda: calling)
        self.registry = matrix.registry
        self.credentials = dict(matrix.credentials)

    async def make(self) -> None:
        """Two functions, a call of each, and two webhooks, each with a secret of its own."""
        made: dict[Kind, list[dict[str, Any]]] = {
            Function.api: [_named(IT, _function()), _named("public", _function(public=True))],
            Task.api: [_named("call", _call(IT), _CALLED), _named("public", _call("public"), _CALLED)],
            Secret.api: [{**_named(name), "stringData": {"secret": name}} for name in (IT, "another")],
            TaskSpawner.api: [_named(name, _spawner(name)) for name in (IT, "another")],
        }
        for kind, bodies in made.items():
            for body in bodies:
                frame = {"apiVersion": kind.api_version, "kind": kind.name}
                await self.registry.create(kind, TENANT, {**frame, **body}, WriteOptions("test"))
        for who, key in (("signed", IT), ("signed-by-another", "another"), ("signed-by-nothing", "")):
            assert who in SIGNED
            digest = hmac.new(key.encode(), _DELIVERY, hashlib.sha256).hexdigest()
            self.credentials[who] = Credential({"x-hub-signature-256": f"sha256={digest}"})

    async def status(self, who: str, method: str, path: str) -> int:
        """As a bearer and as a key; the same for both."""
        given = self.credentials[who].headers
        found = {await self._status(given, method, path)}
        if "authorization" in given:
            found.add(await self._status({"x-rota-key": given["authorization"].partition(" ")[2]}, method, path))
        assert len(found) == 1, f"{who}: {method} {path}"
        return found.pop()

    async def _status(self, headers: dict[str, str], method: str, path: str) -> int:
        sent = {"host": "localhost", "prefer": "respond-async", "content-type": "application/json", **headers}
        answer: Any = self.edge(Request(method, path.encode(), sent, _DELIVERY, None))
        if isawaitable(answer):
            answer = await answer
        assert isinstance(answer, Response)
        return answer.status

    async def check(self, allowed: Set[str], method: str, path: str) -> None:
        """Ask as everybody: who is not let in gets 401, and changes nothing."""
        for who in self.credentials:
            if who not in allowed:
                before = self.registry.store.revision
                assert await self.status(who, method, path) == 401, f"{who}: {method} {path}"
                assert self.registry.store.revision == before, f"{who}: {method} {path}"
        for who in sorted(allowed):
            assert await self.status(who, method, path) not in (401, 403, 404), f"{who}: {method} {path}"


_DELIVERY = b'{"action": "opened"}'
_CALLED = {CALL_LABEL: ASYNCHRONOUS}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")


def _named(name: str, spec: dict[str, Any] | None = None, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, **({"spec": spec} if spec else {})}


def _function(**more: Any) -> dict[str, Any]:
    return {"source": {"inline": "def handler(event): pass"}, "entrypoint": "main:handler", **more}


def _call(function: str) -> dict[str, Any]:
    return {"function": {"name": function, "payload": {}}}


def _spawner(name: str) -> dict[str, Any]:
    template = {"command": ["true"], "workerPoolRef": {"name": "pool"}}
    return {"source": {"webhook": {"secretRef": {"name": name}}}, "taskTemplate": template}


@pytest.fixture
async def outside(matrix: Matrix) -> AsyncIterator[Outside]:
    made = Outside(matrix)
    await made.make()
    end = made.spawning.begin()
    yield made
    end()


def test_a_door_says_who_is_let_in() -> None:
    assert {_door(door) for door in EDGE_ROUTES} == EDGE.keys(), "say in EDGE who is let in"


@pytest.mark.parametrize("door", EDGE_ROUTES, ids=_door)
async def test_to_get_in_by_the_edge(outside: Outside, door: EdgeRoute) -> None:
    name = "call" if door.pattern.startswith("/-/calls") else IT
    path = door.pattern.format(namespace=TENANT, name=name).replace("*", "below")
    for method in door.methods or METHODS:
        await outside.check(EDGE[_door(door)], method, path)
    for method in set(METHODS) - set(door.methods or METHODS):
        for who in outside.credentials:
            assert await outside.status(who, method, path) == 405, f"{who}: {method} {path}"


@pytest.mark.parametrize("path", [f"/{TENANT}/absent/", f"/-/calls/{TENANT}/absent", "/absent/it/", "/other/it/"])
async def test_to_learn_at_the_edge_what_there_is(outside: Outside, path: str) -> None:
    """A caller without a key of a namespace gets the same answer whether a function is there or not."""
    namespace = path.replace("/-/calls", "").split("/")[1]
    keys = {TENANT: {"function", "function-of-all", "role"}, "other": {"function-of-other", "function-of-all"}}
    known = keys.get(namespace, {"function-of-all"}) | ({"role-of-other"} if namespace == "other" else set())
    for who in outside.credentials:
        assert await outside.status(who, "GET", path) == (404 if who in known else 401), f"{who}: {path}"


async def test_to_need_a_credential_for_what_is_open_to_all(outside: Outside) -> None:
    for path in (f"/{TENANT}/public/", f"/-/calls/{TENANT}/public"):
        await outside.check(outside.credentials.keys(), "GET", path)


async def test_to_find_a_way_in_at_the_edge_that_is_in_no_table(outside: Outside) -> None:
    names = {"namespace": TENANT, "name": IT, "pool": IT, "plural": "tasks", "digest": DIGEST, "token_id": "a"}
    paths = [one.pattern.format(**names, act="cut", session="x") for one in ENDPOINTS.all]
    paths += ["/", "", "/-", "/-/", "/-/hooks", f"/-/hooks/{TENANT}", "/-/tokens/a/b", f"/{TENANT}", "//it/", "/readyz"]
    paths += [f"/api/v1/namespaces/{TENANT}/secrets", "/apis/rota.dev/v1alpha1/tasks", "/openapi/v3", "/version"]
    before = outside.registry.store.revision
    for path in paths:
        for who in outside.credentials:
            assert await outside.status(who, "GET", path) in (401, 404), f"{who}: {path}"
    assert outside.registry.store.revision == before
