"""A real Kubernetes API server with Rota's kinds; with the controllers that collect garbage and empty namespaces, if
they are at hand."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.api.crd import crds
from tests.kubernetes.server import Client, running

CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS_PATH = "/apis/rota.dev/v1alpha1"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 5.0
POLL_SECONDS = 0.1


class Cluster(NamedTuple):
    """How to reach it, and whether its controllers run."""

    kubeconfig: Path
    controlled: bool


@contextlib.contextmanager
def cluster(assets: Path, folder: Path) -> Iterator[Cluster]:
    """From start to end."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(running(assets, folder))
        kubeconfig = _write_kubeconfig(client, folder / "kubeconfig")
        for crd in crds():
            assert client.send("POST", CRD_PATH, crd).code == 201
        _wait_until_served(client)
        manager = assets / "kube-controller-manager"
        if manager.exists():
            stack.enter_context(_controllers(manager, kubeconfig, folder / "kube-controller-manager.log"))
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
    deadline = time.monotonic() + START_SECONDS_MAX
    wanted = {crd["spec"]["names"]["plural"] for crd in crds()}
    served: set[str] = set()
    while not wanted <= served:
        assert time.monotonic() < deadline, f"not served: {sorted(wanted - served)}"
        time.sleep(POLL_SECONDS)
        response = client.send("GET", KINDS_PATH)
        served = {resource["name"] for resource in response.body["resources"]} if response.code == 200 else set()


@contextlib.contextmanager
def _controllers(program: Path, kubeconfig: Path, log: Path) -> Iterator[None]:
    command = [
        str(program),
        f"--kubeconfig={kubeconfig}",
        "--controllers=garbage-collector,namespace",
        "--leader-elect=false",
        "--secure-port=0",
    ]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
