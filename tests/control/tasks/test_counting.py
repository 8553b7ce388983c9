from __future__ import annotations

from rota.api import ObjectMeta, Task
from rota.api.model import Ref
from rota.api.task import TaskSpec, TaskStatus
from rota.control.tasks.counting import HOLDERS_MAX, TaskCounting
from rota.engine.metrics import Metrics
from rota.pools import Ledger, Request


def a_task(holder: str | None = None) -> Task:
    return Task(
        metadata=ObjectMeta(name="a", namespace="shop"),
        spec=TaskSpec(command=["true"], worker_pool_ref=Ref(name="p"), holder=holder),
        status=TaskStatus(phase="Succeeded"),
    )


def lines(metrics: Metrics, name: str) -> list[str]:
    return [one for one in metrics.render().decode().splitlines() if one.startswith(f"{name}{{")]


def test_everything_is_counted_by_pool_and_holder() -> None:
    metrics = Metrics()
    counting, task = TaskCounting(metrics), a_task("ann")
    counting.created(task)
    counting.began(task, 2.0)
    counting.ran(task, 3.0)
    counting.completed(task)
    where = 'namespace="shop",pool="p",holder="ann"'
    assert lines(metrics, "rota_tasks_created_total") == [f"rota_tasks_created_total{{{where}}} 1"]
    assert lines(metrics, "rota_tasks_completed_total") == [
        f'rota_tasks_completed_total{{{where},outcome="Succeeded"}} 1'
    ]
    assert lines(metrics, "rota_task_wait_seconds_sum") == [f"rota_task_wait_seconds_sum{{{where}}} 2"]
    assert lines(metrics, "rota_task_run_seconds_sum") == [f"rota_task_run_seconds_sum{{{where}}} 3"]


def test_holders_beyond_the_bound_are_counted_as_one() -> None:
    metrics = Metrics()
    counting = TaskCounting(metrics)
    for number in range(HOLDERS_MAX + 5):
        counting.created(a_task(f"holder-{number}"))
    counting.created(a_task())
    found = lines(metrics, "rota_tasks_created_total")
    assert len(found) == HOLDERS_MAX + 2
    assert 'rota_tasks_created_total{namespace="shop",pool="p",holder="other"} 5' in found
    assert 'rota_tasks_created_total{namespace="shop",pool="p",holder=""} 1' in found, "who names none is none of them"


def test_holders_that_wait_are_bounded_alike() -> None:
    metrics = Metrics()
    counting, ledger = TaskCounting(metrics), Ledger()
    counting.watch(lambda: {("shop", "p"): ledger})
    for number in range(HOLDERS_MAX + 5):
        ledger.request(Request(f"task-{number}", f"holder-{number:03}", 0, float(number)))
    found = lines(metrics, "rota_pool_waiting")
    assert len(found) == HOLDERS_MAX + 1
    assert 'rota_pool_waiting{namespace="shop",pool="p",holder="other"} 5' in found
