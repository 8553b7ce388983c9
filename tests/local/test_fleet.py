"""A hub and cells as processes: what is placed runs, whatever is cut or killed, and nothing is left at the end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.api import Instance
from rota.client import ALL_NAMESPACES, Client, to_dict
from tests.runtime.homes import keepers_of

PATIENCE_SECONDS = 100
CELLS = {"dfw-1": "dfw", "dfw-2": "dfw", "lhr-1": "lhr"}
WORKLOAD: dict[str, Any] = {
    "apiVersion": "rota.dev/v1alpha1",
    "kind": "Workload",
    "metadata": {"name": "web"},
    "spec": {
        "template": {"spec": {"containers": [{"name": "main", "command": ["sleep", "100000"]}]}},
        "placements": [{"name": "all", "cityCodes": ["dfw", "lhr"], "scale": {"min": 2}}],
    },
}


class Fleet:
    """The commands of a person at a fleet."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def rota(self, *words: str, home: Path | None = None, code: int = 0) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("rota")), "--home", str(home or self.home), *words],
            capture_output=True,
            text=True,
            env={**os.environ, "NO_COLOR": "1"},
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def apply(self, replicas: int) -> None:
        wanted = json.loads(json.dumps(WORKLOAD))
        wanted["spec"]["placements"][0]["scale"]["min"] = replicas
        file = self.home / "web.json"
        file.write_text(json.dumps(wanted))
        self.rota("apply", "-f", str(file))

    def instances(self, home: Path | None = None) -> dict[str, Any]:
        return asyncio.run(_instances(home or self.home))

    def cell(self, name: str) -> Path:
        return self.home / "cells" / name

    def count(self) -> Counter[str]:
        """What is ready in each cell, as the hub has it."""
        return Counter(one["spec"]["cellName"] for one in self.instances().values() if is_ready(one))

    def until(self, so: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not so():
            assert time.monotonic() < deadline, f"{what}\n{self.rota('fleet', 'status')}{self.rota('map')}"
            time.sleep(0.02)

    def agrees(self) -> bool:
        """Whether the hub knows just what its cells have."""
        own = {
            name: (one["spec"]["cellName"], one["status"])
            for cell in CELLS
            for name, one in self.instances(self.cell(cell)).items()
        }
        return own == {name: (one["spec"]["cellName"], one["status"]) for name, one in self.instances().items()}


async def _instances(home: Path) -> dict[str, Any]:
    client = Client.connect(home=home)
    try:
        found = (await client.list(Instance, namespace=ALL_NAMESPACES)).items
    finally:
        await client.close()
    return {one.metadata.name: to_dict(one) for one in found}


def is_ready(instance: Any) -> bool:
    conditions = instance.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path / "f")
    made.home.mkdir()
    made.rota("start", "--port", "0", "--no-cell")
    try:
        made.rota("fleet", "up", "--cities", "dfw:2,lhr")
        yield made
    finally:
        made.rota("fleet", "down")


@pytest.mark.skipif(sys.platform != "linux", reason="servers in the background are for Linux")
@pytest.mark.timeout(600)
def test_a_fleet_goes_on_through_cuts_and_kills(fleet: Fleet) -> None:
    fleet.apply(2)
    fleet.until(lambda: sum(fleet.count().values()) == 4, "it is not up")
    assert fleet.count()["lhr-1"] == 2
    fleet.until(fleet.agrees, "the hub and its cells do not agree")
    before = {one["metadata"]["uid"] for one in fleet.instances(fleet.cell("lhr-1")).values()}

    # A cell that is cut off keeps what it has, and gets what it missed.
    fleet.rota("fleet", "cut", "lhr-1")
    # One whose server is killed goes on running; one that loses everything starts it again.
    fleet.rota("fleet", "kill", "dfw-1")
    fleet.rota("fleet", "kill", "dfw-2", "--keeper")
    fleet.apply(3)
    assert len(fleet.instances(fleet.cell("lhr-1"))) == 2
    for name in CELLS:
        fleet.rota("fleet", "heal", name)
    fleet.until(lambda: sum(fleet.count().values()) == 6, "it did not come back")
    fleet.until(fleet.agrees, "the hub and its cells do not agree after cuts and kills")
    assert before <= {one["metadata"]["uid"] for one in fleet.instances(fleet.cell("lhr-1")).values()}
    assert set(fleet.count()) == set(CELLS)

    # A cell that is drained is empty in the end, and its city has as many as before.
    fleet.rota("cell", "drain", "dfw-1")
    fleet.until(lambda: fleet.count() == {"dfw-2": 3, "lhr-1": 3}, "it was not drained")
    fleet.until(fleet.agrees, "the hub and its cells do not agree after draining")
    fleet.until(lambda: not fleet.instances(fleet.cell("dfw-1")), "the drained cell is not empty")

    # What is deleted at the hub goes everywhere.
    fleet.rota("delete", "workload", "web")
    fleet.until(lambda: not fleet.instances(), "instances are left at the hub")
    fleet.until(lambda: not any(fleet.instances(fleet.cell(name)) for name in CELLS), "instances are left in a cell")
    fleet.rota("fleet", "down")
    assert not [pid for home in (fleet.home, *map(fleet.cell, CELLS)) for pid in keepers_of(home)]
