"""`rota operator` as a cell of a hub, or as a hub: what it refuses, and that it mirrors what is bound."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rota.api import Cell, Secret, Workload, WorkloadDeployment
from rota.cli.operator import _endpoint
from rota.client import Client
from tests.operators.test_operator import operating
from tests.server.live import ROTA, live
from tests.until import until_async

SOON_SECONDS = 60.0
WORKLOAD: dict[str, Any] = {
    "apiVersion": "rota.dev/v1alpha1",
    "kind": "Workload",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "template": {"spec": {"containers": [{"name": "main", "command": ["true"]}]}},
        "placements": [{"name": "all", "cityCodes": ["ber"], "scale": {"min": 1}}],
    },
}


def rota(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROTA, *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--hub",), "say --gateway FOLDER, too"),
        (("--hub", "--cell", "ber-1", "--gateway", "g"), "exclude each other"),
        (("--listen", "127.0.0.1:0"), "--listen is for a hub"),
        (("--url", "https://hub:1"), "--url is for a hub"),
        (("--hub", "--gateway", "g", "--listen", "here"), "it takes an address of this machine and a port"),
        (("--hub", "--gateway", "g", "--listen", "127.0.0.1:70000"), "it takes an address of this machine and a port"),
        (("--hub", "--gateway", "g", "--listen", "::1:7443"), "such as 0.0.0.0:7443 or [::]:7443"),
        (("--hub", "--gateway", "g", "--url", "http://hub"), "it takes the form https://HOST:PORT"),
        (("--city", "ber"), "--city is for a cell of a hub: say which, with --cell"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], said: str) -> None:
    done = rota("operator", *words)
    assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("text", "place"), [("[fd00::1]:443", ("fd00::1", 443)), ("10.0.0.1:0", ("10.0.0.1", 0)), ("", ("127.0.0.1", 7443))]
)
def test_a_hub_listens_at_an_address_and_a_port(text: str, place: tuple[str, int]) -> None:
    assert _endpoint(text, "")[:2] == place


async def test_an_operator_is_a_cell_and_stays_it(tmp_path: Path) -> None:
    with live(tmp_path / "hub", "--no-cell") as hub, live(tmp_path / "site", "--no-controllers") as site:
        where = ("--kubeconfig", str(site.kubeconfig))
        missing = rota("operator", *where, "--cell", "ber-1")
        assert missing.returncode == 2 and "has not joined a hub; `rota cell join ber-1 --city CODE`" in missing.stderr
        printed = rota("cell", "join", "ber-1", "--city", "ber", "--home", str(hub.home)).stdout.splitlines()[-1]
        token, _, command = printed.removeprefix("echo ").partition(" | ")
        (tmp_path / "token").write_text(token)
        words = [*shlex.split(command)[2:-1], str(tmp_path / "token")]
        at_hub = Client.connect(kubeconfig=hub.kubeconfig, manager="tester")
        at_site = Client.connect(kubeconfig=site.kubeconfig, manager="tester")
        try:
            with operating(tmp_path / "log", *where, *words) as operator:
                await at_hub.create(WORKLOAD)
                await until_async(lambda: mirrors(at_site, 1), operator.said, seconds=SOON_SECONDS)
                again = await asyncio.to_thread(rota, "operator", *where, *words)
                assert again.returncode == 1 and "the token has been used" in again.stderr
                other = await asyncio.to_thread(rota, "operator", *where, "--cell", "lhr-1")
                assert other.returncode == 1 and 'this cluster is cell "ber-1", and not "lhr-1"' in other.stderr
            # Another process is the same cell: nothing but its name is needed.
            with operating(tmp_path / "log", *where, "--cell", "ber-1") as operator:
                placement = {**WORKLOAD["spec"]["placements"][0], "scale": {"min": 2}}
                await at_hub.patch(Workload, "web", {"spec": {"placements": [placement]}})
                await until_async(lambda: mirrors(at_site, 2), operator.said, seconds=SOON_SECONDS)
            kept = await at_site.get(Secret, "rota-membership", namespace="rota-system")
            assert token not in str(kept.data)
            assert (await at_hub.get(Cell, "ber-1")).readiness().state == "Ready"
        finally:
            await at_hub.close()
            await at_site.close()


async def mirrors(client: Client, replicas: int) -> bool:
    found = (await client.list(WorkloadDeployment, namespace="default")).items
    return [one.spec.replicas for one in found] == [replicas]
