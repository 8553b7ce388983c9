"""Workers: the instance that a worker is, the next step of its runner, and the status that its reports come to."""

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
"""The one container of a worker."""
MEANING = {
    "Waiting": "its runner is being started",
    "Preparing": "what it works on is being prepared",
    "Resetting": "what the last holder left is being removed",
}


def template_of(pool: WorkerPool) -> InstanceTemplate:
    """What the instances of a pool are made from."""
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
    """A worker as an instance."""
    return InstanceTemplate(
        containers=[Container(name=CONTAINER, image=config.image, env=config.env, resources=config.resources)],
        worker=WorkerRole(**{field: getattr(config, field) for field in WorkerRole.__struct_fields__}),
        workspace_ref=config.workspace_ref,
        isolation=config.isolation,
        network=config.network,
        egress=config.egress,
    )


def reset_policy(objects: Objects, obj: Instance) -> ResetPolicy:
    """What happens between two holders of an instance: what its pool says now."""
    if obj.spec.handler is not None:
        return "Keep"  # It has one for all its life.
    owner = controller_of(obj)
    pool = get(objects, WorkerPool, owner.name, obj.metadata.namespace) if owner is not None else None
    return pool.spec.reset if pool is not None and owner is not None and pool.metadata.uid == owner.uid else "Clean"


def available(report: Report | None, obj: Instance) -> Condition:
    """Return the condition Available that a runner's report comes to."""
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
    """Report whether a hold has ended, and the runner has not begun yet to clear away what the holder left."""
    held = obj.spec.assignment
    return report.phase == "Held" and not report.has_task and (held is None or held.id != report.holder)


def next_step(
    report: Report, obj: Instance, reset: ResetPolicy, digest: str
) -> Hold | Release | Literal["Replace"] | None:
    """What its runner is told of who has the instance; or that the instance is to be replaced.

    Nobody is given it before it is prepared as it should be by now.
    """
    held = obj.spec.assignment
    if report.phase == "Broken":
        return "Replace"
    if report.has_task or (held is not None and held.kind == "Task"):
        # A task's end is told by its runner, and what comes then is told it with the acknowledgement.
        done = report.phase == "Held" and held is None and reset == "Recreate"
        return "Replace" if done else None
    if _is_let_go(report, obj):
        return "Replace" if reset == "Recreate" else Release()
    is_as_told = report.phase == "Idle" and report.configured == digest
    if is_as_told and held is not None and _accepted(obj) != held.id:
        return Hold(held.id)
    return None


def assignment(report: Report, obj: Instance) -> AssignmentStatus | None:
    """How far the runner is with whoever has the instance. What it had and has no more is done."""
    held = obj.spec.assignment
    if held is None:
        return None
    if report.holder == held.id:
        return AssignmentStatus(id=held.id, phase="Accepted")
    if _accepted(obj) != held.id:
        return None
    return AssignmentStatus(id=held.id, phase="Done") if report.phase == "Idle" else status_of(obj).assignment


def says_who(obj: Instance, report: Report | None) -> bool:
    """Report whether the status of an instance says who has it, and how far its runner is with that."""
    status = status_of(obj)
    return status.phase == phase_of(obj) and (report is None or assignment(report, obj) == status.assignment)


def is_done(report: Report, obj: Instance) -> bool:
    """Report whether the holder of an instance has lost what it had there, and the status does not say so yet."""
    now = assignment(report, obj)
    return now is not None and now.phase == "Done" and now != status_of(obj).assignment


def _accepted(obj: Instance) -> str:
    """The hold that the runner of an instance has taken on, by what was last written down."""
    known = status_of(obj).assignment
    return known.id if known is not None else ""
