"""A control plane in one process: declare objects, share one between two managers, and watch the changes.

Run it with `.venv/bin/python examples/objects.py`, after `make run` or `make test`. The store is a file in a temporary
folder, which is opened a second time at the end.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from rota import ApiError, Client
from rota.api import ConfigMap, ObjectMeta, WorkerPool
from rota.client import Cache, Update
from rota.registry import Registry
from rota.store import SqliteStore


def pool(replicas: int) -> dict[str, object]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "agents"},
        "spec": {"worker": {"type": "shell"}, "replicas": replicas},
    }


def show(update: Update[WorkerPool]) -> None:
    pool = update.new
    what = f"replicas={pool.spec.replicas} generation={pool.metadata.generation}" if pool else "gone"
    print(f"  watch: {update.key.name}: {what}")


async def declare(client: Client) -> None:
    async with Cache(client, WorkerPool) as cache:
        cache.subscribe(show)
        print("apply 2 replicas, as alice")
        await client.apply(pool(2), manager="alice")
        print("scale to 5, as someone with kubectl would")
        await client.set_scale(WorkerPool, "agents", 5)
        print("apply 2 replicas again, as alice")
        try:
            await client.apply(pool(2), manager="alice")
        except ApiError as error:
            print(f"  refused: {error}")
        print("the same, by force")
        await client.apply(pool(2), manager="alice", force=True)
        print("declare nonsense")
        try:
            await client.apply({**pool(2), "spec": {"replicas": 5000, "colour": "red"}}, field_validation="Warn")
        except ApiError as error:
            for cause in error.causes or [{"field": "", "message": str(error)}]:
                print(f"  refused: {cause['field']}: {cause['message']}")
        await client.create(ConfigMap(metadata=ObjectMeta(name="settings"), data={"greeting": "hello"}))


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rota.db"
        for life in ("first", "second"):
            print(f"--- the {life} life of {path.name}")
            store = SqliteStore(path)
            registry = Registry(store)
            await registry.start()
            client = Client.local(registry, manager="example")
            if life == "first":
                await declare(client)
            else:
                for kind in (WorkerPool, ConfigMap):
                    found = await client.list(kind)
                    print(f"  still there: {kind.__name__} {[obj.metadata.name for obj in found.items]}")
            await registry.stop()
            await store.close()


if __name__ == "__main__":
    asyncio.run(main())
