"""The writes that a report comes to. Pure: it is told what is there, and says what is to be done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from rota.api import Instance, ObjectMeta, OwnerReference, WorkloadDeployment
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


class Receipt(NamedTuple):
    """The writes that the report of one deployment comes to."""

    create: Sequence[Instance] = ()
    delete: Sequence[Instance] = ()
    statuses: Sequence[Instance] = ()
    """Instances whose status is written. What is created has to be there first."""
    status: WorkloadDeploymentStatus | None = None
    """The new status of the deployment; None: it stays."""


class Refused(ValueError):  # noqa: N818
    """A report tells of what is not the cell's to tell of."""


class Known(Protocol):
    """The instances of a deployment, as the hub knows them."""

    def find(self, name: str) -> Instance | None:
        """Return the one of a name."""
        ...

    def all(self) -> Iterable[Instance]: ...


def receive(deployment: WorkloadDeployment, known: Known, report: DeploymentReport) -> Receipt:
    """Return what to write of a deployment and its instances.

    deployment  as it is at the hub
    Raises `Refused` for an instance whose name is not one of the deployment's.
    """
    create, delete, statuses = [], {}, []
    for each in report.changed:
        _check(deployment, each)
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
        # The hub has asked for all of them: what is not among them is a ghost.
        every = {*report.all, *(one.uid for one in report.changed)}
        delete.update({one.metadata.name: one for one in known.all() if _uid(one) not in every})
    return Receipt(create, [*delete.values()], statuses, _status(deployment, report))


def _uid(instance: Instance) -> str:
    """Return the uid that an instance has in its cell."""
    return instance.metadata.annotations.get(CELL_UID, "")


def _status(deployment: WorkloadDeployment, report: DeploymentReport) -> WorkloadDeploymentStatus | None:
    if report.status is None:
        return None
    generation = min(report.generation or 0, deployment.metadata.generation)
    conditions = [msgspec.structs.replace(one, observed_generation=generation) for one in report.status.conditions]
    status = msgspec.structs.replace(report.status, observed_generation=generation, conditions=conditions)
    return status if status != deployment.status else None


def _check(deployment: WorkloadDeployment, report: InstanceReport) -> None:
    meta = deployment.metadata
    if report.name != instance_name(deployment.api.name, meta.name, report.spec.ordinal):
        raise Refused(
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
            annotations={CELL_UID: report.uid},
            owner_references=[owner],
        ),
        spec=msgspec.structs.replace(
            report.spec,
            cell_name=deployment.spec.cell_name,
            scheduling_gates=_gates(report.spec.scheduling_gates),
            # Nobody holds an instance of a workload.
            assignment=None,
        ),
    )


def _gates(gates: Iterable[SchedulingGate]) -> list[SchedulingGate]:
    """Return the gates of an instance as the hub has them: what waits for the hub's quota waits there for its own."""
    return [SchedulingGate(name=QUOTA_GATE if one.name == HUB_QUOTA_GATE else one.name) for one in gates]


def is_copy(instance: Instance) -> bool:
    """Report whether an instance is the hub's copy of one that runs in a cell."""
    return CELL_UID in instance.metadata.annotations and controller_of(instance) is not None
