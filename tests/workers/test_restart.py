"""Workers while their server is killed, stopped and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.api import Instance
from rota.client import Client
from rota.runtime import sandbox
from tests.workers.farm import Farm, farm, pool, running, workspace
from tests.workspace.conftest import Repo

REPLICAS = 3
LAST = "tests.example/last"
WATCH_SECONDS_MAX = 20.0


@pytest.fixture
def made(tmp_path: Path, repo: Repo) -> Iterator[Farm]:
    with farm(tmp_path / "home") as started:
        worker = {"type": "shell", "workspaceRef": {"name": "code"}}
        started.apply(workspace("code", repo.url), pool("w", replicas=REPLICAS, worker=worker, storage={"size": "1Gi"}))
        started.ready("w", REPLICAS)
        yield started


async def _changes(home: Path, since: str) -> list[Instance]:
    """Every version of every instance that there was since then: the log of the store has them all."""
    client = Client.connect(home=home)
    found: list[Instance] = []
    try:
        await client.patch(Instance, "w-0", {"metadata": {"annotations": {LAST: "yes"}}})
        async with asyncio.timeout(WATCH_SECONDS_MAX):
            async for change in client.watch(Instance, resource_version=since):
                assert change.object is not None
                found.append(change.object)
                if LAST in change.object.metadata.annotations:
                    return found
        raise AssertionError("the watch ended")
    finally:
        await client.close()


def _version(made: Farm) -> str:
    listed = made.kubectl("get", "--raw", "/apis/rota.dev/v1alpha1/namespaces/default/instances")
    return str(json.loads(listed)["metadata"]["resourceVersion"])


def test_a_killed_server_finds_its_workers_ready_and_they_never_were_anything_else(made: Farm) -> None:
    made.hold("w-1", "before")
    before, since = made.runners(), _version(made)
    assert len(before) == REPLICAS
    made.kill()
    made.start()
    # A hold is taken on by a runner that is connected, and a release carried out.
    made.hold("w-0", "after")
    made.release("w-1")
    assert made.runners() == before
    seen = asyncio.run(_changes(made.home, since))
    unready = [one for one in seen if one.metadata.name in ("w-0", "w-2") and not _is_ready(one)]
    assert unready == [] and len({one.metadata.resource_version for one in seen}) > 2


def _is_ready(one: Instance) -> bool:
    ready = one.status.condition("Ready") if one.status is not None else None
    return ready is not None and ready.status == "True"


@pytest.mark.skipif(not sandbox.available().ok, reason="without a sandbox, what a command starts ends with it")
def test_what_a_holder_does_goes_on_while_the_server_is_away(made: Farm) -> None:
    made.hold("w-0")
    made.execute("w-0", f"echo mine > work; (setsid sleep {os.getpid()}.7 >/dev/null 2>&1 &)")
    made.until(lambda: running(f"sleep {os.getpid()}.7"))
    made.kill()
    assert running(f"sleep {os.getpid()}.7")
    made.start()
    made.until(lambda: made.instance("w-0")["status"]["assignment"] == {"id": "h", "phase": "Accepted"})
    assert made.execute("w-0", "cat work") == "mine\n"
    made.release("w-0")
    assert running(f"sleep {os.getpid()}.7") == []


def test_a_hold_that_ended_while_the_server_was_away_is_carried_out_when_it_is_back(made: Farm) -> None:
    made.hold("w-0")
    made.execute("w-0", "echo mine > work")
    made.kill()
    made.arguments = ("--no-controllers",)
    made.start()
    made.kubectl("patch", "inst", "w-0", "--type", "merge", "-p", '{"spec":{"assignment":null}}')
    made.kill()
    made.arguments = ()
    made.start()
    made.until(lambda: not (made.storage("w-0") / "repo" / "work").exists())
    made.ready("w", REPLICAS)


def test_a_runner_that_is_killed_is_followed_by_another_with_a_clean_tree(made: Farm) -> None:
    made.hold("w-0")
    made.execute("w-0", f"echo mine > work; (setsid sleep {os.getpid()}.8 >/dev/null 2>&1 &)")
    before = made.runners()["w-0"]
    os.kill(before, signal.SIGKILL)
    made.until(lambda: made.instance("w-0")["status"].get("assignment", {}).get("phase") == "Done")
    assert made.runners()["w-0"] != before and running(f"sleep {os.getpid()}.8") == []
    assert made.execute("w-0", "ls") == "file\n"


def test_a_killed_keeper_takes_the_workers_with_it_and_they_come_back_clean(made: Farm) -> None:
    made.hold("w-0")
    made.execute("w-0", f"echo mine > work; (setsid sleep {os.getpid()}.9 >/dev/null 2>&1 &)")
    before = made.runners()
    os.kill(int((made.home / "keeper" / "lock").read_text()), signal.SIGKILL)
    made.until(lambda: not set(made.runners().values()) & set(before.values()) and len(made.runners()) == REPLICAS)
    made.until(lambda: made.instance("w-0")["status"].get("assignment", {}).get("phase") == "Done")
    made.ready("w", REPLICAS)
    assert running(f"sleep {os.getpid()}.9") == [] and not (made.storage("w-0") / "repo" / "work").exists()


def test_an_idle_pool_is_not_written_to(made: Farm) -> None:
    """While everything is asked for that makes a controller look: the news of another pool, a restart, an exec."""
    before = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in made.read("inst")["items"]}
    version = made.read("wp", "w")["metadata"]["resourceVersion"]
    made.execute("w-0", "true")
    made.kill()
    made.start()
    made.apply(pool("other", worker={"type": "shell"}))
    made.ready("other", 1)
    made.kubectl("delete", "wp", "other")
    after = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in made.read("inst")["items"]}
    assert {name: after[name] for name in before} == before
    assert made.read("wp", "w")["metadata"]["resourceVersion"] == version
