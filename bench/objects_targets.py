"""The servers that `bench.objects` measures. Each starts afresh."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.kubernetes.server import running

from bench.objects_load import Target
from rota.api.crd import crds

ROTA = Path(sys.executable).parent / "rota"
ESTABLISHED_SECONDS_MAX = 30


def rota(folder: Path) -> AbstractContextManager[Target]:
    """Run `rota up` on a new home: the API server with its controllers."""
    return _rota(folder, "rota")


def rota_alone(folder: Path) -> AbstractContextManager[Target]:
    """Run `rota up --no-controllers` on a new home: an API server only, like kube-apiserver."""
    return _rota(folder, "rota alone", "--no-controllers")


@contextlib.contextmanager
def _rota(folder: Path, name: str, *flags: str) -> Iterator[Target]:
    home = folder / "home"
    began = time.monotonic()
    process = subprocess.Popen([ROTA, "up", "--home", home, "--port", "0", *flags], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = None
        while found is None and (line := process.stdout.readline()):
            found = re.search(r"https://[\d.]+:(\d+)", line)
        assert found is not None, "rota up did not become ready"
        started = time.monotonic() - began
        token = json.loads((home / "kubeconfig").read_text())["users"][0]["user"]["token"]
        yield Target(name, int(found[1]), token, home / "ca.crt", [process.pid], started)
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def kubernetes(folder: Path) -> Iterator[Target]:
    """Run kube-apiserver and etcd, with Rota's kinds and durable writes."""
    began = time.monotonic()
    with running(Path(os.environ["KUBEBUILDER_ASSETS"]), folder, etcd_flags=()) as client:
        started = time.monotonic() - began
        for crd in crds():
            client.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        deadline = time.monotonic() + ESTABLISHED_SECONDS_MAX
        while client.send("GET", "/apis/rota.dev/v1alpha1/tasks").code != 200:
            assert time.monotonic() < deadline, "the kinds are not established"
            time.sleep(0.2)
        yield Target("kube-apiserver", client.port, client.token, client.certificate, client.pids, started)
