"""A server with pools of instances, and clients that claim them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota import Client
from rota.api import Claim, Instance
from tests.server.live import Live
from tests.until import until_async

SECONDS_MAX = 60.0
SCRIPT = "trap 'exit 0' TERM; while :; do sleep 0.2; done"


def manifest(name: str, replicas: int, **spec: Any) -> str:
    template = {
        "containers": [{"name": "main", "command": ["sh", "-c", SCRIPT]}],
        "isolation": "none",
        "terminationGracePeriodSeconds": 0,
    }
    return json.dumps(
        {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "WorkerPool",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"replicas": replicas, "template": template, **spec},
        }
    )


class Site:
    """A server whose pool `boxes` has two instances, and its clients."""

    def __init__(self, live: Live) -> None:
        self.live = live

    def client(self) -> Client:
        return Client.connect(home=self.live.home)

    async def claims(self, phase: str = "Bound") -> list[str]:
        """Names of the claims that are in a phase."""
        client = self.client()
        try:
            found = (await client.list(Claim)).items
        finally:
            await client.close()
        return [one.metadata.name for one in found if one.status is not None and one.status.phase == phase]

    async def until_free(self, client: Client, count: int = 2) -> None:
        """Go on when so many instances can be claimed."""

        async def so() -> bool:
            pool: Any = await client.list(Instance)
            idle = [one for one in pool.items if one.status is not None and one.status.phase == "Idle"]
            return len(idle) >= count and not await self.claims()

        await until_async(so, f"{count} instances are not free", seconds=SECONDS_MAX)


def site_in(home: Path) -> Iterator[Site]:
    live = Live(home)
    try:
        for text in (manifest("boxes", 2), manifest("none", 0)):
            live.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        yield Site(live)
    finally:
        live.end()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from site_in(tmp_path_factory.mktemp("home"))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Site]:
    """A server that a test may kill."""
    yield from site_in(tmp_path)


@pytest.fixture
async def client(shared: Site) -> AsyncIterator[Client]:
    made = shared.client()
    yield made
    await made.close()
