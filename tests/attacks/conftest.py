"""The attackers: one with a deployer's token for one namespace, and one without any token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import Reply, Server, served

TENANT = "tenant"
API = "/apis/rota.dev/v1alpha1/namespaces"


class Deployer:
    """Somebody with a token for one namespace."""

    def __init__(self, server: Server, token: str) -> None:
        self.server = server
        self.token = token

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Reply:
        return await self.server.ask(method, path, body, token=self.token, **more)


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[Server]:
    """A server that runs nothing."""
    async with served(tmp_path / "home", with_controllers=False) as server:
        yield server


async def deployer(server: Server, namespace: str = TENANT, scope: str = "deployer") -> Deployer:
    made = {"metadata": {"name": namespace}}
    assert (await server.ask("POST", "/api/v1/namespaces", made)).status in (201, 409)
    wanted = {"name": f"{scope}-of-{namespace}", "scope": scope, "namespace": namespace}
    return Deployer(server, (await server.ask("POST", "/v1/tokens", wanted)).json["token"])


@pytest.fixture
async def attacker(bare: Server) -> Deployer:
    return await deployer(bare)
