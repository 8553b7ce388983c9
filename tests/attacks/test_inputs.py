"""By what an admin's object without isolation is made of, and by what is left of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from rota.api import KINDS, Claim, Instance, Kind, ObjectMeta, TaskSpawner
from rota.api.instance import Assignment
from rota.api.model import Ref
from rota.api.pool import ClaimSpec, ClaimStatus
from rota.api.references import references
from rota.api.schema import REFERS, object_schema
from rota.control.inputs import foreign
from rota.control.spawners.items import Item
from rota.control.spawners.making import task_of
from rota.control.tasks.retrying import retried
from rota.engine import StoreObjects
from rota.engine.objects import Objects
from rota.registry import ApiError, Registry, WriteOptions
from rota.registry.privileges import RESTRICTED, marked
from rota.server.auth import User
from rota.server.claims import ClaimBody, ClaimRequests
from rota.server.entering import authorise
from rota.store import MemoryStore
from tests.attacks.conftest import API, TENANT, Deployer, deployer
from tests.attacks.test_privileges import OPEN, body, made, until_over
from tests.examples import examples
from tests.server.conftest import Reply, Server, served
from tests.until import until_so

CORE = f"/api/v1/namespaces/{TENANT}"
MERGE = {"Content-Type": "application/merge-patch+json"}
SECONDS_MAX = 60
TEMPLATE = {"containers": [{"name": "main", "command": ["sleep", "100500"]}], "isolation": "none"}
BOXES = {"template": {**TEMPLATE, "terminationGracePeriodSeconds": 0}, "replicas": 1}


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as server:
        yield server


# Which fields name another object.

LIKE_A_REFERENCE = re.compile(r"(Refs?|From|Names?)$|^(dependsOn|cities)$")
NOT_REFERENCES = {
    "Cell.spec.capacity.instances": "a number",
    "Instance.spec.handler.function": "of the instance's own controller, in messages",
    "Location.spec.displayName": "a text for people",
    "Quota.spec.hard.instances": "a number",
    "QuotaClaim.spec.slots.requests.instances": "a number",
    "Revision.spec.workloadRef": "made for its Workload, which gives it nothing",
    "WorkloadDeployment.spec.workloadRef": "made for its Workload, from which it has all that it needs",
    "WorkloadDeployment.spec.cellName": "where it runs",
    "Instance.spec.cellName": "where it runs",
    "WorkloadDeployment.spec.placementName": "a part of its Workload",
}
"""Fields whose name looks as if they named an object of this server, and what they are."""


def _kind_like(name: str) -> bool:
    singular = name.lower().removesuffix("s")
    return singular in {kind.name.lower() for kind in KINDS.values()}


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", name, inner
        yield from _fields(inner, f"{path}.{name}")
    if "items" in schema:
        yield from _fields(schema["items"], path)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _fields(schema["additionalProperties"], path)


def _refers(schema: dict[str, Any]) -> bool:
    """Return whether the schema declares the kind that a field, or its content, refers to."""
    return REFERS in schema or any(REFERS in inner for _, _, inner in _fields(schema, ""))


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_to_be_an_input_that_no_kind_declares(kind: Kind) -> None:
    """A field that names another object says so, or is listed here with what it is instead."""
    spec = object_schema(kind)["properties"].get("spec", {})
    undeclared = {
        path
        for path, name, inner in _fields(spec, f"{kind.name}.spec")
        if (LIKE_A_REFERENCE.search(name) or _kind_like(name)) and not _refers(inner) and path not in NOT_REFERENCES
    }
    assert not undeclared


def _declared(kind: Kind) -> set[str]:
    spec = object_schema(kind)["properties"].get("spec", {})
    return {path for path, _, inner in _fields(spec, "spec") if REFERS in inner}


class _One:
    """Objects of which there is one: somebody else's."""

    def __init__(self, kind: Kind, name: str) -> None:
        self._key = kind, name

    def find(self, kind: Kind, namespace: str, name: str) -> Any:
        meta = ObjectMeta(name=name, namespace=namespace, annotations={RESTRICTED: "true"})
        return SimpleNamespace(api=kind, metadata=meta) if (kind, name) == self._key else None


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if _declared(kind)], ids=lambda kind: kind.name)
def test_to_be_an_input_that_is_not_looked_at(kind: Kind) -> None:
    """Every field that refers, of every kind: what it refers to is marked when others write it, and is found."""
    seen: set[str] = set()
    for example in examples(kind.name):
        found = references(kind, example)
        seen |= {re.sub(r"\[\d+\]", "", one.path) for one in found}
        obj = kind.type.decode(json.dumps(example).encode())
        for reference in found:
            assert reference.kind in marked()
            said = foreign(cast(Objects, _One(reference.kind, reference.name)), obj)
            assert said.startswith(f"{reference.kind.name}/"), reference
    assert seen == _declared(kind)


# As root.


async def secret(ask: Any, name: str, **values: str) -> None:
    sent = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}
    assert (await ask("POST", f"{CORE}/secrets", sent)).status == 201


async def test_to_run_on_the_host_by_the_credentials_of_an_admins_pool(live: Server) -> None:
    attacker = await deployer(live)
    await secret(live.ask, "keys", TOKEN="t")
    credentials = {"type": "api-key", "secretRef": {"name": "keys"}}
    open_ = {"worker": {**OPEN["worker"], "credentials": credentials}, "replicas": 1}  # type: ignore[dict-item]
    assert (await made(live, "WorkerPool", "open", open_)).status == 201
    task = {"command": ["bash", "-c", "true"], "workerPoolRef": {"name": "open"}}
    assert (await made(live, "Task", "before", task)).status == 201
    assert (await until_over(live, "before"))["phase"] == "Succeeded"
    trace = live.home / "trace"
    evil = {"stringData": {"BASH_ENV": f"$(touch {trace})"}}
    assert (await attacker.ask("PATCH", f"{CORE}/secrets/keys", evil, headers=MERGE)).status == 200
    # Also if the mark is taken away again.
    unmark = {"metadata": {"annotations": {RESTRICTED: None}}}
    assert (await attacker.ask("PATCH", f"{CORE}/secrets/keys", unmark, headers=MERGE)).status == 200
    assert (await made(live, "Task", "after", task)).status == 201
    status = await until_over(live, "after")
    assert (status["phase"], status["reason"]) == ("Failed", "NotAllowed"), status
    assert "WorkerPool/open is not isolated" in status["message"]
    assert f"Secret/{TENANT}/keys was written by somebody who is no admin" in status["message"]
    assert not trace.exists()
    # An admin's own is fine again.
    assert (await live.ask("DELETE", f"{CORE}/secrets/keys")).status == 200
    await secret(live.ask, "keys", TOKEN="t")
    assert (await made(live, "Task", "again", task)).status == 201
    assert (await until_over(live, "again"))["phase"] == "Succeeded"


async def test_to_have_an_admins_instance_started_with_anothers_variables(live: Server) -> None:
    attacker = await deployer(live)
    sent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"A": "b"}}
    assert (await attacker.ask("POST", f"{CORE}/configmaps", sent)).status == 201
    variable = {"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "A"}}}
    open_ = {"worker": {**OPEN["worker"], "env": [variable]}, "replicas": 1}  # type: ignore[dict-item]
    assert (await made(live, "WorkerPool", "open", open_)).status == 201

    async def conditions() -> list[dict[str, Any]]:
        found = (await live.ask("GET", f"{API}/{TENANT}/instances")).json["items"]
        return [one for item in found for one in item.get("status", {}).get("conditions", ())]

    refusal = f"ConfigMap/{TENANT}/settings was written by"
    said = await until_so(
        conditions, lambda there: any(refusal in one.get("message", "") for one in there), refusal, seconds=SECONDS_MAX
    )
    assert not any(one["type"] == "Programmed" and one["status"] == "True" for one in said)


async def test_to_hand_a_result_to_an_admins_task_and_be_gone(live: Server) -> None:
    attacker = await deployer(live)
    tasks = f"{API}/{TENANT}/tasks"
    for name, replicas in (("open", 1), ("later", 0)):
        assert (await made(live, "WorkerPool", name, {**OPEN, "replicas": replicas})).status == 201
    on = {"command": ["echo", "fine"], "workerPoolRef": {"name": "open"}}
    assert (await made(live, "Task", "evil", on)).status == 201
    assert (await until_over(live, "evil"))["phase"] == "Succeeded"
    assert (await made(live, "Task", "gate", {**on, "workerPoolRef": {"name": "later"}})).status == 201
    label = {"metadata": {"labels": {"a": "b"}}}
    assert (await attacker.ask("PATCH", f"{tasks}/evil", label, headers=MERGE)).status == 200
    assert (await made(live, "Task", "admins", {**on, "dependsOn": ["evil", "gate"]})).status == 201
    await until_so(
        lambda: live.ask("GET", f"{tasks}/admins"),
        lambda reply: reply.json.get("status", {}).get("dependencies"),
        "a task that knows its dependencies",
        seconds=SECONDS_MAX,
    )
    assert (await attacker.ask("DELETE", f"{tasks}/evil")).status == 200
    more = {"spec": {"replicas": 1}}
    assert (await live.ask("PATCH", f"{API}/{TENANT}/workerpools/later", more, headers=MERGE)).status == 200
    status = await until_over(live, "admins")
    assert (status["phase"], status["reason"]) == ("Failed", "NotAllowed"), status


def deployers(user: str = "mallory") -> WriteOptions:
    return WriteOptions(restricted=True, user=user)


async def test_to_sign_the_deliveries_of_an_admins_spawner() -> None:
    registry = Registry(MemoryStore())
    await registry.start()
    try:
        kinds = {kind: KINDS[kind] for kind in ("Secret", "TaskSpawner")}
        signing = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook"}, "stringData": {"secret": "s"}}
        await registry.create(kinds["Secret"], "default", signing)
        source = {"webhook": {"secretRef": {"name": "hook"}}}
        template = {"prompt": "go", "workerPoolRef": {"name": "open"}}
        await registry.create(
            kinds["TaskSpawner"], "default", body("TaskSpawner", "s", {"source": source, "taskTemplate": template})
        )
        objects = StoreObjects(registry)
        spawner = cast(TaskSpawner, objects.find(TaskSpawner.api, "default", "s"))
        item = Item("hook", ("1",), {})
        assert RESTRICTED not in task_of(objects, spawner, item)["metadata"]["annotations"]
        change = {"stringData": {"secret": "mine"}}
        await registry.patch(kinds["Secret"], "default", "hook", change, deployers())
        assert task_of(objects, spawner, item)["metadata"]["annotations"][RESTRICTED] == "true"
    finally:
        await registry.stop()


def test_to_be_run_again_as_the_admin_who_retries_it() -> None:
    task = body("Task", "sly", {"command": ["id"]}, annotations={RESTRICTED: "true", "a": "b"})
    assert retried(task, [task])["metadata"]["annotations"] == {RESTRICTED: "true"}
    assert "annotations" not in retried(body("Task", "fine", {}), [])["metadata"]


# What is left of it.


async def test_to_delete_what_an_admin_made_without_isolation(bare: Server, attacker: Deployer) -> None:
    assert (await made(bare, "WorkerPool", "open", OPEN)).status == 201
    where = f"{API}/{TENANT}/workerpools"
    for policy in ("Orphan", "Foreground", "Background"):
        refused = await attacker.ask("DELETE", f"{where}/open?propagationPolicy={policy}")
        assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert (await attacker.ask("DELETE", f"{where}?propagationPolicy=Orphan")).status == 403
    operation = {"verb": "delete", "apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool"}
    batch = {"operations": [{**operation, "namespace": TENANT, "name": "open", "propagationPolicy": "Orphan"}]}
    assert (await attacker.ask("POST", "/v1/batch", batch)).status == 403
    assert (await bare.ask("GET", f"{where}/open")).status == 200


@pytest.mark.parametrize("kind", ["WorkerPool", "Workload"])
async def test_to_leave_instances_that_nobody_can_delete(bare: Server, attacker: Deployer, kind: str) -> None:
    template = {"containers": TEMPLATE["containers"], "isolation": "sandbox"}
    placements = [{"name": "here", "cityCodes": ["local"]}]
    workload = {"template": {"spec": template}, "placements": placements}
    spec = {"template": template} if kind == "WorkerPool" else workload
    assert (await made(bare, kind, "squat", spec, by=attacker)).status == 201
    where = f"{API}/{TENANT}/{kind.lower()}s"
    operation = {"verb": "delete", "apiVersion": "rota.dev/v1alpha1", "kind": kind, "namespace": TENANT}
    batch = {"operations": [{**operation, "name": "squat", "propagationPolicy": "Orphan"}]}
    for refused in (
        await attacker.ask("DELETE", f"{where}/squat?propagationPolicy=Orphan"),
        await attacker.ask("DELETE", f"{where}/squat?orphanDependents=true"),
        await attacker.ask("DELETE", f"{where}?propagationPolicy=Orphan"),
        await attacker.ask("POST", "/v1/batch", batch),
        # By the finalizer that means the same.
        await attacker.ask("PATCH", f"{where}/squat", {"metadata": {"finalizers": ["orphan"]}}, headers=MERGE),
        await made(bare, kind, "born", spec, by=attacker, finalizers=["orphan"]),
    ):
        assert refused.status == 403 and b"only an admin can delete those" in refused.body, refused.body
    assert (await attacker.ask("DELETE", f"{where}/squat")).status == 200
    # An admin, who can delete them, may leave them.
    assert (await made(bare, kind, "left", spec)).status == 201
    assert (await bare.ask("DELETE", f"{where}/left?propagationPolicy=Orphan")).status == 200


async def instances(server: Server, least: int = 1) -> list[dict[str, Any]]:
    """Wait for so many that are ready. Returns those."""

    async def found() -> list[dict[str, Any]]:
        return list((await server.ask("GET", f"{API}/{TENANT}/instances")).json["items"])

    def ready(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            item
            for item in items
            for one in item.get("status", {}).get("conditions", ())
            if (one["type"], one["status"]) == ("Ready", "True")
        ]

    wanted = f"{least} ready instances"
    return ready(await until_so(found, lambda items: len(ready(items)) >= least, wanted, seconds=SECONDS_MAX))


async def until_gone(ask: Callable[[str, str], Awaitable[Reply]], path: str) -> None:
    await until_so(lambda: ask("GET", path), lambda reply: reply.status == 404, f"no {path}", seconds=SECONDS_MAX)


async def test_to_claim_what_an_admins_pool_has_left(live: Server) -> None:
    attacker = await deployer(live)
    where = f"{API}/{TENANT}/workerpools"
    assert (await made(live, "WorkerPool", "boxes", BOXES)).status == 201
    [left] = await instances(live)
    assert (await live.ask("DELETE", f"{where}/boxes?propagationPolicy=Orphan")).status == 200
    await until_gone(live.ask, f"{where}/boxes")
    namesake = {"template": {"containers": TEMPLATE["containers"], "isolation": "sandbox"}, "replicas": 0}
    assert (await made(live, "WorkerPool", "boxes", namesake, by=attacker)).status == 201
    for ask in (attacker.ask, live.ask):
        found = await ask("POST", f"/v1/pools/{TENANT}/boxes/claims", {"waitSeconds": 0})
        assert found.status in (403, 429), found.body
    assert (
        "assignment" not in (await live.ask("GET", f"{API}/{TENANT}/instances/{left['metadata']['name']}")).json["spec"]
    )


async def test_to_wait_for_a_pool_until_it_is_without_isolation(live: Server) -> None:
    attacker = await deployer(live)
    sandboxed = {**BOXES["template"], "isolation": "sandbox"}  # type: ignore[dict-item]
    assert (await made(live, "WorkerPool", "boxes", {"template": sandboxed, "replicas": 0})).status == 201
    asked = {"name": "mine", "waitSeconds": SECONDS_MAX}
    asking = asyncio.create_task(attacker.ask("POST", f"/v1/pools/{TENANT}/boxes/claims", asked))
    found = await until_so(
        lambda: live.ask("GET", f"{API}/{TENANT}/claims/mine"),
        lambda reply: reply.status != 404 or asking.done(),
        "a claim, or an answer",
        seconds=SECONDS_MAX,
    )
    if asking.done():
        assert asking.result().status == 403  # This host cannot isolate.
        return
    assert found.json["metadata"]["annotations"][RESTRICTED] == "true"
    opened = {"spec": {"template": {"isolation": "none"}, "replicas": 1}}
    assert (await live.ask("PATCH", f"{API}/{TENANT}/workerpools/boxes", opened, headers=MERGE)).status == 200
    refused = await asking
    assert refused.status in (403, 409), refused.body
    assert "is not isolated" in refused.json["message"]
    [box] = await instances(live)
    assert "assignment" not in box["spec"]


def open_instance() -> Instance:
    """One without isolation, which a claim has."""
    instance = Instance.decode(json.dumps(examples("Instance")[0]).encode())
    held = Assignment(id="u", kind="Claim", name="mine", uid="u", since=datetime.now(UTC))
    spec = msgspec.structs.replace(instance.spec, assignment=held)
    return msgspec.structs.replace(instance, spec=spec, status=None)


async def test_to_be_given_the_claim_that_an_admin_has_in_ones_name() -> None:
    spec = ClaimSpec(pool_ref=Ref(name="boxes"), holder="mallory")
    status = ClaimStatus(phase="Bound", instance_name="box")
    claim = Claim(metadata=ObjectMeta(name="mine", namespace=TENANT, uid="u"), spec=spec, status=status)
    found = {Claim.api: claim, Instance.api: open_instance()}
    objects = cast(Objects, SimpleNamespace(find=lambda kind, namespace, name: found.get(kind)))
    claiming = cast(Any, SimpleNamespace(is_usable=lambda claim: True))
    asked = ClaimBody(name="mine")
    admin = User("admin", "admin")
    known = ClaimRequests._earlier_claim
    assert await known(objects, claiming, ClaimBody(name="mine", holder="mallory"), admin, TENANT, "boxes") is claim
    with pytest.raises(ApiError) as refused:
        await known(objects, claiming, asked, User("mallory", "deployer", TENANT), TENANT, "boxes")
    assert refused.value.code == 403


@pytest.mark.parametrize("is_restricted", [True, False])
def test_to_enter_an_instance_without_isolation_by_a_claim(is_restricted: bool) -> None:
    marks = {RESTRICTED: "true"} if is_restricted else {}
    instance = open_instance()
    claim = SimpleNamespace(
        metadata=ObjectMeta(name="mine", namespace=TENANT, uid="u", annotations=marks),
        status=SimpleNamespace(instance_name="box"),
    )
    found = {Claim.api: claim, Instance.api: instance}
    objects = cast(Objects, SimpleNamespace(find=lambda kind, namespace, name: found.get(kind)))
    holder = User("mine", "claim", TENANT, "u")
    if not is_restricted:
        authorise(holder, objects, TENANT, "box")
        return
    with pytest.raises(ApiError) as refused:
        authorise(holder, objects, TENANT, "box")
    assert refused.value.code == 403


# Small ones.


async def test_to_have_more_than_the_quota_says(bare: Server, attacker: Deployer) -> None:
    own = body("Quota", "own", {"hard": {"instances": 1000}})
    where = f"{API}/{TENANT}/quotas"
    assert (await attacker.ask("POST", where, own)).status == 403
    assert (await bare.ask("POST", where, own)).status == 201
    assert (await attacker.ask("GET", f"{where}/own")).status == 200
    change = {"spec": {"hard": {"instances": 1_000_000}}}
    assert (await attacker.ask("PATCH", f"{where}/own", change, headers=MERGE)).status == 403
    assert (await attacker.ask("DELETE", f"{where}/own")).status == 403
    assert (await attacker.ask("DELETE", where)).status == 403


async def test_to_hold_up_a_deletion_in_another_namespace(bare: Server) -> None:
    attacker, victim = await deployer(bare), await deployer(bare, "victims")
    theirs = "/api/v1/namespaces/victims/configmaps"
    made_ = await victim.ask("POST", theirs, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "own", "uid": made_.json["metadata"]["uid"]}
    meta = {
        "name": "block",
        "finalizers": ["evil.example/stays"],
        "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
    }
    blocking = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    assert (await attacker.ask("POST", f"{CORE}/configmaps", blocking)).status == 201
    assert (await victim.ask("DELETE", f"{theirs}/own?propagationPolicy=Foreground")).status == 200
    await until_gone(victim.ask, f"{theirs}/own")


async def test_to_hold_up_the_deletion_of_what_is_of_all(bare: Server, attacker: Deployer) -> None:
    namespace = (await attacker.ask("GET", f"/api/v1/namespaces/{TENANT}")).json
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": TENANT, "uid": namespace["metadata"]["uid"]}
    meta = {"name": "block", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}
    blocking = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    assert (await attacker.ask("POST", f"{CORE}/configmaps", blocking)).status == 403


async def test_to_change_who_manages_what_an_admin_made_without_isolation(bare: Server, attacker: Deployer) -> None:
    assert (await made(bare, "WorkerPool", "open", OPEN)).status == 201
    where = f"{API}/{TENANT}/workerpools/open"
    before = (await bare.ask("GET", where)).json["metadata"]
    await attacker.ask("PATCH", where, {"metadata": {"managedFields": [{}]}}, headers=MERGE)
    applied = body("WorkerPool", "open", {"worker": OPEN["worker"]})
    apply = {"Content-Type": "application/apply-patch+yaml"}
    await attacker.ask("PATCH", f"{where}?fieldManager=evil&force=true", applied, headers=apply)
    assert (await bare.ask("GET", where)).json["metadata"] == before
