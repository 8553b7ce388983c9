"""The messages between a cell and its hub: a report, and the answer to it.

Either side may be one minor version newer: what it does not know in a message, the other ignores.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from rota.api.cell import Used
from rota.api.instance import InstanceSpec, InstanceStatus
from rota.api.workload import WorkloadDeploymentStatus

REPORT_BYTES_MAX = 3 * 1024 * 1024
"""A larger report is refused with 413, as every larger body is."""
REPORT_BYTES_AIM = 1024 * 1024
"""A cell divides what it has to say into reports of this size. One instance may have more, as large as an object is."""
DEPLOYMENTS_MAX = 200
"""Deployments that one report tells of."""
CHANGED_MAX = 500
"""Instances that a cell puts into one report, and as many that are gone for each deployment."""
GONE_MAX = 5000
EVENTS_MAX = 20
"""Events of one deployment that one report tells of."""
REASON_LENGTH_MAX = 128
MESSAGE_LENGTH_MAX = 1024
NAME_LENGTH_MAX = 253
IDENTITY_LENGTH_MAX = 64

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
Uid = Annotated[str, msgspec.Meta(min_length=1, max_length=IDENTITY_LENGTH_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class InstanceReport(msgspec.Struct, rename="camel"):
    """One instance, as it is in the cell."""

    name: Name
    uid: Uid
    spec: InstanceSpec
    status: InstanceStatus | None = None


class Gone(msgspec.Struct, rename="camel"):
    """An instance that is no more."""

    name: Name
    uid: Uid


class EventReport(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Something that happened in the cell, and that people should notice."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_LENGTH_MAX)]
    message: Annotated[str, msgspec.Meta(max_length=MESSAGE_LENGTH_MAX)] = ""
    instance: Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)] = ""
    """The name of the instance that it happened to; empty: the deployment."""
    warning: bool = False


class DeploymentReport(msgspec.Struct, rename="camel", omit_defaults=True):
    """News of one deployment. What is left out has not changed."""

    namespace: Name
    """Where it is at the hub."""
    name: Name
    uid: Uid
    """The uid of the deployment at the hub."""
    generation: Count | None = None
    """The generation of the deployment at the hub that the status is about."""
    status: WorkloadDeploymentStatus | None = None
    changed: Annotated[list[InstanceReport], msgspec.Meta(max_length=GONE_MAX)] = []
    gone: Annotated[list[Gone], msgspec.Meta(max_length=GONE_MAX)] = []
    all: Annotated[list[Uid], msgspec.Meta(max_length=GONE_MAX)] | None = None
    """Uids of all its instances: others are no more. Only where the hub has asked for it."""
    events: Annotated[list[EventReport], msgspec.Meta(max_length=EVENTS_MAX)] = []
    digest: Annotated[str, msgspec.Meta(max_length=IDENTITY_LENGTH_MAX)] = ""
    """The digest of all its instances, after this report."""
    released: bool = False
    """Nothing of it is left in the cell."""


class Report(msgspec.Struct, rename="camel", omit_defaults=True):
    """News of a cell."""

    identity: Uid
    """The cell's home has it. Another one is another cell, whatever its name is."""
    boot: Count
    """Counts the starts of the cell."""
    sequence: Count
    """Counts the reports since its start."""
    version: Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)] = ""
    instances: Count = 0
    allocated: Used | None = None
    deployments: Annotated[list[DeploymentReport], msgspec.Meta(max_length=DEPLOYMENTS_MAX)] = []
    orphans: Annotated[list[Name], msgspec.Meta(max_length=DEPLOYMENTS_MAX)] = []
    """Deployments that run in the cell, and that the hub does not know: namespace/name."""


class Answer(msgspec.Struct, rename="camel", omit_defaults=True):
    """The hub's answer to a report."""

    hub: str
    """The identity of the hub's store."""
    resync: list[str] = []
    """Uids of deployments of which the hub wants to know everything."""
    rights: dict[str, float] = {}
    """By uid, deployments that the hub moves when the cell is lost: for how many seconds the cell may run them."""
    late: Count | None = None
    """The boot of a later report that was heard, so that this one was not taken, and gives no rights. A cell that gets
    such an answer counts on from there: its home may have been restored."""
    interval_seconds: float = 10.0
    """When the cell is to report again at the latest."""
