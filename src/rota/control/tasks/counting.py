"""Tasks in numbers: how many, how they ended, how long they waited and ran, and who waits now."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rota.api import Task
from rota.engine.metrics import Labels, Metrics
from rota.pools import Queue

NO_POOL = "-"
"""Of a task with a worker of its own."""


class Counting:
    """What is counted of tasks. Labels are the namespace and the pool, and the holder of those that wait."""

    def __init__(self, metrics: Metrics) -> None:
        where = ("namespace", "pool")
        self._metrics = metrics
        self._created = metrics.counter("rota_tasks_created_total", "Tasks that came.", where)
        self._completed = metrics.counter("rota_tasks_completed_total", "Tasks that are over.", (*where, "outcome"))
        self._waited = metrics.histogram("rota_task_wait_seconds", "From when a task could run until it did.", where)
        self._ran = metrics.histogram("rota_task_run_seconds", "How long an attempt took.", where)

    def watch(self, queues: Callable[[], Mapping[Labels, Queue]]) -> None:
        """Have queues shown as they are when they are asked for."""
        self._metrics.gauge(
            "rota_pool_waiting",
            "Tasks that wait for a worker.",
            ("namespace", "pool", "holder"),
            read=lambda: {
                (*pool, holder): depth
                for pool, queue in queues().items()
                for holder, depth in queue.view.depths().items()
            },
        )
        self._metrics.gauge(
            "rota_pool_held",
            "Workers that are held.",
            ("namespace", "pool", "holder"),
            read=lambda: {
                (*pool, holder): bound
                for pool, queue in queues().items()
                for holder, bound in queue.view.bounds().items()
            },
        )

    def created(self, task: Task) -> None:
        self._created.add(_where(task))

    def began(self, task: Task, waited: float) -> None:
        self._waited.observe(_where(task), max(0.0, waited))

    def ran(self, task: Task, seconds: float) -> None:
        self._ran.observe(_where(task), max(0.0, seconds))

    def completed(self, task: Task) -> None:
        """With the status that it has when it is over."""
        status = task.status
        outcome = (status.reason or status.phase or "") if status is not None else ""
        self._completed.add((*_where(task), outcome))


def _where(task: Task) -> Labels:
    ref = task.spec.worker_pool_ref
    return task.metadata.namespace, ref.name if ref is not None else NO_POOL
