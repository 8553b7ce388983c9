"""A hub and cells as processes: what is placed runs, whatever is cut or killed, and nothing is left at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.api import Instance
from rota.client import ALL_NAMESPACES, Client, to_dict
from tests.runtime.homes import keepers_of
from tests.until import until

PATIENCE_SECONDS = 100
CELLS = {"dfw-1": "dfw", "dfw-2": "dfw", "lhr-1": "lhr", "sin-1": "sin", "sin-2": "sin"}
CITIES = ("dfw", "lhr", "sin")
FAULTS = int(os.environ.get("ROTA_FLEET_FAULTS", "0"))
"""Faults that are drawn, beside those of the story. `make chaos` has many."""
MARK = str(100_000_000 + os.getpid())
"""By which the processes of this fleet are told from others."""
COMMAND = ["sh", "-c", f"echo up; exec sleep {MARK}"]
WORKLOAD: dict[str, Any] = {
    "apiVersion": "rota.dev/v1alpha1",
    "kind": "Workload",
    "metadata": {"name": "web"},
    "spec": {
        "template": {"spec": {"containers": [{"name": "main", "command": COMMAND}]}},
        "placements": [{"name": "all", "cityCodes": [*CITIES], "scale": {"min": 2}}],
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

    def begin(self, *words: str) -> subprocess.Popen[str]:
        command = [str(Path(sys.executable).with_name("rota")), "--home", str(self.home), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def answers(self, *words: str, code: int = 0) -> bool:
        with self.begin(*words) as running:
            running.communicate()
        return running.returncode == code

    def refused(self, *words: str) -> str:
        """Return the errors of a command that fails."""
        with self.begin(*words) as running:
            _, said = running.communicate()
        assert running.returncode == 1, said
        return said

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
        """Return the number of ready instances in each cell, as the hub has it."""
        return Counter(one["spec"]["cellName"] for one in self.instances().values() if is_ready(one))

    def until(self, so: Callable[[], object], what: str) -> None:
        until(so, lambda: f"{what}\n{self.rota('fleet', 'status')}{self.rota('map')}", seconds=PATIENCE_SECONDS)

    def agrees(self) -> bool:
        """Return whether the hub knows exactly the instances of its cells."""
        own = {
            name: (one["spec"]["cellName"], one.get("status"))
            for cell in CELLS
            for name, one in self.instances(self.cell(cell)).items()
        }
        return own == {name: (one["spec"]["cellName"], one.get("status")) for name, one in self.instances().items()}


async def _instances(home: Path) -> dict[str, Any]:
    client = Client.connect(home=home)
    try:
        found = (await client.list(Instance, namespace=ALL_NAMESPACES)).items
    finally:
        await client.close()
    return {one.metadata.name: to_dict(one) for one in found}


def processes() -> int:
    """Return the number of processes of the fleet's instances on this machine."""
    found = 0
    for one in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            found += one.name.isdigit() and (one / "cmdline").read_bytes() == f"sleep\0{MARK}\0".encode()
    return found


def is_ready(instance: Any) -> bool:
    conditions = instance.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def reach(fleet: Fleet, name: str) -> None:
    """Logs, commands and files of an instance of a cell, at the hub."""
    fleet.until(lambda: fleet.answers("exec", name, "--", "sh", "-c", "exit 7", code=7), "it is not reached")
    assert fleet.rota("logs", "wl/web").count("up\n") == 2 * len(CITIES)
    here, back = fleet.home / "here", fleet.home / "back"
    here.write_bytes(os.urandom(300_000))
    fleet.rota("cp", str(here), f"{name}:/tmp/there")
    fleet.rota("cp", f"{name}:/tmp/there", str(back))
    assert back.read_bytes() == here.read_bytes()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path / "f")
    made.home.mkdir()
    made.rota("start", "--port", "0", "--no-cell")
    try:
        made.rota("fleet", "up", "--cities", "dfw:2,lhr,sin:2")
        yield made
    finally:
        made.rota("fleet", "down")


def settled(fleet: Fleet, each: int, what: str) -> None:
    """Wait until each city has so many, all sides agree on it, and so many processes are there: none twice."""

    def so() -> bool:
        by_city = Counter(dict.fromkeys(CITIES, 0))
        for cell, count in fleet.count().items():
            by_city[CELLS[cell]] += count
        return set(by_city.values()) == {each} and processes() == each * len(CITIES) and fleet.agrees()

    fleet.until(so, what)


@pytest.mark.skipif(sys.platform != "linux", reason="servers in the background are for Linux")
@pytest.mark.timeout(600 + 60 * FAULTS)
def test_a_fleet_goes_on_through_cuts_kills_and_a_restored_hub(fleet: Fleet) -> None:
    fleet.apply(2)
    settled(fleet, 2, "it is not up")
    before = {one["metadata"]["uid"] for one in fleet.instances(fleet.cell("lhr-1")).values()}
    backup = fleet.home / "backup"
    fleet.rota("backup", str(backup))

    # What runs in a cell is reached through the hub.
    remote = next(name for name, one in fleet.instances().items() if one["spec"]["cellName"] == "lhr-1")
    reach(fleet, remote)

    # A cell that is cut off keeps what it has, and gets what it missed. A command that somebody has there ends.
    with fleet.begin("exec", remote, "--", "sh", "-c", "echo begun; exec sleep 100000") as running:
        assert running.stdout is not None and running.stdout.readline() == "begun\n"
        fleet.rota("fleet", "cut", "lhr-1")
        _, said = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 1 and 'the connection to cell "lhr-1" in lhr was cut' in said
    refused = fleet.refused("exec", remote, "--", "true")
    assert 'cell "lhr-1" in lhr is not connected: its last report was at' in refused
    # One whose server is killed goes on running; one that loses everything starts it again.
    fleet.rota("fleet", "kill", "dfw-1")
    fleet.rota("fleet", "kill", "dfw-2", "--keeper")
    fleet.apply(3)
    assert len(fleet.instances(fleet.cell("lhr-1"))) == 2
    for name in ("lhr-1", "dfw-1", "dfw-2"):
        fleet.rota("fleet", "heal", name)
    settled(fleet, 3, "it did not come back")
    assert before <= {one["metadata"]["uid"] for one in fleet.instances(fleet.cell("lhr-1")).values()}
    assert set(fleet.count()) == set(CELLS)
    fleet.until(lambda: fleet.answers("exec", remote, "--", "true"), "it is not reached again")

    # A cell that is drained is empty in the end, and its city has as many as before.
    fleet.rota("cell", "drain", "dfw-1")
    fleet.until(lambda: fleet.count()["dfw-2"] == 3, "it was not drained")
    fleet.until(lambda: not fleet.instances(fleet.cell("dfw-1")), "the drained cell is not empty")
    fleet.rota("cell", "uncordon", "dfw-1")
    settled(fleet, 3, "it is not at rest after draining")
    assert fleet.count()["dfw-1"] == 0
    fleet.rota("rebalance", "web")
    fleet.until(lambda: {fleet.count()["dfw-1"], fleet.count()["dfw-2"]} == {1, 2}, "it was not divided anew")
    settled(fleet, 3, "it is not at rest after it was divided anew")

    restore(fleet, backup)
    storm(fleet)

    # What is deleted at the hub goes everywhere.
    fleet.rota("delete", "workload", "web")
    fleet.until(lambda: not fleet.instances(), "instances are left at the hub")
    fleet.until(lambda: not any(fleet.instances(fleet.cell(name)) for name in CELLS), "instances are left in a cell")
    fleet.rota("fleet", "down")
    assert not [pid for home in (fleet.home, *map(fleet.cell, CELLS)) for pid in keepers_of(home)]
    assert not processes()


def restore(fleet: Fleet, backup: Path) -> None:
    """Take the hub back to a time before the last change: nothing ends in the cells, also when it is applied anew."""
    running = {uid for name in CELLS for uid in uids(fleet, name)}
    fleet.rota("stop")
    fleet.rota("restore", str(backup), "--yes")
    fleet.rota("start", "--port", "0")
    fleet.apply(3)
    for cell in CELLS:
        fleet.rota("cell", "adopt", cell)
    settled(fleet, 3, "it is not at rest after the hub was restored")
    now = {uid for name in CELLS for uid in uids(fleet, name)}
    # The backup knew of two in each city: what it did not place where it runs now may move, one by one.
    assert len(running & now) >= 2 * len(CITIES) - 1, (running, now)


def uids(fleet: Fleet, cell: str) -> set[str]:
    return {one["metadata"]["uid"] for one in fleet.instances(fleet.cell(cell)).values()}


def storm(fleet: Fleet) -> None:
    """Break what is drawn, again and again; after each, hub and cells come to rest."""
    chance = random.Random(MARK)
    for i in range(FAULTS):
        cell, replicas = chance.choice([*CELLS]), chance.randint(1, 4)
        fault = chance.choice([("cut", cell), ("kill", cell), ("kill", cell, "--keeper"), ("hub",)])
        if fault == ("hub",):
            fleet.rota("stop")
            fleet.rota("start", "--port", "0")
        else:
            fleet.rota("fleet", *fault)
        fleet.apply(replicas)
        if fault != ("hub",):
            fleet.rota("fleet", "heal", cell)
        settled(fleet, replicas, f"it is not at rest after fault {i}, {fault}")
