"""By an admin's Workspace of the host's files: what is checked out of it is for admins, unless they share it."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rota.runtime import sandbox
from rota.runtime.container.images import check_reference
from rota.runtime.interface import Refused
from tests.attacks.conftest import API, TENANT, deployer
from tests.attacks.test_privileges import body, made, until_over
from tests.server.conftest import Server, served
from tests.until import until_async

SECONDS_MAX = 60
MERGE = {"Content-Type": "application/merge-patch+json"}
SHELL = {"type": "shell", "workspaceRef": {"name": "host"}}
READS = ["sh", "-c", "cat secret.txt"]


def _repository(folder: Path) -> str:
    folder.mkdir()
    (folder / "secret.txt").write_text("the admin's\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for args in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "all")):
        subprocess.run(("git", *args), cwd=folder, check=True, capture_output=True)
    return f"file://{folder}"


async def _instances(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.ask("GET", f"{API}/{TENANT}/instances")).json["items"]
    return found


async def _condition(server: Server, owner: str, part: str) -> dict[str, Any]:
    """Wait until an instance has a condition that says something."""

    async def found() -> dict[str, Any] | None:
        for one in await _instances(server):
            for condition in one.get("status", {}).get("conditions", ()):
                if one["metadata"]["ownerReferences"][0]["kind"] == owner and part in condition.get("message", ""):
                    return dict(condition)
        return None

    condition: dict[str, Any] = await until_async(found, lambda: _instances(server), seconds=SECONDS_MAX)
    return condition


async def _ready(server: Server, pool: str) -> str:
    async def found() -> str | None:
        for one in await _instances(server):
            said = {each["type"]: each["status"] for each in one.get("status", {}).get("conditions", ())}
            if one["metadata"]["name"].startswith(pool) and said.get("Ready") == "True":
                return str(one["metadata"]["name"])
        return None

    return str(await until_async(found, lambda: _instances(server), seconds=SECONDS_MAX))


@pytest.mark.parametrize(
    "reference",
    [
        *("tarball:/etc/shadow", "docker-archive:/srv/x.tar", "oci-archive:x.tar", "oci:5000/x", "dir:1/x", "oci:1"),
        *("/etc/shadow", "../x", "-v=/:/host", "a b", "x" * 1025, "containers-storage:[overlay@/x]y"),
    ],
)
def test_to_have_a_file_of_the_host_taken_for_an_image(reference: str) -> None:
    """Also by what was admitted by an earlier release."""
    with pytest.raises(Refused) as refused:
        check_reference(reference)
    assert refused.value.reason == "ConfigurationError"


@pytest.mark.parametrize(
    "reference", ["app", "docker:24", "docker:5000/x", "oci", "oci/x:1", "host.example:5000/a/b@sha256:" + "a" * 64]
)
def test_names_of_images_are_taken(reference: str) -> None:
    check_reference(reference)


@pytest.mark.skipif(not sandbox.available().ok, reason="this host makes no sandboxes")
async def test_to_read_the_hosts_files_by_an_admins_workspace(tmp_path: Path) -> None:
    repo = await asyncio.to_thread(_repository, tmp_path / "repo")
    async with served(tmp_path / "home") as server:
        attacker = await deployer(server)
        workspace = body("Workspace", "host", {"repo": repo})
        assert (await server.ask("POST", f"{API}/{TENANT}/workspaces", workspace)).status == 201
        assert (await made(server, "WorkerPool", "admins", {"worker": SHELL, "replicas": 1})).status == 201
        # By a pool of their own, by a task's own worker, by a task on the admin's pool, by a claim, and by going in.
        assert (await made(server, "WorkerPool", "own", {"worker": SHELL, "replicas": 1}, by=attacker)).status == 201
        own = {"command": READS, "worker": SHELL}
        there = {"command": READS, "workerPoolRef": {"name": "admins"}}
        assert (await made(server, "Task", "own", own, by=attacker)).status == 201
        assert (await made(server, "Task", "there", there, by=attacker)).status == 201
        for owner in ("WorkerPool", "Task"):
            found = await _condition(server, owner, "a repository of this host")
            assert found["reason"] == "ConfigurationError" and "was written by somebody" in found["message"], found
        status = await until_over(server, "there")
        assert (status["phase"], status["reason"]) == ("Failed", "NotAllowed"), status
        instance = await _ready(server, "admins")
        claim = await attacker.ask("POST", f"/v1/pools/{TENANT}/admins/claims", {"waitSeconds": 0})
        assert claim.status == 403 and "a repository of this host" in claim.json["message"], claim.body
        entered = await attacker.ask("GET", f"/v1/instances/{TENANT}/{instance}/files?path=secret.txt")
        assert entered.status == 403, entered.body
        # An admin's own task has it; and an admin can hand it to all.
        assert (await made(server, "Task", "admins", there)).status == 201
        assert (await until_over(server, "admins"))["phase"] == "Succeeded"
        shared = {"metadata": {"annotations": {"rota.dev/shared": "true"}}}
        where = f"{API}/{TENANT}/workspaces/host"
        assert (await attacker.ask("PATCH", where, shared, headers=MERGE)).status == 403
        assert (await server.ask("PATCH", where, shared, headers=MERGE)).status == 200
        assert (await made(server, "Task", "shared", there, by=attacker)).status == 201
        assert (await until_over(server, "shared"))["phase"] == "Succeeded"
