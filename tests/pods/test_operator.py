"""`rota operator --pods` as a process, on a real API server with RBAC, with the rights that the docs list."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rota.client import Client, HttpBackend
from tests.conformance.cluster import cluster
from tests.pods.kubelet import Kubelet
from tests.pods.plane import ClusterPlane
from tests.server.live import ROTA, die_with_parent

READ = ["get", "list", "watch"]
RULES: list[tuple[str, list[str], list[str]]] = [
    ("rota.dev", ["*"], READ),
    ("rota.dev", ["*/status"], ["update"]),
    ("rota.dev", ["instancetypes", "locations", "cells"], ["create"]),
    ("rota.dev", ["instances", "claims"], ["create", "update", "patch", "delete"]),
    ("rota.dev", ["quotaclaims", "workloaddeployments", "revisions"], ["create", "update", "patch", "delete"]),
    ("", ["namespaces", "secrets", "configmaps"], READ),
    ("", ["events"], [*READ, "create", "patch", "delete"]),
    ("coordination.k8s.io", ["leases"], [*READ, "create", "update"]),
    ("", ["pods"], [*READ, "create", "patch", "delete"]),
    ("", ["persistentvolumeclaims"], [*READ, "create", "delete"]),
    ("networking.k8s.io", ["networkpolicies"], ["get", "create"]),
]
"""As docs/howto/operator.md lists them."""
ACCOUNT = {"name": "rota-operator", "namespace": "default"}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not assets:
        pytest.skip("KUBEBUILDER_ASSETS is not set to a folder with etcd and kube-apiserver")
    with cluster(Path(assets), tmp_path_factory.mktemp("cluster"), "RBAC") as made:
        yield made.kubeconfig


async def account(client: Client, kubeconfig: Path, folder: Path) -> Path:
    """Make a ServiceAccount that may do what `RULES` say. Returns a kubeconfig of it."""
    backend = client.backend
    assert isinstance(backend, HttpBackend)

    async def post(path: str, body: dict[str, Any]) -> Any:
        sent = json.dumps(body).encode()
        return json.loads((await backend.raw("POST", path, sent, {"Content-Type": "application/json"})).body)

    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [group], "resources": names, "verbs": verbs} for group, names, verbs in RULES]
    await post("/api/v1/namespaces/default/serviceaccounts", {"metadata": ACCOUNT})
    await post(f"{rbac}/clusterroles", {"metadata": {"name": "rota-operator"}, "rules": rules})
    binding = {
        "metadata": {"name": "rota-operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "rota-operator"},
        "subjects": [{"kind": "ServiceAccount", **ACCOUNT}],
    }
    await post(f"{rbac}/clusterrolebindings", binding)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    made = await post("/api/v1/namespaces/default/serviceaccounts/rota-operator/token", asked)
    config = json.loads(kubeconfig.read_text())
    config["users"][0]["user"] = {"token": made["status"]["token"]}
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


@asynccontextmanager
async def operated(kubeconfig: Path, folder: Path) -> AsyncIterator[tuple[ClusterPlane, Path]]:
    client = Client.connect(kubeconfig=kubeconfig, manager="test", namespace="default")
    log = folder / "operator.log"
    assert isinstance(client.backend, HttpBackend)
    await client.backend.version()
    mine = await account(client, kubeconfig, folder)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [ROTA, "operator", "--pods", "--kubeconfig", str(mine)],
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )
    try:
        async with Kubelet(client, is_real=True) as kubelet:
            yield ClusterPlane(client, kubelet), log
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 60)
        await client.close()


async def test_an_operator_runs_a_pool_and_a_workload_as_pods_with_the_rights_that_the_docs_list(
    kubeconfig: Path, tmp_path: Path
) -> None:
    async with operated(kubeconfig, tmp_path) as (plane, log):
        await plane.pool(replicas=2, template={"storage": {"size": "1Gi"}, "network": "none"})
        await plane.ready()
        claim = await plane.claim("mine")
        assert claim.status is not None and claim.status.instance_name in ("boxes-0", "boxes-1")
        await plane.client.patch(type(claim), "mine", {"spec": {"release": True}}, namespace="default")
        await plane.pool(replicas=1, template={"storage": {"size": "1Gi"}, "network": "none"})

        async def has_shrunk() -> bool:
            return await plane.pod("boxes-1") is None and await plane.instance("boxes-1") is None

        await plane.until(has_shrunk)
        await plane.ready()
        said = log.read_text()
    assert "forbidden" not in said.lower(), said
    assert "leads" in said
