"""A cluster with a kubelet, and the production controllers on it with the maker of Pods."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from rota.api import Claim, Instance, Namespace, Secret, WorkerPool
from rota.api.cluster import PersistentVolumeClaim, Pod
from rota.client import Cache, Client, HttpBackend
from rota.control.leading import Leading
from rota.control.making.pods.maker import PodMaker, pod_maker
from rota.control.table import controllers
from rota.engine import CachedObjects, kinds_of
from rota.engine.clock import RealClock
from rota.registry import ApiError, Registry
from rota.store import MemoryStore
from tests.pods.kubelet import Kubelet
from tests.pods.memory import MemoryCluster
from tests.until import until_async

SLEEP = ["sleep", "600"]


class ClusterPlane:
    """All of it, and what tests ask of it."""

    def __init__(self, client: Client, kubelet: Kubelet) -> None:
        self.client = client
        self.kubelet = kubelet
        self.backend: Any = client.backend
        self._leading: asyncio.Task[None] | None = None

    async def lead(self, **options: Any) -> None:
        """Begin to run the controllers, as an operator does that has come to lead."""
        ready = asyncio.Event()
        self._leading = asyncio.create_task(self._lead(options, ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((waiting, self._leading), return_when=asyncio.FIRST_COMPLETED)
        if self._leading.done():
            waiting.cancel()
            self._leading.result()

    async def _lead(self, options: dict[str, Any], ready: asyncio.Event) -> None:
        maker = PodMaker(self.client, Cache(self.client, Pod), Cache(self.client, PersistentVolumeClaim))
        kinds = [*dict.fromkeys([*kinds_of(controllers(maker=maker)), Namespace.api])]
        objects = CachedObjects(self.client, kinds)
        client = Client(objects.seeing(self.client.backend), manager="rota-controllers", namespace="default")
        async with objects, pod_maker(client, **options) as made:
            ready.set()
            await Leading(client, objects, RealClock(), identity="test", maker=made).run()

    async def stop(self) -> None:
        """End the controllers, as when an operator is killed: what they made goes on."""
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.gather(self._leading, return_exceptions=True)
            self._leading = None

    async def pool(self, name: str = "boxes", replicas: int = 1, **more: Any) -> None:
        await self.client.apply(a_pool(name, replicas, **more), force=True)

    async def pod(self, name: str) -> Pod | None:
        found: Pod | None = await _or_none(self.client.get(Pod, name, namespace="default"))
        return found

    async def instance(self, name: str) -> Instance | None:
        found: Instance | None = await _or_none(self.client.get(Instance, name, namespace="default"))
        return found

    async def is_ready(self, pool: str = "boxes") -> bool:
        found = await self.client.get(WorkerPool, pool, namespace="default")
        return found.readiness().state == "Ready"

    async def ready(self, pool: str = "boxes") -> None:
        await self.until(lambda: self.is_ready(pool))

    async def reason(self, name: str) -> tuple[str, str]:
        """The reason why an instance is not ready, and its message."""
        found = await self.instance(name)
        ready = found.status.condition("Ready") if found is not None and found.status is not None else None
        return ("", "") if ready is None or ready.status == "True" else (ready.reason, ready.message)

    async def until_reason(self, name: str, reason: str, message: str = "") -> None:
        async def so() -> bool:
            said = await self.reason(name)
            return said[0] == reason and message in said[1]

        await self.until(so, lambda: self.reason(name))

    async def until(
        self, so: Callable[[], Awaitable[object]], told: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        async def there() -> str:
            instances = (await self.client.list(Instance, namespace="default")).items
            pods = (await self.client.list(Pod, namespace="default")).items
            said = await told() if told is not None else ""
            return f"{said}\n{[one.status for one in instances]}\n{pods}"

        await until_async(so, there)

    async def claim(self, name: str, pool: str = "boxes", **spec: Any) -> Claim:
        meta = {"name": name, "namespace": "default"}
        made = {"apiVersion": Claim.api.api_version, "kind": "Claim", "metadata": meta}
        await self.client.create({**made, "spec": {"poolRef": {"name": pool}, **spec}})

        async def is_bound() -> bool:
            found = await self.client.get(Claim, name, namespace="default")
            return found.status is not None and found.status.phase == "Bound"

        await self.until(is_bound)
        return await self.client.get(Claim, name, namespace="default")


def a_pool(name: str, replicas: int, *, container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "image:1", "command": SLEEP, **(container or {})}
    template = {"containers": [main], "terminationGracePeriodSeconds": 1, **spec.pop("template", {})}
    return {
        "apiVersion": WorkerPool.api.api_version,
        "kind": "WorkerPool",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "template": template, **spec},
    }


async def _or_none(getting: Awaitable[Any]) -> Any:
    try:
        return await getting
    except ApiError as error:
        if error.code != 404:
            raise
        return None


@contextlib.asynccontextmanager
async def in_memory() -> AsyncIterator[ClusterPlane]:
    registry = Registry(MemoryStore())
    await registry.start()
    client = Client(MemoryCluster(registry), manager="test", namespace="default")
    try:
        async with Kubelet(client) as kubelet:
            plane = ClusterPlane(client, kubelet)
            try:
                yield plane
            finally:
                await plane.stop()
    finally:
        await registry.stop()


@contextlib.asynccontextmanager
async def on_cluster(kubeconfig: Path) -> AsyncIterator[ClusterPlane]:
    """On a real API server, which is emptied afterwards."""
    client = Client.connect(kubeconfig=kubeconfig, manager="test", namespace="default")
    assert isinstance(client.backend, HttpBackend)
    await client.backend.version()  # What it is decides how it is written to.
    try:
        async with Kubelet(client, is_real=True) as kubelet:
            plane = ClusterPlane(client, kubelet)
            try:
                yield plane
            finally:
                await plane.stop()
                await _empty(client)
    finally:
        await client.close()


async def _empty(client: Client) -> None:
    kinds: list[Any] = [Claim, WorkerPool, Instance, Pod, PersistentVolumeClaim, Secret]
    for kind in kinds:
        for one in (await client.list(kind, namespace="default")).items:
            with contextlib.suppress(ApiError):
                if one.metadata.finalizers:
                    await client.patch(kind, one.metadata.name, {"metadata": {"finalizers": None}}, namespace="default")
                await client.delete(kind, one.metadata.name, namespace="default", grace_seconds=0)
