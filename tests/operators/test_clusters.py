"""A hub and a cell on two real Kubernetes API servers, each with an operator. Instances are made ready by the test."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rota.api import Cell, Instance, Quota, Secret, Workload, WorkloadDeployment
from rota.client import ALL_NAMESPACES, Client, HttpBackend
from rota.client.credentials import Credential, Fixed
from rota.client.target import Tls, at_url
from rota.control.instance_actions import RUNTIME_FINALIZER
from rota.registry import ApiError
from tests.conformance.cluster import Cluster, cluster
from tests.server.live import ROTA, die_with_parent
from tests.until import until_async

PATIENCE_SECONDS = 90.0
ALL_THERE = ("get", "workloads,workloaddeployments,instances,cells", "-A", "-o", "yaml")
WORKLOAD: dict[str, Any] = {
    "apiVersion": "rota.dev/v1alpha1",
    "kind": "Workload",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "web:1",
                        "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "value"}}}],
                    }
                ]
            }
        },
        "placements": [{"name": "all", "cityCodes": ["dfw"], "scale": {"min": 2}}],
    },
}


class Site:
    """One cluster, and the operators that a person runs there."""

    def __init__(self, found: Cluster, folder: Path) -> None:
        self.kubeconfig = found.kubeconfig
        self.is_controlled = found.controlled
        self.folder = folder
        self.operators: list[subprocess.Popen[bytes]] = []
        self.log = folder / "operator.log"

    def operate(self, *words: str, told: str = "") -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                [ROTA, "operator", "--kubeconfig", str(self.kubeconfig), *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        assert started.stdin is not None
        started.stdin.write(told.encode())
        started.stdin.close()
        self.operators.append(started)
        return started

    def rota(self, *words: str) -> str:
        done = subprocess.run(
            [ROTA, *words, "--kubeconfig", str(self.kubeconfig)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def end(self) -> None:
        for one in self.operators:
            with suppress(ProcessLookupError):
                one.kill()
            one.wait(60)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Site]]:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not assets:
        pytest.skip("KUBEBUILDER_ASSETS is not set to a folder with etcd and kube-apiserver")
    with ExitStack() as stack:
        made = []
        for name in ("hub", "cell"):
            folder = tmp_path_factory.mktemp(name)
            site = Site(stack.enter_context(cluster(Path(assets), folder, "RBAC")), folder)
            stack.callback(site.end)
            made.append(site)
        yield made[0], made[1]


@asynccontextmanager
async def clients(*sites: Site) -> Any:
    made = [Client.connect(kubeconfig=one.kubeconfig, manager="tester") for one in sites]
    try:
        yield made
    finally:
        for one in made:
            await one.close()


async def run_instances(client: Client) -> None:
    """Do what a runtime would: say that each instance is ready, and let it go when it is deleted."""
    while True:
        for one in (await client.list(Instance, namespace=ALL_NAMESPACES)).items:
            meta = one.metadata
            with suppress(ApiError):
                if meta.deletion_timestamp is not None and RUNTIME_FINALIZER in meta.finalizers:
                    none: dict[str, Any] = {"metadata": {"finalizers": None}}
                    await client.patch(Instance, meta.name, none, namespace=meta.namespace)
                elif one.status is None and not one.spec.scheduling_gates:
                    status = {
                        "phase": "Running",
                        "conditions": [true(one) for one in ("Ready", "Programmed", "Available")],
                        "observedGeneration": meta.generation,
                    }
                    await client.patch(
                        Instance, meta.name, {"status": status}, namespace=meta.namespace, subresource="status"
                    )
        await asyncio.sleep(0.05)


def true(condition: str) -> dict[str, Any]:
    return {
        "type": condition,
        "status": "True",
        "reason": "Running",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


async def until(so: Callable[[], Awaitable[object]], what: str, *sites: Site) -> None:
    def told() -> str:
        there = [text for one in sites for text in (one.log.read_text()[-3000:], one.rota(*ALL_THERE))]
        return "\n".join([what, *there])

    await until_async(so, told, seconds=PATIENCE_SECONDS)


async def test_a_workload_at_one_cluster_runs_in_another(sites: tuple[Site, Site]) -> None:
    hub, cell = sites
    hub_words = ("--hub", "--gateway", str(hub.folder / "gateway"), "--listen", "127.0.0.1:0")
    first = hub.operate(*hub_words)
    async with clients(hub, cell) as (at_hub, at_cell):
        runs = asyncio.create_task(run_instances(at_cell))

        async def said() -> bool:
            return "cells reach this hub" in hub.log.read_text()

        await until(said, "the hub does not listen", hub)
        printed = hub.rota("cell", "join", "dfw-1", "--city", "dfw").splitlines()[-1]
        token, _, command = printed.removeprefix("echo ").partition(" | ")
        words = shlex.split(command)[2:]
        second = cell.operate(*words, told=token)

        await at_hub.create(Secret(metadata={"name": "key", "namespace": "default"}, string_data={"value": "one"}))  # type: ignore[arg-type]
        await at_hub.create(WORKLOAD)

        async def is_ready(count: int) -> bool:
            found = (await at_hub.list(Instance, namespace="default")).items
            workload = await at_hub.get(Workload, "web", namespace="default")
            there = (await at_cell.list(Instance, namespace="default")).items
            return (
                len(found) == len(there) == count
                and all(one.readiness().state == "Ready" for one in found)
                and workload.readiness().state == "Ready"
                and workload.status is not None
                and workload.status.ready_replicas == count
            )

        await until(lambda: is_ready(2), "it does not become ready", *sites)
        assert (await at_hub.get(Cell, "dfw-1")).readiness().state == "Ready"
        copy = await at_cell.get(Secret, "key", namespace="default")
        assert base64.b64decode(copy.data["value"]) == b"one"

        # Neither a new leader of the hub nor one of the cell starts anything anew.
        uids = {one.metadata.uid for one in (await at_cell.list(Instance, namespace="default")).items}
        for process in (first, second):
            os.kill(process.pid, signal.SIGKILL)
            process.wait(60)
        hub_url = (await at_hub.backend.raw("GET", "/api/v1/namespaces/rota-system/configmaps/rota-hub")).body
        listen = ["127.0.0.1:" + hub_url.decode().split("https://127.0.0.1:")[1].split('"')[0]]
        hub.operate(*hub_words[:-1], *listen)
        old = await make_renew(at_cell)
        cell.operate("--cell", "dfw-1")
        await at_hub.patch(Workload, "web", scaled(3), namespace="default")
        await until(lambda: is_ready(3), "it is not scaled", *sites)
        assert uids < {one.metadata.uid for one in (await at_cell.list(Instance, namespace="default")).items}

        now = await at_cell.get(Secret, "rota-membership", namespace="rota-system")
        assert now.data["token"] != old, "the token was not renewed"
        await token_is_narrow(at_hub, at_cell)

        # The quota of the hub holds in the cell, and a raised one frees what waits.
        await at_hub.create(quota(3))
        await at_hub.patch(Workload, "web", scaled(5), namespace="default")

        async def waiting(count: int) -> bool:
            there = (await at_cell.list(Instance, namespace="default")).items
            assert sum(not one.spec.scheduling_gates for one in there) <= 3
            return sum(bool(one.spec.scheduling_gates) for one in there) == count

        await until(lambda: waiting(2), "two do not wait for the quota", *sites)
        await at_hub.patch(Quota, "default", {"spec": quota(5)["spec"]}, namespace="default")
        await until(lambda: is_ready(5), "the raised quota frees nothing", *sites)

        # What the cell could not end without its hub it does not run, and says so.
        await at_hub.create(moving())

        async def is_refused() -> bool:
            found = await at_hub.get(Workload, "moving", namespace="default")
            return "MoveNotHonoured" in str(found.status)

        await until(is_refused, "a workload that moves is not refused", *sites)
        assert not [one for one in (await at_cell.list(WorkloadDeployment)).items if "moving" in one.metadata.name]
        await at_hub.delete(Workload, "moving", namespace="default")
        await at_hub.delete(Workload, "web", namespace="default")

        async def is_gone() -> bool:
            left = [
                len((await one.list(kind, namespace=ALL_NAMESPACES)).items)
                for one in (at_hub, at_cell)
                for kind in (Instance, WorkloadDeployment)
            ]
            return not any(left)

        if all(site.is_controlled for site in sites):
            # Without its own controllers a cluster collects no garbage.
            await until(is_gone, "something is left", *sites)
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)


def scaled(count: int) -> dict[str, Any]:
    return {"spec": {"placements": [{**WORKLOAD["spec"]["placements"][0], "scale": {"min": count}}]}}


def quota(instances: int) -> dict[str, Any]:
    meta = {"name": "default", "namespace": "default"}
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Quota",
        "metadata": meta,
        "spec": {"hard": {"instances": instances}},
    }


def moving() -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "command": ["true"]}]}}
    placement = {"name": "all", "cityCodes": ["dfw"], "scale": {"min": 1}, "onCellLost": "Move"}
    return {
        **WORKLOAD,
        "metadata": {"name": "moving", "namespace": "default"},
        "spec": {"template": template, "placements": [placement]},
    }


async def make_renew(at_cell: Client) -> str:
    """Have the cell find that its token is to be renewed. Returns the one that it has."""
    kept = await at_cell.get(Secret, "rota-membership", namespace="rota-system")
    membership = json.loads(base64.b64decode(kept.data["membership"]))
    assert membership["renewAt"] > time.time() + 60
    due = base64.b64encode(json.dumps({**membership, "renewAt": 1.0}).encode()).decode()
    await at_cell.patch(Secret, "rota-membership", {"data": {"membership": due}}, namespace="rota-system")
    return kept.data["token"]


async def token_is_narrow(at_hub: Client, at_cell: Client) -> None:
    """Try what a cell's token does not allow, at the hub's API server and at its endpoint."""
    kept = await at_cell.get(Secret, "rota-membership", namespace="rota-system")
    token, authority = (base64.b64decode(kept.data[one]).decode() for one in ("token", "authority"))
    assert isinstance(at_hub.backend, HttpBackend)
    target = at_hub.backend.target
    direct = HttpBackend(at_url(target.endpoint.url, tls=target.tls or Tls(), credentials=Fixed(Credential(token))))
    published = (await at_hub.backend.raw("GET", "/api/v1/namespaces/rota-system/configmaps/rota-hub")).body.decode()
    url = "https://127.0.0.1:" + published.split("https://127.0.0.1:")[1].split('"')[0]
    endpoint = HttpBackend(at_url(url, tls=Tls(authority), credentials=Fixed(Credential(token))))
    deployments = "/apis/rota.dev/v1alpha1/namespaces/{}/workloaddeployments"
    try:
        for backend in (direct, endpoint):
            assert b"web" in (await backend.raw("GET", deployments.format("rota-cell-dfw-1"))).body
            for path in (
                deployments.format("default"),
                "/apis/rota.dev/v1alpha1/workloads",
                "/api/v1/secrets",
                "/api/v1/namespaces/default/secrets",
                "/api/v1/namespaces/rota-cell-dfw-1/../default/secrets",
            ):
                with pytest.raises(ApiError) as refused:
                    await backend.raw("GET", path)
                assert refused.value.code in (301, 403, 404), path
        for method, path in (
            ("DELETE", deployments.format("rota-cell-dfw-1") + "/web"),
            ("POST", "/api/v1/namespaces/rota-cell-dfw-1/serviceaccounts/rota-cell/token"),
            ("POST", "/api/v1/namespaces/rota-cell-dfw-1/secrets"),
        ):
            with pytest.raises(ApiError) as refused:
                await direct.raw(method, path, b"{}", {"Content-Type": "application/json"})
            assert refused.value.code == 403
        for path, code in (
            ("/v1/cells/other/report", 403),
            ("/v1/cells/dfw-1/join", 401),
            ("/v1/cells/none/join", 401),
        ):
            with pytest.raises(ApiError) as refused:
                await endpoint.once("POST", path, b"{}", {"Content-Type": "application/json"})
            assert refused.value.code == code
    finally:
        await direct.close()
        await endpoint.close()
