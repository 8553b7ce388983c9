"""A real Kubernetes API server with Rota's kinds; with the controllers that collect garbage and empty namespaces, if
they are at hand."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.api.crd import crds
from tests.kubernetes.server import Client, process_of, running
from tests.until import until

CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACES_PATH = "/api/v1/namespaces"
KINDS_PATH = "/apis/rota.dev/v1alpha1"
START_SECONDS_MAX = 60.0


class Cluster(NamedTuple):
    """The address and credentials of a cluster, and whether its controllers run."""

    kubeconfig: Path
    controlled: bool


@contextlib.contextmanager
def cluster(assets: Path, folder: Path, authorization: str = "AlwaysAllow") -> Iterator[Cluster]:
    """From start to end."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(running(assets, folder, authorization=authorization))
        kubeconfig = _write_kubeconfig(client, folder / "kubeconfig")
        for crd in crds():
            assert client.send("POST", CRD_PATH, crd).code == 201
        _wait_until_served(client)
        manager = assets / "kube-controller-manager"
        if manager.exists():
            stack.enter_context(_controllers(manager, kubeconfig, folder / "kube-controller-manager.log", client))
        yield Cluster(kubeconfig, manager.exists())


def _write_kubeconfig(client: Client, path: Path) -> Path:
    authority = base64.b64encode(client.certificate.read_bytes()).decode()
    server = {"server": f"https://127.0.0.1:{client.port}", "certificate-authority-data": authority}
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": server}],
        "users": [{"name": "test", "user": {"token": client.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.write_bytes(msgspec.json.encode(said))
    return path


def _wait_until_served(client: Client) -> None:
    wanted = {crd["spec"]["names"]["plural"] for crd in crds()}

    def missing() -> set[str]:
        response = client.send("GET", KINDS_PATH)
        served = {resource["name"] for resource in response.body["resources"]} if response.code == 200 else set()
        return wanted - served

    until(lambda: not missing(), lambda: f"not served: {sorted(missing())}", seconds=START_SECONDS_MAX)


@contextlib.contextmanager
def _controllers(program: Path, kubeconfig: Path, log: Path, client: Client) -> Iterator[None]:
    command = [
        str(program),
        f"--kubeconfig={kubeconfig}",
        "--controllers=garbage-collector-controller,namespace-controller",
        "--leader-elect=false",
        "--secure-port=0",
    ]
    with process_of(command, log):
        _wait_until_controlled(client, log)
        yield


def _wait_until_controlled(client: Client, log: Path) -> None:
    """They run when they have done something."""
    assert client.send("POST", NAMESPACES_PATH, {"metadata": {"name": "probe"}}).code == 201
    client.send("DELETE", f"{NAMESPACES_PATH}/probe")
    until(
        lambda: client.send("GET", f"{NAMESPACES_PATH}/probe").code == 404,
        lambda: f"the controllers do nothing:\n{log.read_text()[-4000:]}",
        seconds=START_SECONDS_MAX,
    )
