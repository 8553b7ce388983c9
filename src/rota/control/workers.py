"""Workers: their instance template, the next step of their runner, and the status that follows from its report."""

from __future__ import annotations

from typing import Literal

import msgspec

from rota.api import Condition, Instance, WorkerPool
from rota.api.instance import AssignmentStatus, Container, InstanceTemplate, Storage
from rota.api.pool import PoolStorage
from rota.api.worker import WorkerConfig, WorkerRole
from rota.control.gate import status_of
from rota.control.instances.lifecycle import AVAILABLE, phase_of, unavailable
from rota.control.instances.names import controller_of
from rota.engine.objects import Objects, get
from rota.runtime.runner.messages import Hold, Release, Report, ResetPolicy

CONTAINER = "worker"
"""The name of a worker's only container."""
MEANING = {
    "Waiting": "its runner is being started",
    "Preparing": "its workspace is being prepared",
    "Resetting": "what the last holder left is being removed",
}


def template_of(pool: WorkerPool) -> InstanceTemplate:
    template = pool.spec.template
    if template is None:
        assert pool.spec.worker is not None
        template = worker_template(pool.spec.worker)
    return with_storage(template, pool.spec.storage)


def with_storage(template: InstanceTemplate, storage: PoolStorage | None) -> InstanceTemplate:
    if storage is None or template.storage is not None:
        return template
    return msgspec.structs.replace(template, storage=Storage(size=storage.size))


def worker_template(config: WorkerConfig) -> InstanceTemplate:
    return InstanceTemplate(
        containers=[Container(name=CONTAINER, image=config.image, env=config.env, resources=config.resources)],
        worker=WorkerRole(**{field: getattr(config, field) for field in WorkerRole.__struct_fields__}),
        workspace_ref=config.workspace_ref,
        isolation=config.isolation,
        network=config.network,
        egress=config.egress,
    )


def reset_policy(objects: Objects, obj: Instance) -> ResetPolicy:
    """Return the present reset policy of an instance's pool. An instance without a pool has Clean."""
    if obj.spec.handler is not None:
        return "Keep"  # It has the same holder, a function, for all its life.
    owner = controller_of(obj)
    pool = get(objects, WorkerPool, owner.name, obj.metadata.namespace) if owner is not None else None
    return pool.spec.reset if pool is not None and owner is not None and pool.metadata.uid == owner.uid else "Clean"


def available(report: Report | None, obj: Instance) -> Condition:
    """Return the condition Available that follows from a runner's report; None: it has not connected."""
    if report is None:
        return unavailable("Starting", MEANING["Waiting"])
    if _is_let_go(report, obj):
        return unavailable("Starting", MEANING["Resetting"])
    if report.phase in ("Idle", "Held"):
        return Condition(type=AVAILABLE, status="True", reason=AVAILABLE)
    if report.phase in ("Failed", "Broken"):
        return unavailable("ConfigurationError", f"{report.reason}: {report.message}")
    return unavailable("Starting", MEANING[report.phase])


def _is_let_go(report: Report, obj: Instance) -> bool:
    """Report whether a hold has ended whose reset the runner has not begun yet."""
    held = obj.spec.assignment
    return report.phase == "Held" and not report.has_task and (held is None or held.id != report.holder)


def next_step(
    report: Report, obj: Instance, reset: ResetPolicy, digest: str
) -> Hold | Release | Literal["Replace"] | None:
    """Return the next message to an instance's runner about its hold; Replace: delete the instance; None: nothing.

    A hold is sent only after the runner has applied the present configuration, whose digest is `digest`.
    """
    held = obj.spec.assignment
    if report.phase == "Broken":
        return "Replace"
    if report.has_task or (held is not None and held.kind == "Task"):
        # A runner reports the end of a task, and gets the next step with the acknowledgement.
        done = report.phase == "Held" and held is None and reset == "Recreate"
        return "Replace" if done else None
    if _is_let_go(report, obj):
        return "Replace" if reset == "Recreate" else Release()
    is_configured = report.phase == "Idle" and report.configured == digest
    if is_configured and held is not None and _accepted(obj) != held.id:
        return Hold(held.id)
    return None


def assignment(report: Report, obj: Instance) -> AssignmentStatus | None:
    """Return the progress of the runner with the present hold. An accepted hold that it no longer has is Done."""
    held = obj.spec.assignment
    if held is None:
        return None
    if report.holder == held.id:
        return AssignmentStatus(id=held.id, phase="Accepted")
    if _accepted(obj) != held.id:
        return None
    return AssignmentStatus(id=held.id, phase="Done") if report.phase == "Idle" else status_of(obj).assignment


def says_who(obj: Instance, report: Report | None) -> bool:
    """Report whether the status of an instance shows its present holder and the runner's progress."""
    status = status_of(obj)
    return status.phase == phase_of(obj) and (report is None or assignment(report, obj) == status.assignment)


def is_done(report: Report, obj: Instance) -> bool:
    """Report whether the runner has ended the present hold, and the status does not show that yet."""
    now = assignment(report, obj)
    return now is not None and now.phase == "Done" and now != status_of(obj).assignment


def _accepted(obj: Instance) -> str:
    """Return the id of the hold that the runner has accepted, by the status."""
    known = status_of(obj).assignment
    return known.id if known is not None else ""
