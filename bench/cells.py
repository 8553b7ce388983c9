"""Benchmark of hubs and cells: `python -m bench.cells [--quick] [--json FILE]`.

- *A fleet*: a hub and cells in three cities, each a server of its own. The time from the apply of a workload of one
  process at the hub until the hub reports the workload Ready.
- *The placer*: many workloads, each placed among all cells.
- *A large hub*: a hub's registry on SQLite and its controller of reports in this process, with simulated cells. The
  cost of a report is the processor time of this process: HTTP, TLS and the encoding in the cell are not included. The
  memory includes what the simulated cells store of their instances.

Karmada's figures are those that it has published for 100 clusters, on other machines.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from bench.harness import Report as Table
from bench.harness import arguments, resident_bytes, save
from bench.tasks_window import p50, p99
from rota.api import Instance, Workload, WorkloadDeployment
from rota.api.instance import InstanceStatus
from rota.client import ALL_NAMESPACES, Client, Operation
from rota.control.cells.contacts import CellContacts
from rota.control.cells.digests import digest_of
from rota.control.cells.messages import CHANGED_MAX, DeploymentReport, InstanceReport, Report
from rota.control.cells.outbox import COMPARED_MAX
from rota.control.cells.reports import HEARTBEAT_SECONDS, Reports
from rota.control.instances.names import instance_name
from rota.control.workloads.placing import Candidate, place
from rota.engine import RealClock, StoreObjects
from rota.engine.recorder import Recorder
from rota.registry import Registry
from rota.registry.system import establish
from rota.store import SqliteStore

CITIES = "dfw,lhr,sin"
APPLIES, APPLIES_QUICK = 100, 10
WORKLOADS, CELLS = 10_000, 1_000
WORKLOADS_QUICK = 500
SITES, SITES_QUICK = 100, 10
INSTANCES = 1_000
PER_DEPLOYMENT = 50
CHANGES, CHANGES_QUICK = 2_000, 300
PATIENCE_SECONDS = 120.0
KARMADA = {"apply to ready": (None, 1_000.0), "placement": (None, 32.0)}
"""Published p50 and p99 in ms, which Karmada calls "distribute" and "schedule"."""
SEED = 5
ROTA = str(Path(sys.executable).with_name("rota"))


def workload(name: str, city: str) -> dict[str, Any]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "template": {"spec": {"containers": [{"name": "main", "command": ["sleep", "100000"]}]}},
            "placements": [{"name": "one", "cityCodes": [city], "scale": {"min": 1}}],
        },
    }


# A fleet.


async def until_ready(client: Client, name: str) -> float:
    """Wait until the hub reports a workload Ready. Returns the time then."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for change in client.watch(Workload, namespace="default", fields=f"metadata.name={name}"):
            found = change.object
            if found is not None and found.status is not None and found.status.ready_replicas == 1:
                return time.perf_counter()
    raise AssertionError("a watch does not end by itself")


async def fleet(applies: int) -> list[float]:
    """Return the sorted milliseconds from the apply of each workload at the hub until the hub reports it Ready."""
    with tempfile.TemporaryDirectory() as folder:
        home = str(Path(folder) / "hub")

        def rota(*words: str) -> None:
            subprocess.run([ROTA, "--home", home, *words], check=True, capture_output=True)

        rota("start", "--port", "0", "--no-cell")
        try:
            rota("fleet", "up", "--cities", CITIES)
            client = Client.connect(home=home, manager="bench")
            times = []
            for number in range(applies + 1):
                city, name = CITIES.split(",")[number % 3], f"w-{number}"
                ready = asyncio.create_task(until_ready(client, name))
                began = time.perf_counter()
                await client.apply(workload(name, city), force=True)
                times.append((await ready - began) * 1000)
                await client.delete(Workload, name)
            await client.close()
            # The first one includes the loading of code, and does not count.
            return sorted(times[1:])
        finally:
            rota("fleet", "down")


# The placer.


def placements(workloads: int) -> list[float]:
    """Return the sorted milliseconds of the placement decisions."""
    chance = random.Random(SEED)
    cells = [
        Candidate(f"cell-{number}", weight=chance.choice((50, 100, 200)), room=chance.randint(5, 200))
        for number in range(CELLS)
    ]
    times = []
    for number in range(workloads):
        began = time.perf_counter()
        place(f"default/w-{number}", "dfw", chance.randint(1, 20), cells, {})
        times.append((time.perf_counter() - began) * 1000)
    return sorted(times)


# A large hub.


class Site:
    """A simulated cell, of which only the reports exist."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sequence = 0
        self.deployments: list[WorkloadDeployment] = []
        self.instances: dict[str, list[InstanceReport]] = {}

    def report(self, deployments: list[DeploymentReport]) -> Report:
        self.sequence += 1
        return Report(
            identity=self.name, boot=1, sequence=self.sequence, version="bench", instances=INSTANCES,
            deployments=deployments,
        )  # fmt: skip

    def deployment_report(self, deployment: WorkloadDeployment, **more: Any) -> DeploymentReport:
        meta = deployment.metadata
        digest = 0
        for one in self.instances[meta.uid]:
            digest ^= digest_of(_as_instance(one))
        count = len(self.instances[meta.uid])
        return DeploymentReport(
            namespace=meta.namespace, name=meta.name, uid=meta.uid, digest=f"{count}-{digest:016x}", **more
        )


def _as_instance(one: InstanceReport) -> Instance:
    from rota.api import ObjectMeta

    return Instance(metadata=ObjectMeta(name=one.name, uid=one.uid), spec=one.spec, status=one.status)


def deployment(site: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkloadDeployment",
        "metadata": {"name": f"w{number}-{site}-{number:012x}", "namespace": "default"},
        "spec": {
            "workloadRef": {"name": f"w{number}"},
            "placementName": "one",
            "cityCode": "dfw",
            "cellName": site,
            "replicas": PER_DEPLOYMENT,
            "template": {"spec": {"containers": [{"name": "main", "command": ["serve", str(number)]}]}},
        },
    }


def instances(made: WorkloadDeployment) -> list[InstanceReport]:
    spec = {"containers": [{"name": "main", "command": ["serve"]}], "templateHash": "0123456789abcdef"}
    status = {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [
            {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for kind in ("QuotaGranted", "Programmed", "Ready", "Isolated")
        ],
    }
    return [
        msgspec.convert(
            {
                "name": instance_name("WorkloadDeployment", made.metadata.name, ordinal),
                "uid": f"{made.metadata.uid[:24]}{ordinal:012x}",
                "spec": {**spec, "ordinal": ordinal, "cellName": made.spec.cell_name},
                "status": status,
            },
            InstanceReport,
        )
        for ordinal in range(PER_DEPLOYMENT)
    ]


async def send(reports: Reports, site: Site, deployments: list[DeploymentReport]) -> list[str]:
    """Send a report, encoded and decoded as over HTTP. Returns the deployments that the hub requests in full."""
    text = msgspec.json.encode(site.report(deployments))
    answer = await reports.receive(site.name, msgspec.json.decode(text, type=Report))
    return answer.resync


async def fill(client: Client, reports: Reports, site: Site) -> None:
    await client.create(
        {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "Cell",
            "metadata": {"name": site.name},
            "spec": {"cityCode": "dfw"},
        }
    )
    bodies = [deployment(site.name, number) for number in range(INSTANCES // PER_DEPLOYMENT)]
    made = await client.batch([Operation("create", WorkloadDeployment.api, "default", body=one) for one in bodies])
    site.deployments = [msgspec.convert(one, WorkloadDeployment, strict=False) for one in made]
    for one in site.deployments:
        site.instances[one.metadata.uid] = instances(one)
    step = CHANGED_MAX // PER_DEPLOYMENT
    for at in range(0, len(site.deployments), step):
        some = site.deployments[at : at + step]
        await send(
            reports, site, [site.deployment_report(one, changed=site.instances[one.metadata.uid]) for one in some]
        )


async def large(sites: int, changes: int) -> Table:
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(SqliteStore(Path(folder) / "rota.db"))
        await registry.start()
        await establish(registry)
        client = Client.local(registry, manager="bench")
        objects, clock = StoreObjects(registry), RealClock()
        gc.collect()
        empty = resident_bytes()
        reports = Reports(client, objects, Recorder(client), CellContacts(clock), clock)
        every = [Site(f"cell-{number}") for number in range(sites)]
        began = time.perf_counter()
        for site in every:
            await fill(client, reports, site)
        filled = time.perf_counter() - began
        gc.collect()
        memory = (resident_bytes() - empty) / 2**20

        # Reports of one changed instance.
        spent: list[float] = []
        for _ in range(changes):
            site = chance.choice(every)
            one = chance.choice(site.deployments)
            there = site.instances[one.metadata.uid]
            at = chance.randrange(len(there))
            status = there[at].status
            assert isinstance(status, InstanceStatus)
            changed = msgspec.structs.replace(status, restarts=status.restarts + 1)
            there[at] = msgspec.structs.replace(there[at], status=changed)
            text = msgspec.json.encode(site.report([site.deployment_report(one, changed=[there[at]])]))
            before = time.process_time()
            answer = await reports.receive(site.name, msgspec.json.decode(text, type=Report))
            spent.append((time.process_time() - before) * 1000)
            assert not answer.resync

        # Heartbeats of cells without changes: each has some digests, which the hub compares.
        beats: list[float] = []
        for _ in range(changes):
            site = chance.choice(every)
            text = msgspec.json.encode(
                site.report([site.deployment_report(one) for one in site.deployments[:COMPARED_MAX]])
            )
            before = time.process_time()
            await reports.receive(site.name, msgspec.json.decode(text, type=Report))
            beats.append((time.process_time() - before) * 1000)

        # The hub was away: every cell reports the digests of all its deployments.
        greetings = [(site, [site.deployment_report(one) for one in site.deployments]) for site in every]
        began = time.perf_counter()
        asked = await asyncio.gather(*(send(reports, site, states) for site, states in greetings))
        back = time.perf_counter() - began
        assert not any(asked)
        count = len((await client.list(Instance, namespace=ALL_NAMESPACES, limit=1)).items)
        assert count
        reports.end()
        await registry.stop()
        await registry.store.close()
    table = Table(f"{sites:,} cells × {INSTANCES:,} instances in one hub", ["Rota", "goal"])
    table.add("memory of the instances, MiB", memory, 1024.0 * sites / SITES)
    table.add("CPU of a report of one change, p50 ms", p50(sorted(spent)), 1.0)
    table.add("CPU of a report of one change, p99 ms", p99(sorted(spent)), None)
    table.add("CPU of a heartbeat, p50 ms", p50(sorted(beats)), 1.0)
    table.add("reports of one change per second of CPU", 1000 * len(spent) / sum(spent), None)
    table.add("CPU at rest, % of one core", 100 * sites * sum(beats) / len(beats) / 1000 / HEARTBEAT_SECONDS, None)
    table.add("full reconnect, all digests compared, s", back, 10.0)
    table.add("first reports of all cells, s", filled, None)
    return table


def warn_if_busy() -> None:
    """Warn if other processes use the processors: they lengthen all measured times but those of the processor."""
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load > processors / 2:
        print(f"this machine is busy (load {load:.1f} on {processors} processors): times other than CPU are too long")


async def main_async(quick: bool) -> list[Table]:
    warn_if_busy()
    placed = placements(WORKLOADS_QUICK if quick else WORKLOADS)
    placing = Table(f"placing among {CELLS:,} cells, ms", ["Rota", "Karmada", "goal"])
    placing.add("p50", p50(placed), KARMADA["placement"][0], None)
    placing.add("p99", p99(placed), KARMADA["placement"][1], 5.0)
    placing.show()
    times = await fleet(APPLIES_QUICK if quick else APPLIES)
    applying = Table("apply at the hub to ready at the hub, ms", ["Rota", "Karmada", "goal"])
    applying.add("p50", p50(times), KARMADA["apply to ready"][0], None)
    applying.add("p99", p99(times), KARMADA["apply to ready"][1], 300.0)
    applying.show()
    hub = await large(SITES_QUICK if quick else SITES, CHANGES_QUICK if quick else CHANGES)
    hub.show()
    return [placing, applying, hub]


def main() -> None:
    given = arguments("Placing, applying across cells, and a hub of many cells.").parse_args()
    save(given.json, asyncio.run(main_async(given.quick)))


if __name__ == "__main__":
    main()
