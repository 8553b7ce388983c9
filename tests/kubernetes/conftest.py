"""These tests need `KUBEBUILDER_ASSETS`: the folder with `etcd` and `kube-apiserver`, as envtest has it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rota.api.crd import crds
from tests.corpus import Corpus
from tests.kubernetes.comparison import Both
from tests.kubernetes.server import Client, running
from tests.server.live import live
from tests.until import until

CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ESTABLISHED_SECONDS_MAX = 60


@pytest.fixture(scope="session")
def assets() -> Path:
    folder = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not folder:
        pytest.skip("KUBEBUILDER_ASSETS is not set to a folder with etcd and kube-apiserver")
    return Path(folder)


@pytest.fixture(scope="session")
def client(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A real API server that has Rota's kinds."""
    with running(assets, tmp_path_factory.mktemp("kubernetes")) as client:
        for crd in crds():
            response = client.send("POST", CRD_PATH, crd, fieldValidation="Strict")
            assert response.code == 201, response.body["message"]
            assert not response.warnings
        _wait_until_served(client)
        yield client


def _wait_until_served(client: Client) -> None:
    """Established, and listed by discovery, which comes a little later."""
    names = {crd["spec"]["names"]["plural"] for crd in crds()}

    def missing() -> set[str]:
        response = client.send("GET", "/apis/rota.dev/v1alpha1")
        served = {r["name"] for r in response.body["resources"]} if response.code == 200 else set()
        return names - served

    until(lambda: not missing(), lambda: f"not served: {sorted(missing())}", seconds=ESTABLISHED_SECONDS_MAX)


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return Corpus()


@pytest.fixture(scope="session")
def rota(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of `rota up`."""
    with live(tmp_path_factory.mktemp("rota"), "--no-controllers") as server:
        token = json.loads(server.kubeconfig.read_text())["users"][0]["user"]["token"]
        client = Client(int(server.url.rpartition(":")[2]), server.home / "ca.crt", token)
        yield client
        client.close()


@pytest.fixture
async def both(client: Client, rota: Client) -> AsyncIterator[Both]:
    """The two servers, side by side. A test fails on any difference that is not documented."""
    both = Both(client, rota)
    yield both
    both.forget()
    assert not both.unexplained, "\n\n".join([f"{len(both.unexplained)} of {both.asked}:", *both.unexplained[:20]])
