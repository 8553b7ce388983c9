"""Plan the writes for a report: the hub's copies and the report in, writes out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from rota.api import Instance, ObjectMeta, OwnerReference, WorkloadDeployment
from rota.api.copies import REPLICAS_MAX
from rota.api.instance import SchedulingGate
from rota.api.workload import WorkloadDeploymentStatus
from rota.control.cells.messages import DeploymentReport, InstanceReport
from rota.control.cells.names import CELL_UID
from rota.control.deployment import desired
from rota.control.instances.names import (
    ORDINAL_LABEL,
    OWNER_LABEL,
    TEMPLATE_LABEL,
    controller_of,
    instance_name,
    stem,
)
from rota.control.instances.reasons import HUB_QUOTA_GATE, QUOTA_GATE
from rota.registry.privileges import inherited

BESIDE_TEMPLATE_BYTES_MAX = 128 * 1024
"""The most bytes of an instance beyond its template: its status, mostly addresses of ports."""
COUNTS = ("replicas", "current_replicas", "updated_replicas", "desired_replicas", "ready_replicas")
COUNT_MAX = 2 * REPLICAS_MAX
"""The highest count that a cell may report for one deployment, including instances in deletion."""
PERCENT_MAX = 1_000_000

_encode = msgspec.json.Encoder().encode


class Receipt(NamedTuple):
    """The writes for the report of one deployment."""

    create: Sequence[Instance] = ()
    delete: Sequence[Instance] = ()
    statuses: Sequence[Instance] = ()
    """Instances whose status is written, after the new ones have been created."""
    status: WorkloadDeploymentStatus | None = None
    """The new status of the deployment; None: it stays."""


class ReportRefused(ValueError):  # noqa: N818
    """A report is about an instance that its deployment cannot have."""


class DeploymentSkipped(ValueError):  # noqa: N818
    """The report of one deployment is skipped. Those of other deployments are taken."""


class InstanceCopies(Protocol):
    """The hub's copies of a deployment's instances."""

    def find(self, name: str) -> Instance | None: ...

    def all(self) -> Iterable[Instance]: ...


def receive(deployment: WorkloadDeployment, known: InstanceCopies, report: DeploymentReport) -> Receipt:
    """Plan the writes of a deployment and its instances.

    Raises `ReportRefused` for an instance with a wrong name, `DeploymentSkipped` for one that is too large.
    """
    create, delete, statuses = [], {}, []
    bytes_max = len(_encode(deployment.spec.template.spec)) + BESIDE_TEMPLATE_BYTES_MAX
    for each in report.changed:
        _check(deployment, each)
        if (size := len(_encode(each))) > bytes_max:
            raise DeploymentSkipped(
                f'instance "{each.name}" has {size} bytes, and with such a template {bytes_max} are the most'
            )
        there = known.find(each.name)
        if there is None or _uid(there) != each.uid:
            if there is not None:
                delete[each.name] = there
            there = copy_of(deployment, each)
            create.append(there)
        if each.status is not None and there.status != each.status:
            statuses.append(msgspec.structs.replace(there, status=each.status))
    for gone in report.gone:
        there = known.find(gone.name)
        if there is not None and _uid(there) == gone.uid:
            delete[gone.name] = there
    if report.released:
        delete.update({one.metadata.name: one for one in known.all()})
    elif report.all is not None:
        # The hub has asked for a full report: copies that are not in it are of instances that are gone.
        every = {*report.all, *(one.uid for one in report.changed)}
        delete.update({one.metadata.name: one for one in known.all() if _uid(one) not in every})
    return Receipt(create, [*delete.values()], statuses, _status(deployment, report))


def is_numbered(deployment: str, instance: Instance) -> bool:
    """Report whether the name of an instance follows from its ordinal and the name of this deployment."""
    number = instance.spec.ordinal
    return number < REPLICAS_MAX and instance.metadata.name == instance_name(
        WorkloadDeployment.api.name, deployment, number
    )


def _uid(instance: Instance) -> str:
    """Return the uid of an instance in its cell."""
    return instance.metadata.annotations.get(CELL_UID, "")


def _status(deployment: WorkloadDeployment, report: DeploymentReport) -> WorkloadDeploymentStatus | None:
    if report.status is None:
        return None
    generation = min(report.generation or 0, deployment.metadata.generation)
    conditions = [msgspec.structs.replace(one, observed_generation=generation) for one in report.status.conditions]
    # Bounded, so that the sums over all cells can be written.
    counts = {name: min(getattr(report.status, name), COUNT_MAX) for name in COUNTS}
    percent = report.status.cpu_percent
    status = msgspec.structs.replace(
        report.status,
        observed_generation=generation,
        conditions=conditions,
        cpu_percent=None if percent is None else min(percent, PERCENT_MAX),
        **counts,
    )
    return status if status != deployment.status else None


def _check(deployment: WorkloadDeployment, report: InstanceReport) -> None:
    meta = deployment.metadata
    if report.spec.ordinal >= REPLICAS_MAX:
        raise ReportRefused(f'deployment "{meta.namespace}/{meta.name}" has no instance {report.spec.ordinal}')
    if report.name != instance_name(deployment.api.name, meta.name, report.spec.ordinal):
        raise ReportRefused(
            f'instance "{report.name}" is none of deployment "{meta.namespace}/{meta.name}":'
            f" number {report.spec.ordinal} has another name"
        )


def copy_of(deployment: WorkloadDeployment, report: InstanceReport) -> Instance:
    """Return the hub's copy of an instance of a cell."""
    meta = deployment.metadata
    wanted = desired(deployment)
    labels = {
        **wanted.labels,
        OWNER_LABEL: stem(deployment.api.name, meta.name),
        ORDINAL_LABEL: str(report.spec.ordinal),
        TEMPLATE_LABEL: report.spec.template_hash,
    }
    owner = OwnerReference(
        api_version=deployment.api.api_version,
        kind=deployment.api.name,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return Instance(
        metadata=ObjectMeta(
            name=report.name,
            namespace=meta.namespace,
            labels=labels,
            annotations={CELL_UID: report.uid, **inherited(meta.annotations)},
            owner_references=[owner],
        ),
        spec=msgspec.structs.replace(
            report.spec,
            cell_name=deployment.spec.cell_name,
            scheduling_gates=_gates(report.spec.scheduling_gates),
            # Nobody can hold an instance of a workload.
            assignment=None,
        ),
    )


def _gates(gates: Iterable[SchedulingGate]) -> list[SchedulingGate]:
    """Return the gates of an instance at the hub: the gate for the hub's quota is the quota gate there."""
    return [SchedulingGate(name=QUOTA_GATE if one.name == HUB_QUOTA_GATE else one.name) for one in gates]


def is_copy(instance: Instance) -> bool:
    """Report whether an instance is the hub's copy of one that runs in a cell."""
    return CELL_UID in instance.metadata.annotations and controller_of(instance) is not None
