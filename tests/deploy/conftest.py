from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota import ApiError, Client
from rota.api import Namespace
from tests.conformance.conftest import opening, shared_cluster, shared_server
from tests.conformance.objects import namespace as a_namespace
from tests.conformance.planes import KUBERNETES, UP
from tests.deploy.world import World

__all__ = ["shared_cluster", "shared_server"]

PLANES = ["memory", UP, KUBERNETES]


@pytest.fixture(params=PLANES)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A server, with a namespace that no other test uses."""
    async with opening(request, tmp_path) as plane:
        client = Client(plane.backend, manager="person", namespace=f"deploy-{secrets.token_hex(4)}")
        await client.create(a_namespace(client.namespace))
        yield await World.open(client, tmp_path)
        try:
            await client.delete(Namespace.api, client.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
