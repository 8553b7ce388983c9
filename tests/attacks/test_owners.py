"""To reach what is another tenant's by saying that one's own objects belong to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota.api import Namespace, ObjectMeta, Task, TaskSpawner
from rota.client import Client
from rota.control.spawners.making import TaskMaker
from rota.engine import StoreObjects
from rota.registry import Registry
from rota.store import MemoryStore
from tests.schedules.scene import COMMAND, MINUTE, Scene, scene

__all__ = ["scene"]

OTHERS = "mallory"


def task(name: str, owner: Any) -> dict[str, Any]:
    """A task in a namespace of one's own that says that somebody else's object controls it, and that stays."""
    meta = owner.metadata
    reference = {"apiVersion": owner.api.api_version, "kind": owner.api.name, "name": meta.name, "uid": meta.uid}
    about = {"name": name, "finalizers": ["example.com/stay"], "ownerReferences": [{**reference, "controller": True}]}
    return {"apiVersion": Task.api.api_version, "kind": "Task", "metadata": about, "spec": COMMAND}


@pytest.mark.parametrize("overlap", ["Skip", "Replace"])
async def test_to_stop_a_schedule_and_have_it_cancel_what_it_did_not_make(scene: Scene, overlap: str) -> None:
    await scene.serve()
    tick = await scene.schedule(overlap=overlap)
    await scene.client.create(Namespace(metadata=ObjectMeta(name=OTHERS)))
    mine = {**task("deploy", tick), "metadata": {"name": "deploy"}}
    await scene.client.create(mine)
    await scene.client.create(task("deploy", tick), namespace=OTHERS)
    await scene.passes(MINUTE)
    status = await scene.status()
    assert status.skipped_count == 0
    assert "deploy" not in status.active
    assert not (await scene.client.get(Task, "deploy")).spec.cancel


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    made = Registry(MemoryStore())
    await made.start()
    yield made
    await made.stop()


async def test_to_use_up_how_many_tasks_a_spawner_may_have(registry: Registry) -> None:
    client = Client.local(registry, manager="m")
    await client.create(Namespace(metadata=ObjectMeta(name=OTHERS)))
    body = {"apiVersion": TaskSpawner.api.api_version, "kind": "TaskSpawner", "metadata": {"name": "s"}}
    template = {"prompt": "x", "workerPoolRef": {"name": "pool"}}
    source = {"webhook": {"secretRef": {"name": "hook"}}}
    await client.create({**body, "spec": {"source": source, "taskTemplate": template}})
    spawner = await client.get(TaskSpawner, "s")
    maker = TaskMaker(client, StoreObjects(registry))
    end = maker.begin()
    await client.create(task("theirs", spawner), namespace=OTHERS)
    await client.create(task("own", spawner))
    assert [*maker.active(spawner)] == ["own"]
    end()
