from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from rota import ApiError, Client
from rota.api import Namespace
from tests.conformance.cluster import Cluster, cluster
from tests.conformance.objects import namespace as a_namespace
from tests.conformance.planes import KUBERNETES, PLANES, UP, Plane, kubernetes, up
from tests.server.live import live

As = Callable[[str], Client]
"""A client of the same namespace that writes as another manager."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(ability): skipped on planes that lack the ability")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "plane" in metafunc.fixturenames:
        metafunc.parametrize("plane", [*PLANES, UP, KUBERNETES], indirect=True)


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not assets:
        pytest.skip("KUBEBUILDER_ASSETS is not set to a folder with etcd and kube-apiserver")
    with cluster(Path(assets), tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a server."""
    with live(tmp_path_factory.mktemp("server"), "--no-controllers") as server:
        yield server.kubeconfig


def opening(request: pytest.FixtureRequest, directory: Path) -> AbstractAsyncContextManager[Plane]:
    if request.param == KUBERNETES:
        return kubernetes(request.getfixturevalue("shared_cluster"))
    if request.param == UP:
        return up(request.getfixturevalue("shared_server"))
    return PLANES[request.param](directory)


@pytest.fixture
async def plane(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Plane]:
    async with opening(request, tmp_path) as opened:
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
