"""An operator of somebody else's, written with kopf, on our kinds: handlers, finalizers, patches and events."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.live import Live, die_with_parent, live
from tests.until import until

SECONDS_MAX = 60
OPERATOR = """
import kopf

@kopf.on.create("rota.dev", "v1alpha1", "workerpools")
async def made(body, patch, **_):
    kopf.info(body, reason="Noticed", message="a new pool")
    patch.metadata.labels["operator"] = "was-here"

@kopf.on.field("rota.dev", "v1alpha1", "workerpools", field="spec.replicas")
async def scaled(old, new, patch, **_):
    patch.metadata.annotations["scaled"] = f"{old} to {new}"

@kopf.on.delete("rota.dev", "v1alpha1", "workerpools")
async def gone(name, **_):
    with open(f"{name}.gone", "w"):
        pass
"""


@pytest.fixture
def rota(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "home", "--no-controllers") as server:
        yield server


@pytest.fixture
def operator(rota: Live, tmp_path: Path) -> Iterator[Path]:
    """The folder of an operator that runs."""
    (tmp_path / "handlers.py").write_text(OPERATOR)
    said = (tmp_path / "said").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", "kopf", "run", "--standalone", "-n", "default", "handlers.py"],
        cwd=tmp_path,
        env={"KUBECONFIG": str(rota.kubeconfig), "PATH": "/usr/bin:/bin"},
        stdout=said,
        stderr=said,
        preexec_fn=die_with_parent,
    )
    try:
        yield tmp_path
    finally:
        process.terminate()
        process.wait(30)
        said.seek(0)
        print(said.read())
        said.close()


def test_an_operator_sees_marks_records_and_holds_back_our_objects(rota: Live, operator: Path) -> None:
    spec = {"worker": {"type": "shell"}, "replicas": 1}
    pool = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "crew"}, "spec": spec}
    rota.kubectl("create", "-f", "-", stdin=json.dumps(pool))

    def metadata() -> Any:
        return rota.json("get", "wp", "crew")["metadata"]

    until(lambda: metadata().get("labels", {}).get("operator") == "was-here")
    until(lambda: metadata().get("annotations", {}).get("scaled") == "None to 1")
    until(lambda: metadata().get("finalizers") == ["kopf.zalando.org/KopfFinalizerMarker"])
    rota.kubectl("scale", "wp/crew", "--replicas", "3")
    until(lambda: metadata().get("annotations", {}).get("scaled") == "1 to 3")
    until(lambda: "Noticed" in rota.kubectl("get", "events"))
    rota.kubectl("delete", "wp", "crew", "--timeout", f"{SECONDS_MAX}s")
    assert (operator / "crew.gone").exists()
