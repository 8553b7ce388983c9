"""The right to run a command in an instance, checked before anything is upgraded."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from rota.api import Instance, WorkerPool
from rota.client.upgrading import connect_unix
from rota.client.websocket import Closed
from rota.runtime import sandbox
from rota.server.auth import SCOPES, User, allows
from rota.server.exec import PARAMETERS_MAX
from tests.server.conftest import POOLS, Reply, Server
from tests.until import until_so

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
}
TRUE = {"command": "true", "stdout": "true"}
INSTANCE = {
    "apiVersion": "rota.dev/v1alpha1",
    "kind": "Instance",
    "metadata": {"name": "held"},
    "spec": {
        "containers": [{"name": "main", "command": ["true"]}],
        "templateHash": "x",
        "ordinal": 0,
        "schedulingGates": [{"name": "never"}],
    },
}


async def asked(
    server: Server,
    query: dict[str, Any] | None = None,
    *,
    namespace: str = "default",
    name: str = "none",
    token: str | None = "",
    unix: bool = False,
    headers: dict[str, str] | None = None,
) -> Reply:
    path = f"/v1/exec/{namespace}/{name}?{urlencode(TRUE if query is None else query, doseq=True)}"
    sent = {**UPGRADE, "Content-Length": "0", **(headers or {})}
    return await server.ask("GET", path, token=token, unix=unix, headers=sent)


async def token_of(server: Server, scope: str, namespace: str = "") -> str:
    made = await server.ask("POST", "/v1/tokens", {"name": "a", "scope": scope, "namespace": namespace})
    return str(made.json["token"])


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("namespace", ["", "here", "elsewhere"])
def test_only_admins_and_those_who_deploy_there_may(scope: Any, namespace: str) -> None:
    user = User("someone", scope, namespace)
    may = allows(user, "create", Instance.api, "here", "box-0", "exec")
    assert may == (scope == "admin" or (scope == "deployer" and namespace in ("", "here")))


def test_the_right_to_run_commands_is_for_instances_and_nothing_else() -> None:
    deployer = User("someone", "deployer", "here")
    assert not allows(deployer, "get", Instance.api, "here", "a", "exec")
    assert not allows(deployer, "create", WorkerPool.api, "here", "a", "exec")
    assert not allows(deployer, "create", Instance.api, "here", "a")


async def test_a_page_of_a_foreign_origin_does_not_get_in(server: Server) -> None:
    reply = await asked(server, headers={"Origin": "https://evil.example"})
    assert reply.status == 403 and b"Origin" in reply.body


async def test_a_foreign_name_of_the_server_does_not_get_in(server: Server) -> None:
    reply = await asked(server, headers={"Host": "evil.example"})
    assert reply.status == 403 and b"Host" in reply.body


async def test_without_a_credential_nobody_gets_in(server: Server) -> None:
    assert (await asked(server, token=None)).status == 401
    assert (await asked(server, token="wrong")).status == 401


async def test_the_servers_own_user_needs_no_token_on_its_socket(server: Server) -> None:
    assert (await asked(server, unix=True)).status == 404


@pytest.mark.parametrize("scope", ["viewer", "worker", "function"])
async def test_who_may_not_is_told_so_before_anything_else(server: Server, scope: str) -> None:
    reply = await asked(server, token=await token_of(server, scope, "default"))
    assert (reply.status, reply.json["reason"]) == (403, "Forbidden")
    assert "instances/exec" in reply.json["message"]


async def test_a_deployer_gets_into_the_own_namespace_only(server: Server) -> None:
    token = await token_of(server, "deployer", "default")
    assert (await asked(server, token=token)).status == 404
    assert (await asked(server, token=token, namespace="other")).status == 403


async def test_an_instance_that_is_not_there_or_does_not_run_is_told(server: Server) -> None:
    missing = await asked(server)
    assert (missing.status, missing.json["details"]["name"]) == (404, "none")
    made = await server.ask("POST", "/apis/rota.dev/v1alpha1/namespaces/default/instances", INSTANCE)
    assert made.status == 201, made.body
    held = await asked(server, name="held")
    assert held.status == 409 and "it is not running" in held.json["message"]
    other = await asked(server, TRUE | {"container": "side"}, name="held")
    assert other.status == 400 and "there are main" in other.json["message"]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"stdout": "true"}, "say which command"),
        ({"command": "", "stdout": "true"}, "say which command"),
        ({"command": "true"}, "at least 1 of"),
        ({"command": ["a", "b\0c"], "stdout": "1"}, "zero byte"),
        (TRUE | {"width": "-1"}, "no size"),
        (TRUE | {"height": "70000"}, "no size"),
        (TRUE | {"term": "x;y"}, "no kind of terminal"),
        (TRUE | {"command": ["x"] * PARAMETERS_MAX}, "words"),
    ],
    ids=range(8),
)
async def test_what_makes_no_sense_is_refused(server: Server, query: dict[str, Any], why: str) -> None:
    made = await server.ask("POST", "/apis/rota.dev/v1alpha1/namespaces/default/instances", INSTANCE)
    assert made.status == 201, made.body
    reply = await asked(server, query, name="held")
    assert reply.status == 400 and why in reply.json["message"]


async def test_another_protocol_is_refused(server: Server) -> None:
    reply = await asked(server, headers={"Sec-WebSocket-Protocol": "v1.channel.k8s.io"})
    assert reply.status == 400 and "v5.channel.k8s.io" in reply.json["message"]


async def test_each_try_is_in_the_trail_but_never_its_command(server: Server) -> None:
    await asked(server, TRUE | {"command": ["login", "--password", "hunter2"]})
    await asked(server, token=await token_of(server, "viewer"))
    trail = (server.home / "audit.log").read_text()
    lines = [line for line in map(json.loads, trail.splitlines()) if line.get("subresource") == "exec"]
    assert [(line["verb"], line["resource"], line["name"], line["code"]) for line in lines] == [
        ("create", "instances.rota.dev", "none", 404),
        ("create", "instances.rota.dev", "none", 403),
    ]
    assert "hunter2" not in trail and "login" not in trail


@pytest.mark.skipif(not sandbox.available().ok, reason=f"no sandbox here: {sandbox.available().why_not}")
async def test_a_token_that_is_revoked_ends_its_commands(server: Server) -> None:
    pool = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "bare"},
        "spec": {
            "replicas": 1,
            "template": {
                "containers": [{"name": "main", "command": ["sleep", "100300"]}],
                "isolation": "sandbox",
                "terminationGracePeriodSeconds": 0,
            },
        },
    }
    assert (await server.ask("POST", POOLS, pool)).status == 201
    await until_so(
        lambda: server.ask("GET", f"{POOLS}/bare"),
        lambda reply: reply.json.get("status", {}).get("readyReplicas") == 1,
        "a pool with a ready instance",
    )
    made = (await server.ask("POST", "/v1/tokens", {"name": "a", "scope": "deployer", "namespace": "default"})).json
    headers = {"Authorization": f"Bearer {made['token']}"}
    path = f"/v1/exec/default/bare-0?{urlencode({'command': ['sleep', '100301'], 'stdout': 'true'}, doseq=True)}"
    websocket = await connect_unix(str(server.socket), path, headers=headers, protocols=("v5.channel.k8s.io",))
    assert await websocket.receive() == b"\x01"
    assert (await server.ask("DELETE", f"/v1/tokens/{made['id']}")).status == 200
    with pytest.raises(Closed, match="no longer good") as closed:
        await websocket.receive()
    assert closed.value.code == 1008
    await server.ask("DELETE", f"{POOLS}/bare")
