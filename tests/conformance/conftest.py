from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rota import ApiError, Client
from rota.api import Namespace
from tests.conformance.objects import namespace as a_namespace
from tests.conformance.planes import PLANES, Plane

As = Callable[[str], Client]
"""A client of the same namespace that writes as another manager."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(ability): skipped on planes that lack the ability")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "plane" in metafunc.fixturenames:
        metafunc.parametrize("plane", list(PLANES), indirect=True)


@pytest.fixture
async def plane(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Plane]:
    async with PLANES[request.param](tmp_path) as opened:
        for marker in request.node.iter_markers("needs"):
            if marker.args[0] in opened.lacks:
                pytest.skip(f"{request.param} has no {marker.args[0]}")
        yield opened


@pytest.fixture
async def client(plane: Plane) -> AsyncIterator[Client]:
    """A client in a namespace that no other test uses."""
    client = Client(plane.backend, manager="tester", namespace=f"conformance-{secrets.token_hex(4)}")
    await client.create(a_namespace(client.namespace))
    yield client
    try:
        await client.delete(Namespace.api, client.namespace)
    except ApiError as error:
        if error.code != 404:
            raise


@pytest.fixture
def as_manager(client: Client) -> As:
    return lambda manager: Client(client.backend, manager=manager, namespace=client.namespace)
