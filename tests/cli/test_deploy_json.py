"""`rota deploy -o json`, for programs; and where the functions of a deploy are called."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rota import Client
from rota.api import Function
from rota.cli import deployed_functions
from rota.cli.deployed_functions import urls_of
from rota.manifest.deploy import Deployer
from tests.cli.conftest import Terminal
from tests.cli.test_deploy import PROJECT
from tests.conformance.planes import memory
from tests.deploy.world import World

FUNCTIONS = """\
name: shop
functions:
  - {name: a, entrypoint: "m:h", source: {inline: ""}}
  - {name: b, entrypoint: "m:h", source: {inline: ""}}
"""


def deployed(rota: Terminal, text: str, *more: str) -> dict[str, Any]:
    ran = rota("deploy", "-f", rota.write("rota.yaml", text), "-o", "json", *more)
    assert ran.code == 0, ran.err
    said: dict[str, Any] = json.loads(ran.out)
    return said


def test_it_says_what_the_lines_say(rota: Terminal) -> None:
    none = {"created": 0, "updated": 0, "unchanged": 0, "deleted": 0, "released": 0}
    said = deployed(rota, PROJECT, "--dry-run")
    assert (said["project"], said["namespace"], said["dryRun"], said["finished"]) == ("shop", "default", True, True)
    said = deployed(rota, PROJECT)
    assert said["counts"] == {"Schedule": {**none, "created": 1}, "WorkerPool": {**none, "created": 1}}
    assert said["changes"][0] == {"kind": "WorkerPool", "name": "workers", "outcome": "created", "fields": []}
    said = deployed(rota, PROJECT.replace("replicas: 2", "replicas: 3"))
    (change,) = said["changes"]
    assert change["fields"] == [{"path": ["spec", "replicas"], "before": 2, "after": 3}]
    said = deployed(rota, "name: shop\n", "--prune", "--yes")
    assert said["counts"]["WorkerPool"] == {**none, "deleted": 1}


def test_code_that_is_sent_and_what_is_lacking_is_in_it(rota: Terminal) -> None:
    rota.write("code/main.py", "def handler(event, context): return 1\n")
    text = "name: shop\nfunctions:\n  - {name: f, path: code, entrypoint: 'main:handler'}\n"
    text += "pools:\n  - {name: p, worker: {workspaceRef: {name: w}}}\n"
    said = deployed(rota, text)
    assert [one["files"] for one in said["code"]] == [1] and said["code"][0]["digest"].startswith("sha256:")
    assert said["lacking"] == [{"object": "Workspace/w", "neededBy": ["WorkerPool/p"]}]


def test_secrets_are_not_in_it(rota: Terminal) -> None:
    deployed(rota, PROJECT)
    said = deployed(rota, PROJECT.replace("s3cr3t", "other"))
    assert said["changes"] and not any(word in json.dumps(said) for word in ("s3cr3t", "other"))


def test_a_deploy_that_ends_half_way_says_that_it_is_not_finished(
    rota: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Deployer._write

    async def failing(self: Deployer, step: Any, *rest: Any, dry_run: bool, **more: Any) -> Any:
        if step.name == "tick" and not dry_run:
            raise ConnectionError("the server is gone")
        return await written(self, step, *rest, dry_run=dry_run, **more)

    monkeypatch.setattr(Deployer, "_write", failing)
    ran = rota("deploy", "-f", rota.write("rota.yaml", PROJECT), "-o", "json")
    said = json.loads(ran.out)
    assert ran.code == 1 and not said["finished"] and [one["name"] for one in said["changes"]] == ["workers"]


def test_what_is_refused_is_told_beside_it(rota: Terminal) -> None:
    ran = rota("deploy", "-f", rota.write("rota.yaml", "name: shop\npools: [{name: p}]\n"), "-o", "json")
    assert ran.code != 0 and ran.out == "" and ran.err
    ran = rota("deploy", "-f", rota.write("rota.yaml", PROJECT), "-o", "yaml")
    assert ran.code == 2 and "there is json" in ran.err


async def test_where_new_functions_are_called_is_told_when_the_server_says_so(tmp_path: Path) -> None:
    async with memory(tmp_path) as plane:
        client = Client(plane.backend)
        world = World(client, tmp_path, None)
        done = await world.deploy(FUNCTIONS)
        asking = asyncio.create_task(urls_of(client, done))
        for name in ("a", "b"):
            patch = {"status": {"url": f"http://there/{name}/"}}
            await client.patch(Function.api, name, patch, subresource="status")
        assert await asking == {"a": "http://there/a/", "b": "http://there/b/"}
        assert await urls_of(client, await world.deploy(FUNCTIONS)) == {}, "nothing is new"


async def test_a_server_that_does_not_say_where_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployed_functions, "URL_SECONDS_MAX", 0.01)
    async with memory(tmp_path) as plane:
        world = World(Client(plane.backend), tmp_path, None)
        assert await urls_of(world.client, await world.deploy(FUNCTIONS)) == {}
