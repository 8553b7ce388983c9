"""`/v1/why`: the chain to what an object waits for, and who may see what of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rota.engine import ControlLoop, Objects, StoreObjects
from rota.registry import ApiError, Registry
from rota.server.auth import User
from rota.server.why import EVENTS_MAX, why
from rota.store import MemoryStore
from tests.server.conftest import Reply, Server, served
from tests.until import until_so

ADMIN = User("admin", "admin")
RESOURCES = "/apis/rota.dev/v1alpha1/namespaces/default"


async def create(server: Server, plural: str, name: str, spec: Any, **meta: Any) -> dict[str, Any]:
    kind = {"workspaces": "Workspace", "workerpools": "WorkerPool", "tasks": "Task"}[plural]
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}
    reply = await server.ask("POST", f"{RESOURCES}/{plural}", body)
    assert reply.status == 201, reply.body
    made: dict[str, Any] = reply.json
    return made


async def create_chain(server: Server) -> None:
    await create(server, "workspaces", "repo", {"repo": "https://example.com/shop", "secretRef": {"name": "token"}})
    await create(server, "workerpools", "agents", {"worker": {"workspaceRef": {"name": "repo"}}})


async def told(server: Server, path: str, when: Callable[[Any], bool] = lambda answer: True, token: str = "") -> Any:
    """The answer, once it is one."""

    async def ask() -> Reply:
        reply = await server.ask("GET", f"/v1/why/{path}", token=token)
        assert reply.status in (200, 503), reply.body
        return reply

    reply = await until_so(ask, lambda found: found.status == 200 and when(found.json), f"an explanation of {path}")
    return reply.json


async def token_of(server: Server, scope: str, namespace: str = "") -> str:
    asked = {"name": scope, "scope": scope, "namespace": namespace}
    secret: str = (await server.ask("POST", "/v1/tokens", asked)).json["token"]
    return secret


def is_parked(answer: Any) -> bool:
    return bool(answer["step"].get("causes"))


async def test_the_chain_is_told_with_conditions_and_the_next_step(server: Server) -> None:
    await create_chain(server)
    answer = await told(server, "workerpools/default/agents", is_parked)
    (workspace,) = answer["step"]["causes"]
    assert (answer["step"]["name"], workspace["name"]) == ("WorkerPool/agents", "Workspace/repo")
    assert [c["name"] for c in workspace["causes"]] == [answer["root"]["name"]] == ["Secret/token"]
    assert [c["type"] for c in answer["step"]["conditions"]] == ["ResolvedRefs"]
    assert answer["advice"].startswith("create Secret/token: `kubectl create secret generic token")
    assert not answer["over"] and answer["time"].endswith("Z")


async def test_an_object_becomes_ready_when_its_cause_is_gone(server: Server) -> None:
    await create_chain(server)
    await told(server, "workspaces/default/repo", is_parked)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}}
    await server.ask("POST", "/api/v1/namespaces/default/secrets", secret)
    answer = await told(server, "workspaces/default/repo", lambda answer: answer["step"]["state"] == "Ready")
    assert answer["advice"] == "" and answer["step"] == answer["root"]


async def test_a_cluster_kind_has_no_namespace(server: Server) -> None:
    async def ask() -> Reply:
        reply = await server.ask("GET", "/v1/why/instancetypes/d1-standard-2")
        assert reply.status in (200, 404, 503)
        return reply

    reply = await until_so(ask, lambda found: found.status == 200, "an answer")
    assert reply.json["step"]["name"] == "InstanceType/d1-standard-2"
    assert (await server.ask("GET", "/v1/why/instancetypes/default/d1-standard-2")).status == 404
    assert (await server.ask("GET", "/v1/why/tasks/build")).status == 404


async def test_what_is_not_there_is_told_only_if_something_refers_to_it(server: Server) -> None:
    await create_chain(server)
    await told(server, "workspaces/default/repo", is_parked)
    assert (await told(server, "secrets/default/token"))["step"]["state"] == "Absent"
    reply = await server.ask("GET", "/v1/why/secrets/default/other")
    assert reply.status == 404 and reply.json["message"] == 'secrets "other" not found'
    assert reply.json["details"]["name"] == "other"


async def test_an_unknown_kind_is_not_found(server: Server) -> None:
    assert (await server.ask("GET", "/v1/why/gadgets/default/one")).status == 404


async def test_who_may_not_read_an_object_is_not_told_why(server: Server) -> None:
    await create_chain(server)
    viewer = await token_of(server, "viewer", "other")
    reply = await server.ask("GET", "/v1/why/workspaces/default/repo", token=viewer)
    assert reply.status == 403 and 'User "viewer" cannot get it' in reply.json["message"]
    reply = await server.ask("GET", "/v1/why/secrets/default/token", token=await token_of(server, "viewer"))
    assert reply.status == 403, "also when it is not there"


async def test_what_of_the_chain_may_not_be_read_has_a_name_and_a_state_only(server: Server) -> None:
    await create_chain(server)
    viewer = await token_of(server, "viewer")
    answer = await told(server, "workspaces/default/repo", is_parked, viewer)
    assert answer["step"]["causes"] == [
        {
            "id": "secrets/default/token",
            "name": "Secret/token",
            "state": "Absent",
            "field": "spec.secretRef",
            "verdict": "Missing",
            "hidden": True,
        }
    ]


async def test_events_of_the_object_and_of_the_root_are_told_the_newest_last(server: Server) -> None:
    await create_chain(server)
    meta = (await server.ask("GET", f"{RESOURCES}/workerpools/agents")).json["metadata"]
    root = (await server.ask("GET", f"{RESOURCES}/workspaces/repo")).json["metadata"]
    for i in range(EVENTS_MAX + 1):
        await report(server, f"own{i}", "WorkerPool", "agents", meta["uid"], second=i)
    await report(server, "foreign", "Task", "agents", "", second=50)
    await report(server, "former", "WorkerPool", "agents", "another-uid", second=50)
    await report(server, "between", "Workspace", "repo", root["uid"], second=50)
    answer = await told(server, "workerpools/default/agents", is_parked)
    assert [event["reason"] for event in answer["events"]] == [f"own{i}" for i in range(1, EVENTS_MAX + 1)]
    last = answer["events"][-1]
    assert last["count"] == 3 and last["type"] == "Normal" and last["lastSeen"] == "2026-01-01T00:00:10.000Z"


async def report(server: Server, reason: str, kind: str, name: str, uid: str, *, second: int) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"event-{reason}"},
        "involvedObject": {"kind": kind, "name": name, "namespace": "default", "uid": uid},
        "reason": reason,
        "message": "as it happens",
        "type": "Normal",
        "count": 3,
        "lastTimestamp": f"2026-01-01T00:00:{second:02}Z",
    }
    reply = await server.ask("POST", "/api/v1/namespaces/default/events", body)
    assert reply.status == 201, reply.body


# Where the controllers are not.


async def test_a_server_without_controllers_says_who_has_them(tmp_path: Path) -> None:
    async with served(tmp_path / "home", with_controllers=False) as server:
        await create_chain(server)
        reply = await server.ask("GET", "/v1/why/workspaces/default/repo")
        assert reply.status == 503 and "retry-after" not in reply.headers
        assert reply.json["message"] == (
            "no controllers run in this server (it was started with --no-controllers); "
            "`rota describe KIND/NAME` shows conditions and events"
        )
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "rota-controllers"},
            "spec": {"holderIdentity": "operator-7", "leaseDurationSeconds": 6, "renewTime": now_in_micros()},
        }
        await server.ask("POST", "/apis/coordination.k8s.io/v1/namespaces/rota-system/leases", lease)
        reply = await server.ask("GET", "/v1/why/workspaces/default/repo")
        assert "they run in operator-7" in reply.json["message"]


def now_in_micros() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Waiting:
    """Controllers that do not lead."""

    loop: ControlLoop | None = None

    def __init__(self, objects: Objects, leader: str) -> None:
        self.objects = objects
        self.leader = leader


@pytest.mark.parametrize(("leader", "said"), [("", "nobody leads yet"), ("operator-7", "operator-7 leads")])
async def test_a_server_that_does_not_lead_says_who_does(leader: str, said: str) -> None:
    registry = Registry(MemoryStore())
    await registry.start()
    with pytest.raises(ApiError) as refused:
        await why(Waiting(StoreObjects(registry), leader), ADMIN, "tasks", "default", "build")
    assert refused.value.code == 503 and said in refused.value.message
    assert refused.value.details == {"retryAfterSeconds": 1}
    await registry.stop()
