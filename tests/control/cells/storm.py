"""A fleet to which something is done at random, and what must hold of it meanwhile and in the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rota.api import Cell, Instance, Kind, Quota, Workload, WorkloadDeployment
from rota.client import ALL_NAMESPACES, Update, to_dict
from rota.control.cells.names import CELL_UID, is_bound
from rota.control.cells.receiving import is_copy
from rota.testing.fleet import Backup, Fleet

CELLS = {"dfw-1": "dfw", "dfw-2": "dfw", "lhr-1": "lhr", "sin-1": "sin", "sin-2": "sin"}
LEASE_SECONDS = 15
QUIET_SECONDS = 400
"""After which nothing is on its way any more: leases, crash loops and the silence of cells included."""
KEPT, MOVED = "kept", "moved"
HOUR_SECONDS = 3600.0
HARMS, MENDS = (0, 0, 1, 1, 4), (1, 2, 4)
"""Weights of acts, drawn for each seed: some seeds do a few things again and again, and others not at all."""
MENDING = ("_heal", "_start", "_resume")
TURNS_MAX = 120
"""Turns of the loop within which a kill comes: what an apply leads to takes about so many."""

LAGS_SECONDS = (0.02, 0.5, 3.0)


def drawn_lags(seed: int) -> dict[str, float]:
    """Draw by how much controllers read late: in turns nobody's, the hub's, those of some cells, or both."""
    draw = random.Random(f"lags {seed}")
    cells = {name: draw.choice(LAGS_SECONDS) for name in draw.sample([*CELLS], draw.randint(1, len(CELLS)))}
    hub = {"": draw.choice(LAGS_SECONDS)}
    return ({}, hub, cells, hub | cells)[seed % 4]


class Storm:
    """Draws what happens next, and tells it."""

    def __init__(self, seed: int, steps: int, budget: int = 9, lags: Mapping[str, float] | None = None) -> None:
        self._draw = random.Random(seed)
        self._steps = steps
        self.lags = drawn_lags(seed) if lags is None else lags
        self.fleet = Fleet(CELLS, seed, self.lags)
        late = ", ".join(f"{name or 'the hub'} up to {seconds} s" for name, seconds in self.lags.items())
        self.story = [f"{0:8.2f} reads come late: {late}"] if late else []
        self.acts: Counter[str] = Counter()
        self.trace: list[tuple[int, ...]] = []
        """The number of writes of each side, second by second: the same for the same seed."""
        self.budget = budget
        self.replicas = {KEPT: 2, MOVED: 1}
        self.version = 0
        self.moves = "Move"
        self.is_deleted = False
        self._said: set[tuple[str, str, str]] = set()
        """Instances of cells, with every status that they had."""
        self._backups: dict[str, Backup] = {}
        self._is_restored = False

    def run(self) -> None:
        """Raise `AssertionError` where something is not as it must be."""
        with self.fleet:
            try:
                self._run()
            except AssertionError:
                raise
            except Exception as error:
                raise AssertionError(self.told(f"something ended: {error!r}")) from error

    def _run(self) -> None:
        for name in CELLS:
            self._listen(name)
        self._do(self._quota)
        self._do(self._apply, KEPT)
        self._do(self._apply, MOVED)
        self._go(30)
        weights: list[int] = []
        for _ in range(self._steps):
            acts = self._acts()
            if not weights:
                weights = [self._draw.choice(MENDS if act[0].__name__ in MENDING else HARMS) for act in acts]
            [act] = self._draw.choices(acts, weights)
            self._do(*act)
            self._go(self._draw.choice((0.1, 1, 5, 20, 45, 70)))
        self._calm()
        self._go(QUIET_SECONDS)
        self._check_rest()

    def _acts(self) -> list[tuple[Any, ...]]:
        cell = self._draw.choice([*CELLS])
        side = self._draw.choice(["", cell])
        turns = self._draw.randrange(TURNS_MAX)
        step = self._draw.choice((-HOUR_SECONDS, -7.0, 7.0, HOUR_SECONDS))
        return [
            (self._cut, cell),
            (self._heal, cell),
            (self._lose, cell),
            (self._disorder, cell),
            (self._lag, cell),
            (self._kill, side),
            (self._start, side),
            (self._kill_amid, turns, side),
            (self._lead_again, side),
            (self._power_cut, cell),
            (self._suspend, side),
            (self._resume, side),
            (self._step_clock, step, side),
            (self._back_up, side),
            (self._restore, side),
            (self._crash, cell),
            (self._scale, self._draw.randint(1, 4)),
            (self._roll,),
            (self._raise,),
            (self._cordon, cell, self._draw.random() < 0.5),
            (self._delete,),
            (self._apply, KEPT),
            (self._settle_on, self._draw.choice(("Move", "Move", "Keep"))),
        ]

    def _do(self, act: Any, *arguments: Any) -> None:
        name = act.__name__.strip("_")
        self.acts[name] += 1
        self.story.append(f"{self.fleet.clock.now():8.2f} {name} {' '.join(map(str, arguments))}")
        act(*arguments)

    def _go(self, seconds: float) -> None:
        """Let time pass, and look once a second."""
        while seconds > 0:
            self.fleet.go(min(1.0, seconds))
            seconds -= 1.0
            sites = (self.fleet.hub, *self.fleet.cells.values())
            self.trace.append(tuple(site.registry.store.revision for site in sites))
            self._check()

    # What happens.

    def _cut(self, cell: str) -> None:
        self.fleet.lines[cell].cut()

    def _heal(self, cell: str) -> None:
        self.fleet.lines[cell].calm()

    def _lose(self, cell: str) -> None:
        line = self.fleet.lines[cell]
        line.loss, line.latency_seconds = 0.3, 2.0

    def _disorder(self, cell: str) -> None:
        """Have reports come twice, late, and one after the other that was sent first."""
        line = self.fleet.lines[cell]
        line.repeated, line.late, line.latency_seconds = 0.5, 0.3, 0.2

    def _lag(self, cell: str) -> None:
        """Have the cell hear late of what is bound to it."""
        self.fleet.lines[cell].lag_seconds = 15.0

    def _kill(self, cell: str) -> None:
        self.fleet.down(cell)

    def _kill_amid(self, turns: int, cell: str) -> None:
        """Have something to do, and kill one side amid it."""
        self.version += 1
        self.fleet.kill_amid(turns, cell)
        self._apply(KEPT)
        self.fleet.go(0.2)

    def _start(self, cell: str) -> None:
        if not self.fleet.site(cell).is_up:
            self.fleet.up(cell)

    def _lead_again(self, cell: str) -> None:
        if self.fleet.site(cell).is_up:
            self.fleet.lead_again(cell)

    def _power_cut(self, cell: str) -> None:
        self.fleet.do(self._power_cut_now(cell))

    async def _power_cut_now(self, cell: str) -> None:
        self.fleet.cells[cell].power_cut()

    def _suspend(self, cell: str) -> None:
        self.fleet.suspend(cell)

    def _resume(self, cell: str) -> None:
        self.fleet.resume(cell)

    def _step_clock(self, seconds: float, cell: str) -> None:
        self.fleet.step_clock(seconds, cell)

    def _back_up(self, cell: str) -> None:
        self._backups[cell] = self.fleet.site(cell).backup()

    def _restore(self, cell: str) -> None:
        if cell in self._backups:
            self.fleet.restore(self._backups[cell], cell)
            self._is_restored = True
            if cell:
                self._listen(cell)

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

    def _settle_on(self, moves: str) -> None:
        """Change what becomes of a workload when its cell is lost."""
        self.moves = moves
        self._apply(MOVED)

    def _apply(self, name: str) -> None:
        if name == KEPT:
            self.is_deleted = False
        placement: dict[str, Any] = {"name": "all", "scale": {"min": self.replicas[name]}}
        placement |= (
            {"cityCodes": ["dfw", "lhr", "sin"]}
            if name == KEPT
            else {"cityCodes": ["dfw", "sin"], "onCellLost": self.moves, "leaseSeconds": LEASE_SECONDS}
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
        """Mend everything, give room for all, and do what a person does after a restore."""
        for cell in ("", *CELLS):
            self._do(self._resume, cell)
        for cell in CELLS:
            self._do(self._heal, cell)
            self._do(self._cordon, cell, False)
        for cell in ("", *CELLS):
            self._do(self._start, cell)
        self.budget = 100
        self._do(self._quota)
        if self._is_restored:
            self._recover()

    def _recover(self) -> None:
        """Say again what is wanted, and end what the hub does not know any more."""
        self._do(self._delete) if self.is_deleted else self._do(self._roll)
        self._do(self._settle_on, "Keep")
        self._go(60)
        for name in CELLS:
            status = self.fleet.do(self.fleet.hub.client.get(Cell, name)).status
            for orphan in status.orphans if status is not None else ():
                self._do(self._drop, name, orphan)
        self._is_restored = False

    def _drop(self, cell: str, orphan: str) -> None:
        client, (_, name) = self.fleet.cells[cell].client, orphan.split("/")
        if self.fleet.cells[cell].objects.has(WorkloadDeployment.api, "default", name):
            self.fleet.do(client.delete(WorkloadDeployment, name, propagation="Foreground"))

    # What must hold.

    def _listen(self, cell: str) -> None:
        """Note every status of an instance in a cell: the hub is to know of no other."""

        def hear(kind: Kind, update: Update[Any]) -> None:
            if update.new is not None:
                self._said.add(_said(update.new))

        self.fleet.cells[cell].objects.listen((Instance.api,), hear)

    def _acting(self) -> Counter[tuple[str, str]]:
        """Return the instances that really run, by workload and city."""
        found: Counter[tuple[str, str]] = Counter()
        for name, site in self.fleet.cells.items():
            if site.clock.is_suspended:
                continue
            for subject, runs in site.runtime.alive.items():
                if runs and all(run.exit is None for run in runs.values()):
                    found[subject.name.split("-")[0], CELLS[name]] += 1
        return found

    def _check(self) -> None:
        acting = self._acting()
        twice = {city: count for (name, city), count in acting.items() if name == MOVED and count > 1}
        assert not twice, self.told(f"what is moved acts more than once: {twice}")
        # A hub that was put back does not know what was granted since; a cell, what was taken away from it.
        if not self._is_restored:
            assert sum(acting.values()) <= self.budget, self.told(f"{sum(acting.values())} of {self.budget} run")
        for one in self.fleet.instances(self.fleet.hub):
            assert one.status is None or _said(one) in self._said, self.told(
                f"the hub says of {one.metadata.name} what no cell has said: {one.status}"
            )

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
        orphans = {one.metadata.name: one.status.orphans for one in cells if one.status is not None}
        assert not any(orphans.values()) and len(orphans) == len(cells), self.told(f"orphans: {orphans}")
        assert {one.readiness().state for one in cells} == {"Ready"}, self.told("cells that are not ready")
        every = self.fleet.do(client.list(WorkloadDeployment, namespace=ALL_NAMESPACES)).items
        bound = [one for one in every if is_bound(one)]
        assert len(every) == 2 * len(bound), self.told("what is bound is not what is there")
        behind = [
            one.metadata.name
            for one in every
            if not is_bound(one) and (one.status is None or one.status.observed_generation != one.metadata.generation)
        ]
        assert not behind, self.told(f"the cells have not taken these as they are: {behind}")
        for workload in self.fleet.do(client.list(Workload)).items:
            assert workload.readiness().state == "Ready", self.told(f"not ready: {workload.status}")
        going = [one.metadata.name for one in every if one.metadata.deletion_timestamp is not None]
        assert not going, self.told(f"these never go: {going}")
        quota = self.fleet.do(client.get(Quota, "default")).status
        count = len(self.fleet.do(client.list(Instance)).items)
        assert quota is not None and quota.used is not None, self.told("no quota")
        assert quota.used.instances == count and not quota.waiting_instances, self.told(f"the quota is wrong: {quota}")

    def told(self, what: str) -> str:
        return "\n".join((*self.story, f"{self.fleet.clock.now():8.2f} {what}"))


def _said(instance: Instance) -> tuple[str, str, str]:
    meta = instance.metadata
    uid = meta.annotations[CELL_UID] if is_copy(instance) else meta.uid
    return meta.name, uid, str(to_dict(instance).get("status"))
