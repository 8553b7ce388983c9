"""The messages between a cell and its hub: a report, and the answer to it.

Either side may be one minor version newer: unknown fields are ignored.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from rota.api.cell import Used
from rota.api.instance import InstanceSpec, InstanceStatus
from rota.api.workload import WorkloadDeploymentStatus
from rota.control.cells.names import UID_LENGTH_MAX

REPORT_BYTES_MAX = 3 * 1024 * 1024
"""A larger report is refused with 413."""
REPORT_BYTES_AIM = 1024 * 1024
"""The size into which a cell divides its news. A report with one large instance may be larger."""
DEPLOYMENTS_MAX = 200
"""Deployments in one report."""
CHANGED_MAX = 500
"""Instances that a cell puts into one report, and deleted ones of each deployment."""
GONE_MAX = 5000
EVENTS_MAX = 20
"""Events of one deployment in one report."""
REASON_LENGTH_MAX = 128
MESSAGE_LENGTH_MAX = 1024
NAME_LENGTH_MAX = 253
IDENTITY_LENGTH_MAX = UID_LENGTH_MAX

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
Uid = Annotated[str, msgspec.Meta(min_length=1, max_length=IDENTITY_LENGTH_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class InstanceReport(msgspec.Struct, rename="camel"):
    """One instance of the cell."""

    name: Name
    uid: Uid
    spec: InstanceSpec
    status: InstanceStatus | None = None


class Gone(msgspec.Struct, rename="camel"):
    name: Name
    uid: Uid


class EventReport(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """An Event of the cell about a deployment of the hub, or one of its instances."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_LENGTH_MAX)]
    message: Annotated[str, msgspec.Meta(max_length=MESSAGE_LENGTH_MAX)] = ""
    instance: Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)] = ""
    """The name of the instance; empty: it is about the deployment."""
    warning: bool = False


class DeploymentReport(msgspec.Struct, rename="camel", omit_defaults=True):
    """News of one deployment. Instances that are left out have not changed."""

    namespace: Name
    """Its namespace at the hub."""
    name: Name
    uid: Uid
    """The uid of the deployment at the hub."""
    generation: Count | None = None
    """The generation at the hub that the status is for."""
    status: WorkloadDeploymentStatus | None = None
    changed: Annotated[list[InstanceReport], msgspec.Meta(max_length=GONE_MAX)] = []
    gone: Annotated[list[Gone], msgspec.Meta(max_length=GONE_MAX)] = []
    all: Annotated[list[Uid], msgspec.Meta(max_length=GONE_MAX)] | None = None
    """The uids of all its instances: others are gone. Sent only if the hub has asked for it."""
    events: Annotated[list[EventReport], msgspec.Meta(max_length=EVENTS_MAX)] = []
    digest: Annotated[str, msgspec.Meta(max_length=IDENTITY_LENGTH_MAX)] = ""
    """The digest of all its instances, after this report."""
    released: bool = False
    """Nothing of it is left in the cell."""


class Report(msgspec.Struct, rename="camel", omit_defaults=True):
    identity: Uid
    """The random id of the cell's home. Another identity is another cell, also under the same name."""
    boot: Count
    """The number of the cell's starts."""
    sequence: Count
    """The number of reports since its start."""
    version: Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)] = ""
    instances: Count = 0
    allocated: Used | None = None
    deployments: Annotated[list[DeploymentReport], msgspec.Meta(max_length=DEPLOYMENTS_MAX)] = []
    orphans: Annotated[list[Name], msgspec.Meta(max_length=DEPLOYMENTS_MAX)] = []
    """Deployments that run in the cell, and that the hub lacks: namespace/name."""


class Answer(msgspec.Struct, rename="camel", omit_defaults=True):
    """The hub's answer to a report."""

    hub: str
    """The identity of the hub's store."""
    resync: list[str] = []
    """Uids of deployments that the cell must report in full."""
    rights: dict[str, float] = {}
    """Seconds for which the cell may run each deployment that moves when the cell is lost, by uid."""
    late: Count | None = None
    """The boot of a later report that the hub has received already.

    The hub has ignored this report, and gives no rights. The cell continues from that boot, since its home may have
    been restored.
    """
    interval_seconds: float = 10.0
    """The longest time until the cell's next report."""
