"""Metrics of tasks, and of their pools."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Mapping

from rota.api import Task
from rota.engine.metrics import LABEL_LENGTH_MAX, OTHER, Labels, Metrics
from rota.pools import Ledger

NO_POOL = "-"
"""The label `pool` of a task with a worker of its own."""
HOLDERS_MAX = 64
"""Holders with a label of their own. Users choose holders' names, so all further ones share the label `other`."""


class TaskCounting:
    """Counts tasks by namespace, pool and holder."""

    def __init__(self, metrics: Metrics) -> None:
        where = ("namespace", "pool", "holder")
        self._holders: set[str] = set()
        self._metrics = metrics
        self._created = metrics.counter("rota_tasks_created_total", "Tasks that came.", where)
        self._completed = metrics.counter("rota_tasks_completed_total", "Tasks that are over.", (*where, "outcome"))
        self._waited = metrics.histogram("rota_task_wait_seconds", "From when a task could run until it did.", where)
        self._ran = metrics.histogram("rota_task_run_seconds", "How long an attempt took.", where)

    def watch(self, ledgers: Callable[[], Mapping[Labels, Ledger]]) -> None:
        """Add gauges of waiting requests and of holds, which read these ledgers."""
        self._metrics.gauge(
            "rota_pool_waiting",
            "Tasks that wait for a worker.",
            ("namespace", "pool", "holder"),
            read=lambda: self._shown({pool: ledger.depths() for pool, ledger in ledgers().items()}),
        )
        self._metrics.gauge(
            "rota_pool_held",
            "Workers that are held.",
            ("namespace", "pool", "holder"),
            read=lambda: self._shown({pool: ledger.bounds() for pool, ledger in ledgers().items()}),
        )

    def _shown(self, pools: Mapping[Labels, Mapping[str, int]]) -> Mapping[Labels, float]:
        """Return the numbers by label: holders that share a label are added up."""
        shown: Tally[Labels] = Tally()
        for pool, holders in pools.items():
            for holder, number in holders.items():
                shown[(*pool, self._holder(holder))] += number
        return shown

    def _holder(self, name: str) -> str:
        name = name[:LABEL_LENGTH_MAX]
        if name and name not in self._holders:
            if len(self._holders) >= HOLDERS_MAX:
                return OTHER
            self._holders.add(name)
        return name

    def forget(self, namespace: str, pool: str) -> None:
        """Drop the series of a deleted pool."""
        for series in (self._created, self._completed, self._waited, self._ran):
            series.forget((namespace, pool))

    def created(self, task: Task) -> None:
        self._created.add(self._where(task))

    def began(self, task: Task, waited: float) -> None:
        self._waited.observe(self._where(task), max(0.0, waited))

    def ran(self, task: Task, seconds: float) -> None:
        self._ran.observe(self._where(task), max(0.0, seconds))

    def completed(self, task: Task) -> None:
        """Count an ended task, by its last status."""
        status = task.status
        outcome = (status.reason or status.phase or "") if status is not None else ""
        self._completed.add((*self._where(task), outcome))

    def _where(self, task: Task) -> Labels:
        ref = task.spec.worker_pool_ref
        return task.metadata.namespace, ref.name if ref is not None else NO_POOL, self._holder(task.spec.holder or "")
