"""The command line and a real Kubernetes API server. These need `KUBEBUILDER_ASSETS`, as in `tests/kubernetes`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.manifest import dumps
from tests.kubernetes.server import running

COMMAND = str(Path(sys.executable).parent / "rota")
POOL = """\
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: agents, namespace: default}
spec: {worker: {type: shell}, replicas: 2}
"""


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not assets:
        pytest.skip("KUBEBUILDER_ASSETS is not set to a folder with etcd and kube-apiserver")
    folder = tmp_path_factory.mktemp("cluster")
    with running(Path(assets), folder) as client:
        server = {"server": f"https://127.0.0.1:{client.port}", "certificate-authority": str(client.certificate)}
        config = {
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "test", "user": {"token": client.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        (folder / "kubeconfig").write_text(dumps(config))
        yield folder / "kubeconfig"


def rota(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [COMMAND, *arguments, "--kubeconfig", str(kubeconfig), "--context", "test"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_kinds_are_installed_and_served(kubernetes: Path) -> None:
    refused = rota(kubernetes, "get", "wp")
    assert refused.returncode == 1 and "rota crds --install" in refused.stderr
    ran = rota(kubernetes, "crds", "--install")
    assert ran.returncode == 0, ran.stderr
    assert "customresourcedefinition.apiextensions.k8s.io/workerpools.rota.dev installed\n" in ran.stdout
    assert rota(kubernetes, "crds", "--install").returncode == 0, "again is fine"
    assert rota(kubernetes, "get", "wp").returncode == 0


def test_an_object_from_its_manifest_to_its_end(kubernetes: Path, tmp_path: Path) -> None:
    rota(kubernetes, "crds", "--install")
    file = tmp_path / "pool.yaml"
    file.write_text(POOL)
    assert rota(kubernetes, "diff", "-f", str(file)).returncode == 1
    assert rota(kubernetes, "apply", "-f", str(file)).stdout == "workerpool.rota.dev/agents created\n"
    assert rota(kubernetes, "apply", "-f", str(file)).stdout == "workerpool.rota.dev/agents unchanged\n"
    assert rota(kubernetes, "diff", "-f", str(file)).returncode == 0
    assert rota(kubernetes, "get", "wp").stdout.splitlines()[1].startswith("agents ")
    assert "replicas: 2" in rota(kubernetes, "describe", "wp/agents").stdout
    assert rota(kubernetes, "wait", "wp/agents", "--for=jsonpath={.spec.replicas}=2").returncode == 0
    assert rota(kubernetes, "delete", "-f", str(file)).stdout == "workerpool.rota.dev/agents deleted\n"


PROJECT = """\
name: shop
functions:
  - name: report
    entrypoint: main:handler
    source: {inline: "def handler(event, context): return 1"}
    schedules: [{name: nightly, cron: "0 3 * * *"}]
"""


def test_a_project_is_deployed_changed_and_pruned(kubernetes: Path, tmp_path: Path) -> None:
    rota(kubernetes, "crds", "--install")
    file = tmp_path / "rota.yaml"
    (tmp_path / "main.py").write_text("def handler(event, context): return 1\n")

    def deploy(text: str, *more: str) -> subprocess.CompletedProcess[str]:
        file.write_text(text)
        return rota(kubernetes, "deploy", "-f", str(tmp_path), *more)

    assert "+ Schedule/report.nightly created (dry run)\n" in deploy(PROJECT, "--dry-run").stdout
    assert "Schedule: 1 created, 0 updated, 0 unchanged\n" in deploy(PROJECT).stdout
    assert deploy(PROJECT).stdout.count("0 created, 0 updated, 1 unchanged") == 2
    assert rota(kubernetes, "schedule", "pause", "report.nightly").returncode == 0
    done = deploy(PROJECT.replace("0 3 * * *", "@daily"))
    assert '~ Schedule/report.nightly updated\n    spec.cron  "0 3 * * *" → "@daily"\nFunction' in done.stdout
    assert "@daily" in done.stdout and " false " in rota(kubernetes, "get", "schedule").stdout, "it stays paused"
    refused = deploy(PROJECT.replace('source: {inline: "def handler(event, context): return 1"}', "path: ."))
    assert refused.returncode == 1 and "keeps no code" in refused.stderr and "nothing was changed" in refused.stderr
    pruned = deploy("name: shop\n", "--prune", "--yes")
    assert pruned.stdout.splitlines()[:2] == ["- Schedule/report.nightly deleted", "- Function/report deleted"]


def test_what_only_rotas_server_has_is_said_to_be_missing(kubernetes: Path, tmp_path: Path) -> None:
    for arguments in (("token", "list"), ("backup", str(tmp_path / "b.db"))):
        refused = rota(kubernetes, *arguments)
        assert refused.returncode == 1 and "the server there is not Rota's" in refused.stderr
