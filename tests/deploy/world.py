"""A server to deploy to, and people who change things there."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rota import Client
from rota.api import KINDS
from rota.client import LocalBackend
from rota.manifest.code_stores import BlobStore, blobs_of
from rota.manifest.deploy import PRUNABLE_KINDS, Deployer, Deployment, Removal, Step
from rota.manifest.deploy_lookup import list_all
from rota.manifest.project import Project, loads_project
from rota.registry import Registry
from rota.runtime.blobs import Blobs
from rota.store import MemoryStore

Object = dict[str, Any]


class KeptBlobs:
    """A blob store in a folder."""

    def __init__(self, folder: Path) -> None:
        self.blobs = Blobs(folder)
        self.sent: list[str] = []

    async def has(self, digest: str) -> bool:
        return self.blobs.keep(digest)

    async def put(self, digest: str, content: bytes) -> None:
        self.sent.append(digest)
        await self.blobs.put(digest, _once(content))


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


class World:
    """Deploys, and edits."""

    def __init__(self, client: Client, folder: Path, blobs: BlobStore | None) -> None:
        self.client = client
        self.folder = folder
        self.deployer = Deployer(client, blobs)

    @classmethod
    async def open(cls, client: Client, folder: Path) -> World:
        local = isinstance(client.backend, LocalBackend)
        return cls(client, folder, KeptBlobs(folder / "kept") if local else await blobs_of(client.backend))

    def project(self, text: str, **environment: str) -> Project:
        return loads_project(text, "rota.yaml", self.folder, environment)

    async def deploy(
        self, text: str, *, prune: bool = False, take_over: bool = False, **environment: str
    ) -> Deployment:
        project = self.project(text, **environment)
        foreseen = await self.deployer.plan(project, prune=prune, take_over=take_over)
        done: list[Step | Removal] = []
        await self.deployer.apply(foreseen, done.append)
        assert len(done) == len(foreseen.steps) + len(foreseen.removals)
        return foreseen

    async def get(self, kind: str, name: str) -> Object:
        found: Object = await self.client.get(KINDS[kind], name)
        return found

    async def edit(self, kind: str, name: str, **spec: Any) -> None:
        """Change an object as a person does with kubectl."""
        await self.client.patch(KINDS[kind], name, {"spec": spec})

    async def versions(self) -> dict[tuple[str, str], str]:
        """Every object of a project, and its version."""
        found = {}
        for kind in PRUNABLE_KINDS:
            for obj in await list_all(self.client, kind):
                found[kind.name, obj["metadata"]["name"]] = obj["metadata"]["resourceVersion"]
        return found


def outcomes(deployment: Deployment) -> dict[str, str]:
    """Return the outcome of each object."""
    return {step.name: step.outcome for step in deployment.steps}


@asynccontextmanager
async def in_memory() -> AsyncIterator[tuple[World, Registry]]:
    registry = Registry(MemoryStore())
    await registry.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield await World.open(Client.local(registry, manager="person"), Path(folder)), registry
    finally:
        await registry.stop()
