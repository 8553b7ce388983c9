"""The table of all controllers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rota.api import (
    AgentConfig,
    Claim,
    Instance,
    Schedule,
    Task,
    TaskSpawner,
    WorkerPool,
    Workspace,
)
from rota.control.cell import Cells
from rota.control.cells.contacts import CellContacts
from rota.control.cells.counting import count_placements
from rota.control.cells.fence import Fence
from rota.control.claim import Claims
from rota.control.claims.counting import ClaimCounting
from rota.control.claims.holds import ClaimHolds
from rota.control.deployment import Deployments
from rota.control.function import Functions, Serving
from rota.control.functions.metrics import FunctionMetrics
from rota.control.functions.readiness import UnservedFunctions
from rota.control.functions.tasks import CalledTasks
from rota.control.gate import Gate, ReadyGate
from rota.control.holds.executor import Executor
from rota.control.instance import Instances
from rota.control.instances.names import subject_of
from rota.control.making.interface import InstanceMaker
from rota.control.making.local import LocalMaker
from rota.control.plane import HERE, Plane
from rota.control.pool import Pools
from rota.control.quota import Quotas
from rota.control.retention import EventRetention
from rota.control.schedule import Schedules
from rota.control.shipped import Shipped
from rota.control.spawner import Spawners, Spawning
from rota.control.task import Tasks
from rota.control.tasks.attempts import Attempts
from rota.control.tasks.counting import TaskCounting
from rota.control.tasks.jobs import job
from rota.control.workload import Workloads
from rota.engine import Objects, Reconciler
from rota.engine.metrics import Metrics
from rota.runtime.archive import Archive, keep_result, log_of
from rota.runtime.interface import Runtime
from rota.runtime.runner.jobs import Job
from rota.runtime.runners import Runners


def controllers(
    runtime: Runtime | None = None,
    runners: Runners | None = None,
    spawning: Spawning | None = None,
    metrics: Metrics | None = None,
    serving: Serving | None = None,
    plane: Plane = HERE,
    contacts: CellContacts | None = None,
    fence: Fence | None = None,
    claim_ended: Callable[[str], None] = lambda uid: None,
    maker: InstanceMaker | None = None,
) -> list[Reconciler]:
    """Return new controllers, one for each lane of the engine.

    Without a runtime or a `maker`, which makes instances elsewhere, none makes or runs instances. Without spawning,
    none makes tasks from schedules and spawners. `claim_ended` is called with the uid of a claim whose hold ends.
    """
    if runtime is not None:
        maker = LocalMaker(runtime, runners, fence)
    return [
        Shipped(plane),
        EventRetention(),
        ReadyGate(Workspace),
        ReadyGate(AgentConfig),
        *_running(runtime, maker, metrics or Metrics(), serving, plane, claim_ended),
        Workloads(plane, contacts, count_placements(metrics or Metrics())),
        Quotas(),
        Cells(plane, contacts),
        Deployments(plane, maker, fence),
        UnservedFunctions() if serving is None else Functions(serving, plane),
        Gate(Schedule) if spawning is None else Schedules(plane=plane),
        Gate(TaskSpawner) if spawning is None else Spawners(spawning),
    ]


def _running(
    runtime: Runtime | None,
    maker: InstanceMaker | None,
    metrics: Metrics,
    serving: Serving | None,
    plane: Plane,
    claim_ended: Callable[[str], None],
) -> list[Reconciler]:
    """Return the controllers of what runs."""
    if maker is None:
        return [Gate(WorkerPool), Gate(Task), Gate(Claim)]
    executor = Executor()
    if runtime is None:
        claims = ClaimHolds(executor, ClaimCounting(metrics), on_ended=claim_ended)
        return [Pools(maker, executor), Instances(maker, executor, plane), Gate(Task), Claims(claims)]
    archive = runtime.archive

    def make_job(objects: Objects, task: Task, instance: Instance, id_: str) -> Job:
        meta = task.metadata
        return job(objects, task, instance, id_, archive.place(log_of(meta.namespace, meta.name, meta.uid)))

    attempts = Attempts(executor, maker.runners, make_job, partial(keep_result, archive), TaskCounting(metrics))
    claims = ClaimHolds(
        executor,
        ClaimCounting(metrics),
        lambda instance: _log_marks(archive, instance),
        claim_ended,
        lambda instance: runtime.entries(subject_of(instance)),
    )
    if serving is not None:
        serving.calls.use_metrics(FunctionMetrics(metrics))
    called = CalledTasks(serving.calls, archive, attempts.wake) if serving is not None else None
    tasks = Tasks(attempts, runtime, called)
    return [Pools(maker, executor), Instances(maker, executor, plane), tasks, Claims(claims)]


def _log_marks(archive: Archive, instance: Instance) -> dict[str, tuple[int, int]]:
    found = {}
    for container in instance.spec.containers:
        if (mark := archive.instance_mark(subject_of(instance), container.name)) is not None:
            found[container.name] = mark
    return found
