"""A fleet to which something is done at random, and what must hold of it meanwhile and in the end."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from rota.api import Cell, Instance, Quota, Workload, WorkloadDeployment
from rota.client import ALL_NAMESPACES
from rota.control.cells.names import is_bound
from rota.testing.fleet import Fleet

CELLS = {"dfw-1": "dfw", "dfw-2": "dfw", "lhr-1": "lhr", "sin-1": "sin", "sin-2": "sin"}
LEASE_SECONDS = 15
QUIET_SECONDS = 400
"""After which nothing is on its way any more: leases, crash loops and the silence of cells included."""
KEPT, MOVED = "kept", "moved"


class Storm:
    """Draws what happens next, and tells it."""

    def __init__(self, seed: int, steps: int) -> None:
        self._draw = random.Random(seed)
        self._steps = steps
        self.fleet = Fleet(CELLS, seed)
        self.story: list[str] = []
        self.budget = 6
        self.replicas = {KEPT: 2, MOVED: 1}
        self.version = 0
        self.is_deleted = False

    def run(self) -> None:
        """Raise `AssertionError` where something is not as it must be."""
        with self.fleet:
            self._do(self._quota)
            self._do(self._apply, KEPT)
            self._do(self._apply, MOVED)
            self._go(30)
            for _ in range(self._steps):
                act = self._draw.choice(self._acts())
                self._do(*act)
                self._go(self._draw.choice((0.1, 1, 5, 20, 45)))
            self._calm()
            self._go(QUIET_SECONDS)
            self._check_rest()

    def _acts(self) -> list[tuple[Any, ...]]:
        cell = self._draw.choice([*CELLS])
        return [
            (self._cut, cell),
            (self._cut, cell),
            (self._heal, cell),
            (self._heal, cell),
            (self._lose, cell),
            (self._kill, cell),
            (self._kill, cell),
            (self._start, cell),
            (self._power_cut, cell),
            (self._kill, ""),
            (self._start, ""),
            (self._crash, cell),
            (self._scale, self._draw.randint(1, 4)),
            (self._roll,),
            (self._raise,),
            (self._cordon, cell, self._draw.random() < 0.5),
            (self._delete,),
            (self._apply, KEPT),
        ]

    def _do(self, act: Any, *arguments: Any) -> None:
        self.story.append(f"{self.fleet.clock.now():8.2f} {act.__name__.strip('_')} {' '.join(map(str, arguments))}")
        act(*arguments)

    def _go(self, seconds: float) -> None:
        """Let time pass, and look once a second."""
        while seconds > 0:
            self.fleet.go(min(1.0, seconds))
            seconds -= 1.0
            self._check()

    # What happens.

    def _cut(self, cell: str) -> None:
        self.fleet.lines[cell].cut()

    def _heal(self, cell: str) -> None:
        line = self.fleet.lines[cell]
        line.heal()
        line.loss, line.latency_seconds = 0.0, 0.005

    def _lose(self, cell: str) -> None:
        line = self.fleet.lines[cell]
        line.loss, line.latency_seconds = 0.3, 2.0

    def _kill(self, cell: str) -> None:
        self.fleet.down(cell)

    def _start(self, cell: str) -> None:
        site = self.fleet.cells[cell] if cell else self.fleet.hub
        if not site.is_up:
            self.fleet.up(cell)

    def _power_cut(self, cell: str) -> None:
        self.fleet.down(cell)
        self.fleet.cells[cell].runtime.power_cut()

    def _crash(self, cell: str) -> None:
        runtime = self.fleet.cells[cell].runtime
        for subject in [*runtime.alive][:1]:
            runtime.die(subject.name, code=1)

    def _scale(self, replicas: int) -> None:
        self.replicas[KEPT] = replicas
        self._apply(KEPT)

    def _roll(self) -> None:
        self.version += 1
        self._apply(KEPT)

    def _raise(self) -> None:
        self.budget += 1
        self._quota()

    def _quota(self) -> None:
        hard = {"hard": {"instances": self.budget}}
        self._write({"apiVersion": "rota.dev/v1alpha1", "kind": "Quota", "metadata": {"name": "default"}, "spec": hard})

    def _cordon(self, cell: str, cordoned: bool) -> None:
        self.fleet.do(self.fleet.hub.client.patch(Cell, cell, {"spec": {"cordoned": cordoned}}))

    def _delete(self) -> None:
        self.is_deleted = True
        if self.fleet.hub.objects.has(Workload.api, "default", KEPT):
            self.fleet.do(self.fleet.hub.client.delete(Workload, KEPT))

    def _apply(self, name: str) -> None:
        if name == KEPT:
            self.is_deleted = False
        placement: dict[str, Any] = {"name": "all", "scale": {"min": self.replicas[name]}}
        placement |= (
            {"cityCodes": ["dfw", "lhr", "sin"]}
            if name == KEPT
            else {"cityCodes": ["dfw", "sin"], "onCellLost": "Move", "leaseSeconds": LEASE_SECONDS}
        )
        command = ["serve", str(self.version if name == KEPT else 0)]
        spec = {
            "template": {"spec": {"containers": [{"name": "main", "command": command}]}},
            "placements": [placement],
        }
        self._write({"apiVersion": "rota.dev/v1alpha1", "kind": "Workload", "metadata": {"name": name}, "spec": spec})

    def _write(self, body: dict[str, Any]) -> None:
        self.fleet.do(self.fleet.hub.client.apply(body, force=True))

    def _calm(self) -> None:
        """Mend everything, and give room for all."""
        for cell in CELLS:
            self._do(self._heal, cell)
            self._do(self._cordon, cell, False)
        self._do(self._start, "")
        for cell in CELLS:
            self._do(self._start, cell)
        self.budget = 100
        self._do(self._quota)

    # What must hold.

    def _acting(self) -> Counter[tuple[str, str]]:
        """What really runs, by workload and city."""
        found: Counter[tuple[str, str]] = Counter()
        for name, site in self.fleet.cells.items():
            for subject, runs in site.runtime.alive.items():
                if runs and all(run.exit is None for run in runs.values()):
                    found[subject.name.split("-")[0], CELLS[name]] += 1
        return found

    def _check(self) -> None:
        acting = self._acting()
        twice = {city: count for (name, city), count in acting.items() if name == MOVED and count > 1}
        assert not twice, self.told(f"what is moved acts more than once: {twice}")
        assert sum(acting.values()) <= self.budget, self.told(f"{sum(acting.values())} of {self.budget} run")

    def _check_rest(self) -> None:
        kept = 0 if self.is_deleted else self.replicas[KEPT]
        wanted = Counter({(KEPT, city): kept for city in ("dfw", "lhr", "sin") if kept})
        wanted += Counter({(MOVED, city): 1 for city in ("dfw", "sin")})
        assert self._acting() == wanted, self.told(f"{dict(self._acting())} run, and {dict(wanted)} are wanted")
        for name, site in self.fleet.cells.items():
            own = {one.metadata.name: (one.status, one.spec) for one in self.fleet.instances(site)}
            copies = {
                one.metadata.name: (one.status, one.spec)
                for one in self.fleet.instances(self.fleet.hub)
                if one.spec.cell_name == name
            }
            assert own == copies, self.told(f"the hub and {name} do not agree: {own.keys() ^ copies.keys()}")
            assert len(own) == len(site.runtime.alive), self.told(f"{name} runs what it has no instance of")
        client = self.fleet.hub.client
        cells = self.fleet.do(client.list(Cell)).items
        assert not [one.metadata.name for one in cells if one.status is None or one.status.orphans], self.told(
            "orphans"
        )
        assert {one.readiness().state for one in cells} == {"Ready"}, self.told("cells that are not ready")
        every = self.fleet.do(client.list(WorkloadDeployment, namespace=ALL_NAMESPACES)).items
        bound = [one for one in every if is_bound(one)]
        assert len(every) == 2 * len(bound), self.told("what is bound is not what is there")
        going = [one.metadata.name for one in every if one.metadata.deletion_timestamp is not None]
        assert not going, self.told(f"these never go: {going}")
        quota = self.fleet.do(client.get(Quota, "default")).status
        count = len(self.fleet.do(client.list(Instance)).items)
        assert quota is not None and quota.used is not None, self.told("no quota")
        assert quota.used.instances == count and not quota.waiting_instances, self.told(f"the quota is wrong: {quota}")

    def told(self, what: str) -> str:
        return "\n".join((*self.story, f"{self.fleet.clock.now():8.2f} {what}"))
