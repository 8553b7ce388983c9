"""A real server that polls a real tracker, and takes up where it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rota.api import Task, TaskSpawner
from rota.client import Client
from rota.server.main import run
from tests.spawners.tracker import Tracker, issue

PATIENCE_SECONDS = 20
POOL = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "pool"}}


@asynccontextmanager
async def serving(home: Path, *apis: str) -> AsyncIterator[Client]:
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(home, port=0, allowed_apis=apis, on_ready=started.set_result, stop=stop))
    await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    client = Client.connect(home=home)
    try:
        yield client
    finally:
        await client.close()
        stop.set()
        await asyncio.wait_for(task, PATIENCE_SECONDS)


def spawner(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "TaskSpawner",
        "metadata": {"name": "triage"},
        "spec": {
            "source": {"github": {"apiURL": url, "repo": "acme/app", "pollSeconds": 1}},
            "taskTemplate": {"prompt": "{{ item.title }}", "workerPoolRef": {"name": "pool"}},
        },
    }


async def until(client: Client, so: Callable[[TaskSpawner], bool]) -> TaskSpawner:
    """The spawner, once it is like that."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for change in client.watch(TaskSpawner):
            if change.object is not None and so(change.object):
                return change.object
    raise AssertionError("a watch of it ended")


def created(count: int) -> Callable[[TaskSpawner], bool]:
    return lambda found: found.status is not None and found.status.created == count


async def test_items_become_tasks_and_after_a_restart_only_new_ones_do(tmp_path: Path, github: Tracker) -> None:
    github.items = [issue(1)]
    async with serving(tmp_path / "home", github.url) as client:
        await client.create({**POOL, "spec": {"worker": {}, "replicas": 0}})
        await client.create(spawner(github.url))
        await until(client, created(1))
        github.items = [issue(2), issue(1)]
        await until(client, created(2))
        (second,) = [task for task in (await client.list(Task)).items if task.spec.prompt == "Issue 2"]
        kind: Any = Task
        await client.delete(kind, second.metadata.name)
    github.items = [issue(3), issue(2), issue(1)]
    async with serving(tmp_path / "home", github.url) as client:
        await until(client, created(3))
        assert sorted(task.spec.prompt or "" for task in (await client.list(Task)).items) == ["Issue 1", "Issue 3"]


async def test_a_server_that_was_not_told_of_an_api_does_not_dial_it(tmp_path: Path, github: Tracker) -> None:
    async with serving(tmp_path / "home") as client:
        await client.create({**POOL, "spec": {"worker": {}, "replicas": 0}})
        await client.create(spawner(github.url))
        found = await until(client, lambda found: found.readiness().reason == "ApiNotAllowed")
        assert "--allow-api" in found.readiness().message and not github.asked
