"""By what an admin made without isolation, or of the host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.api import Schedule
from rota.control.schedules.making import MANUAL, task_of
from rota.runtime import sandbox
from tests.attacks.conftest import API, TENANT, Deployer, deployer
from tests.server.conftest import Reply, Server, served
from tests.until import until_async, until_so

SECONDS_MAX = 60
OPEN = {"worker": {"type": "shell", "isolation": "none"}, "replicas": 1}
KINDS = {
    "WorkerPool": "workerpools",
    "Workload": "workloads",
    "Task": "tasks",
    "Schedule": "schedules",
    "Function": "functions",
}


def body(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


async def made(
    server: Server, kind: str, name: str, spec: dict[str, Any], by: Deployer | None = None, **metadata: Any
) -> Reply:
    ask = by.ask if by is not None else server.ask
    return await ask("POST", f"{API}/{TENANT}/{KINDS[kind]}", body(kind, name, spec, **metadata))


async def until_over(server: Server, name: str) -> dict[str, Any]:
    async def task() -> dict[str, Any]:
        found: dict[str, Any] = (await server.ask("GET", f"{API}/{TENANT}/tasks/{name}")).json
        return found

    async def over() -> dict[str, Any] | None:
        status: dict[str, Any] = (await task()).get("status", {})
        return status if status.get("phase") in ("Succeeded", "Failed", "Cancelled") else None

    status: dict[str, Any] = await until_async(over, task, seconds=SECONDS_MAX)
    return status


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as server:
        yield server


async def test_to_run_a_task_on_the_host_in_an_admins_pool(live: Server) -> None:
    attacker = await deployer(live)
    assert (await made(live, "WorkerPool", "open", OPEN)).status == 201
    task = {"command": ["cat", str(live.kubeconfig)], "workerPoolRef": {"name": "open"}}
    assert (await made(live, "Task", "reads", task, by=attacker)).status == 201
    # Also if the mark is said not to be there.
    sly = body("Task", "sly", task, annotations={"rota.dev/restricted": ""})
    assert (await attacker.ask("POST", f"{API}/{TENANT}/tasks", sly)).status == 201
    for name in ("reads", "sly"):
        status = await until_over(live, name)
        assert (status["phase"], status["reason"]) == ("Failed", "NotAllowed"), status
        assert "is not isolated" in status["message"]
    assert (await made(live, "Task", "admins", {**task, "command": ["echo", "fine"]})).status == 201
    assert (await until_over(live, "admins"))["phase"] == "Succeeded"


async def test_to_have_a_schedule_run_it_there_instead(live: Server) -> None:
    attacker = await deployer(live)
    assert (await made(live, "WorkerPool", "open", OPEN)).status == 201
    template = {"command": ["id"], "workerPoolRef": {"name": "open"}}
    spec = {"cron": "0 0 1 1 *", "target": {"taskTemplate": template}}
    assert (await made(live, "Schedule", "sly", spec, by=attacker)).status == 201
    assert (await made(live, "Schedule", "admins", spec)).status == 201
    # An admin's own that somebody else has changed is no longer the admin's alone.
    change = {"spec": {"target": {"taskTemplate": {"command": ["id", "-u"]}}}}
    patched = await attacker.ask(
        "PATCH",
        f"{API}/{TENANT}/schedules/admins",
        change,
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert patched.status == 200
    for name in ("sly", "admins"):
        found = Schedule.decode((await live.ask("GET", f"{API}/{TENANT}/schedules/{name}")).body)
        # As the controller makes it, and as an admin does who runs it by hand.
        task = task_of(found, 0, f"{name}-1", MANUAL)
        assert (await live.ask("POST", f"{API}/{TENANT}/tasks", task)).status == 201
        status = await until_over(live, f"{name}-1")
        assert (status["phase"], status["reason"]) == ("Failed", "NotAllowed"), (name, status)


CHANGES = [
    {"spec": {"worker": {"env": [{"name": "A", "value": "b"}]}}},
    {"spec": {"replicas": 3}},
    {"spec": {"worker": {"isolation": "sandbox"}}},
    {"metadata": {"labels": {"a": "b"}}},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
async def test_to_change_what_runs_without_isolation(bare: Server, attacker: Deployer, change: dict[str, Any]) -> None:
    assert (await made(bare, "WorkerPool", "open", OPEN)).status == 201
    where, merge = f"{API}/{TENANT}/workerpools/open", {"Content-Type": "application/merge-patch+json"}
    refused = await attacker.ask("PATCH", where, change, headers=merge)
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert "takes a token of scope admin" in refused.json["message"]
    before = (await bare.ask("GET", where)).json
    replaced = {**before, "spec": {**before["spec"], "worker": {"type": "shell"}}}
    assert (await attacker.ask("PUT", where, replaced)).status == 403
    scale = {"spec": {"replicas": 5}}
    assert (await attacker.ask("PATCH", f"{where}/scale", scale, headers=merge)).status == 403
    # What changes nothing is nothing.
    assert (await attacker.ask("PATCH", where, {"spec": {"replicas": 1}}, headers=merge)).status == 200
    after = (await bare.ask("GET", where)).json
    assert (after["spec"], after["metadata"].get("annotations")) == (before["spec"], None)


async def test_to_change_the_code_of_a_function_without_isolation(bare: Server, attacker: Deployer) -> None:
    spec = {"entrypoint": "app:handler", "isolation": "none", "source": {"inline": "def handler(e, c): return 1"}}
    assert (await made(bare, "Function", "open", spec)).status == 201
    where = f"{API}/{TENANT}/functions/open"
    evil = {"spec": {"source": {"inline": "import os\ndef handler(e, c): return os.environ"}}}
    refused = await attacker.ask("PATCH", where, evil, headers={"Content-Type": "application/merge-patch+json"})
    assert refused.status == 403


async def test_to_have_another_repository_of_the_host_read(bare: Server, attacker: Deployer) -> None:
    workspaces = f"{API}/{TENANT}/workspaces"
    spec = {"repo": "file:///srv/app"}
    assert (await bare.ask("POST", workspaces, body("Workspace", "app", spec))).status == 201
    for change in ({"repo": "file:///root/secrets"}, {"ref": "other"}, {"repo": "https://evil.example/x"}):
        refused = await attacker.ask(
            "PATCH", f"{workspaces}/app", {"spec": change}, headers={"Content-Type": "application/merge-patch+json"}
        )
        assert refused.status == 403, change


async def test_to_be_run_on_the_host_because_it_cannot_isolate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = sandbox.Availability(False, "bwrap is not installed; install the package bubblewrap")
    for module in ("rota.runtime.composing.sandbox.available", "rota.runtime.sandbox.availability.available"):
        monkeypatch.setattr(module, lambda: nothing)
    async with served(tmp_path / "home") as server:
        attacker = await deployer(server)
        own = {"command": ["id"], "worker": {"type": "shell"}}
        assert (await made(server, "Task", "sly", own, by=attacker)).status == 201
        said = (await server.ask("GET", f"{API}/{TENANT}/tasks/sly")).json
        assert said["spec"]["worker"]["isolation"] == "sandbox"

        async def ready() -> list[dict[str, Any]]:
            found = (await server.ask("GET", f"{API}/{TENANT}/instances")).json["items"]
            said = (one for item in found for one in item.get("status", {}).get("conditions", ()))
            return [one for one in said if one["type"] == "Ready"]

        await until_so(ready, lambda there: there and "bubblewrap" in there[0]["message"], "a refusal for bubblewrap")
        assert (await server.ask("GET", f"{API}/{TENANT}/tasks/sly")).json.get("status", {}).get("phase") != "Running"
        # What an admin wants to have run on the host is.
        assert (await made(server, "Task", "admins", own)).status == 201
        assert (await until_over(server, "admins"))["phase"] == "Succeeded"


@pytest.mark.parametrize("kind", ["Workload", "WorkerPool"])
async def test_to_be_run_on_the_host_when_an_admin_takes_the_sandbox_away(live: Server, kind: str) -> None:
    """Whatever lies between what somebody wrote and the instance passes the mark on."""
    attacker = await deployer(live)
    template = {"containers": [{"name": "main", "command": ["sleep", "1000"]}], "terminationGracePeriodSeconds": 0}
    placements = [{"name": "a", "cityCodes": ["local"]}]
    spec = {"template": {"spec": template}, "placements": placements} if kind == "Workload" else {"template": template}
    assert (await made(live, kind, "evil", spec, by=attacker)).status == 201
    change = {"isolation": "none"} if kind == "WorkerPool" else {"spec": {"isolation": "none"}}
    where = f"{API}/{TENANT}/{kind.lower()}s/evil"
    merge = {"Content-Type": "application/merge-patch+json"}
    assert (await live.ask("PATCH", where, {"spec": {"template": change}}, headers=merge)).status == 200

    async def refused() -> list[dict[str, Any]]:
        found = (await live.ask("GET", f"{API}/{TENANT}/instances")).json["items"]
        open_ = [one for one in found if one["spec"].get("isolation") == "none"]
        said = [c for one in open_ for c in one.get("status", {}).get("conditions", ()) if c["type"] == "Ready"]
        assert not any(one["status"] == "True" for one in said), "it runs"
        return said

    why = "was written by somebody who is no admin"
    await until_so(refused, lambda said: said and why in said[0]["message"], why, seconds=SECONDS_MAX)
