"""Spawners in a world: made, looked at, and delivered to."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgspec

from rota.api import Task, TaskSpawner
from rota.client import Client, LocalBackend
from rota.client.connection import Limits
from rota.control.spawner import Spawners, Spawning
from rota.control.spawners.apis import Apis
from rota.control.spawners.hooks import Answer
from rota.engine import StoreObjects
from tests.engine_loop.loops import World
from tests.spawners.tracker import Tracker
from tests.unchecked import stored

KEY = b"a secret"
POOL: dict[str, Any] = {"workerPoolRef": {"name": "pool"}}
LIMITS = Limits(connections=1, connect_seconds=2.0, read_seconds=1.0)


class OneByOne(LocalBackend):
    """A server that has no atomic commit, as a cluster's."""

    atomic = False


class Scene:
    """A world with a pool to run on, a Secret to sign with, and the controller of spawners."""

    def __init__(self, world: World, github: Tracker | None = None, *, atomic: bool = True) -> None:
        self.world = world
        self.github = github
        backend = LocalBackend(world.registry) if atomic else OneByOne(world.registry)
        self.client = Client(backend, manager="spawners")
        apis = Apis([github.url] if github is not None else [])
        self.spawning = Spawning(self.client, StoreObjects(world.registry), world.clock, apis, limits=LIMITS)

    async def prepare(self) -> None:
        await self.world.create("WorkerPool", "pool", {"worker": {}, "replicas": 0})
        await self.secret("hook", secret=KEY.decode())

    async def secret(self, name: str, **values: str) -> None:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}
        await self.world.client.create(body)

    async def serve(self) -> None:
        await self.world.serve(Spawners(self.spawning), client=self.client)

    # Spawners.

    async def hook(self, name: str = "s", prompt: str = "{{ item.title }}", source: Any = None, **spec: Any) -> None:
        webhook = {"secretRef": {"name": "hook"}, **(source or {})}
        await self._create(name, {"webhook": webhook}, prompt, spec)

    async def poll(self, name: str = "s", prompt: str = "{{ item.title }}", source: Any = None, **spec: Any) -> None:
        url = self.github.url if self.github is not None else "https://api.github.com"
        github = {"apiURL": url, "repo": "acme/app", **(source or {})}
        await self._create(name, {"github": github}, prompt, spec)

    async def _create(self, name: str, source: Any, prompt: str, spec: Any) -> None:
        template = {"prompt": prompt, **POOL}
        await self.world.create("TaskSpawner", name, {"source": source, "taskTemplate": template, **spec})
        if self.world.serving is not None:
            await self.world.rest()

    async def took(self, source: Any, prompt: str) -> None:
        """A spawner that a cluster's API server took, which makes none of Rota's own checks."""
        if "github" in source and self.github is not None:
            source = {"github": {"apiURL": self.github.url, **source["github"]}}
        await stored(
            self.world.registry, "TaskSpawner", "s", {"source": source, "taskTemplate": {"prompt": prompt, **POOL}}
        )
        await self.world.rest()

    async def change(self, name: str = "s", **spec: Any) -> None:
        await self.world.patch("TaskSpawner", name, {"spec": spec})
        await self.world.rest()

    async def status(self, name: str = "s") -> Any:
        return (await self.world.get("TaskSpawner", name)).status

    async def ready(self, name: str = "s") -> tuple[str, str, str]:
        """Status, reason and message of the condition Ready."""
        return await self.world.condition("TaskSpawner", name, "Ready") or ("", "", "")

    async def version(self, name: str = "s") -> str:
        found: TaskSpawner = await self.world.get("TaskSpawner", name)
        return found.metadata.resource_version

    # Deliveries.

    async def deliver(
        self, body: Any, name: str = "s", *, key: bytes = KEY, delivery: str = "", **headers: str
    ) -> Answer:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        sent = {"x-hub-signature-256": "sha256=" + hmac.new(key, content, hashlib.sha256).hexdigest(), **headers}
        if delivery:
            sent["x-github-delivery"] = delivery
        return await self.spawning.hooks.deliver("default", name, sent, content)

    # Tasks.

    async def tasks(self) -> list[Task]:
        return (await self.world.client.list(Task)).items

    async def prompts(self) -> list[str]:
        return sorted(task.spec.prompt or "" for task in await self.tasks())

    async def finish(self, prompt: str, phase: str = "Succeeded") -> None:
        (task,) = [one for one in await self.tasks() if one.spec.prompt == prompt]
        await self.world.set_status("Task", task.metadata.name, phase=phase)
        await self.world.rest()

    async def prune(self, prompt: str) -> None:
        """A task is gone, as when its time to be kept is over."""
        (task,) = [one for one in await self.tasks() if one.spec.prompt == prompt]
        await self.world.delete("Task", task.metadata.name)
        await self.world.rest()
