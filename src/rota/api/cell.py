"""Location, Cell and InstanceType: cities, their sites, and the sizes of instances they offer.

Quota and QuotaClaim: the budgets of namespaces.
"""

from typing import Annotated, Literal

from msgspec import field

from rota.api.field_rules import more_than_nothing
from rota.api.instance import IDENTITY
from rota.api.kind import Column, kind
from rota.api.meta import Object, ObjectStatus, Readiness, by_condition
from rota.api.model import CityCode, Model, Name, Quantity, Text, Time, Total, doc, immutable
from rota.api.parts import Amounts


class LocationSpec(Model):
    """A city."""

    city_code: Annotated[
        CityCode,
        doc("Short name of the city, such as ber. The Location should have the same name."),
    ]
    display_name: Annotated[Text | None, doc("Display name of the city.")] = None
    region: Annotated[Text | None, doc("Part of the world the city is in.")] = None
    latitude: Annotated[float | None, doc("Degrees north.", ge=-90, le=90)] = None
    longitude: Annotated[float | None, doc("Degrees east.", ge=-180, le=180)] = None


@kind(
    "locations",
    namespaced=False,
    short=("loc",),
    columns=(Column("City", ".spec.cityCode"), Column("Name", ".spec.displayName"), Column("Region", ".spec.region")),
)
class Location(Object):
    """A city that cells can be in."""

    spec: Annotated[LocationSpec, doc("The city's code, name and position.")]
    status: Annotated[ObjectStatus | None, doc("Most recently observed status of the city.")] = None


class Capacity(Amounts):
    """Amounts of a site: instances, virtual CPUs and memory."""

    instances: Annotated[int | None, doc("Number of instances.", ge=0)] = None


class Used(Model):
    """Sums of what instances request, in the form in which Rota counts them."""

    instances: Annotated[int | None, doc("Number of instances.", ge=0)] = None
    cpu: Annotated[Total | None, doc("Sum of virtual CPUs, such as 2 or 1500m.")] = None
    memory: Annotated[Total | None, doc("Sum of memory in bytes.")] = None
    storage: Annotated[Total | None, doc("Sum of storage in bytes.")] = None


class CellSpec(Model):
    """Desired state of a cell."""

    city_code: Annotated[CityCode, doc("Code of the city the cell is in.")]
    weight: Annotated[
        int, doc("Share of new instances, relative to the other cells of the city. 0: none.", ge=0, le=1000)
    ] = 100
    cordoned: Annotated[bool, doc("If true, no new instances are placed in the cell.")] = False
    drain: Annotated[
        bool, doc("If true, instances of the cell are moved to other cells of its city that have room.")
    ] = False
    capacity: Annotated[Capacity | None, doc("Capacity for instances. Omitted: unbounded.")] = None


class CellStatus(ObjectStatus):
    """Last report of the cell."""

    last_heartbeat_time: Annotated[Time | None, doc("Time of the cell's last report.")] = None
    version: Annotated[Text | None, doc("Version of Rota that the cell runs.")] = None
    allocated: Annotated[Used | None, doc("Sum of what the cell's instances request.")] = None
    instances: Annotated[int, doc("Number of instances the cell runs.", ge=0)] = 0
    identity: Annotated[
        str | None,
        doc(
            "Digest of the identity of the home that joined under this name.",
            min_length=1,
            max_length=64,
            pattern=IDENTITY,
        ),
    ] = None
    hub_id: Annotated[
        str | None,
        doc(
            "ID of the hub the cell belongs to. Set in the cell itself.", min_length=1, max_length=64, pattern=IDENTITY
        ),
    ] = field(default=None, name="hubID")
    orphans: Annotated[
        list[Text],
        doc("Deployments that run in the cell and are unknown to this hub, as namespace/name.", max_length=200),
    ] = []


@kind(
    "cells",
    namespaced=False,
    columns=(
        Column("City", ".spec.cityCode"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Instances", ".status.instances", "integer"),
        Column("Heartbeat", ".status.lastHeartbeatTime", "date"),
        Column("Version", ".status.version", wide=True),
    ),
)
class Cell(Object):
    """The control plane of one site, with its city, capacity and heartbeat."""

    spec: Annotated[CellSpec, doc("Desired state of the cell.")]
    status: Annotated[CellStatus | None, doc("Last report of the cell.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)


class InstanceTypeSpec(Model):
    """Size that the type stands for."""

    rules = more_than_nothing("cpu", "memory")
    cpu: Annotated[Quantity, doc("Virtual CPUs of an instance, such as 2 or 500m.")]
    memory: Annotated[Quantity, doc("Memory of an instance, such as 512Mi.")]
    state: Annotated[
        Literal["Active", "Deprecated", "Disabled"], doc("Lifecycle of the type. Instances cannot use a Disabled type.")
    ] = "Active"


@kind(
    "instancetypes",
    namespaced=False,
    short=("it",),
    columns=(Column("CPU", ".spec.cpu"), Column("Memory", ".spec.memory"), Column("State", ".spec.state")),
)
class InstanceType(Object):
    """A named size: vCPU and memory."""

    spec: Annotated[InstanceTypeSpec, doc("Size that the type stands for.")]
    status: Annotated[ObjectStatus | None, doc("Most recently observed status of the type.")] = None

    def readiness(self) -> Readiness:
        if self.spec.state == "Disabled":
            return Readiness("Failed", "Disabled", f'instance type "{self.metadata.name}" is disabled')
        return Readiness("Ready")


class Budget(Capacity):
    """Limits of a namespace. Omitted amounts are unbounded."""

    storage: Annotated[Quantity | None, doc("Limit on the sum of the storage of instances, such as 10Gi.")] = None


class QuotaSpec(Model):
    """Budget of a namespace."""

    hard: Annotated[Budget, doc("Limits on what the namespace's instances request. Omitted amounts are unbounded.")]


OwnerKind = Annotated[Text, doc("Kind of the owner: WorkloadDeployment, WorkerPool, Function, Task or Instance.")]
Hash = Annotated[str, doc("Hash of what one instance requests.", min_length=1, max_length=64, pattern=IDENTITY)]
Requests = Annotated[Used | None, doc("Amounts that each of the instances requests.")]


class QuotaHolder(Model):
    """Granted instances of one owner and size."""

    kind: OwnerKind
    name: Annotated[Name, doc("Name of the owner.")]
    uid: Annotated[str, doc("UID of the owner.", min_length=1, max_length=64, pattern=IDENTITY)]
    hash: Hash
    count: Annotated[int, doc("Number of granted instances.", ge=0)]
    requests: Requests = None


class QuotaWaiting(Model):
    """Instances of one owner and size that exceed the budget."""

    kind: OwnerKind
    name: Annotated[Name, doc("Name of the owner.")]
    uid: Annotated[str, doc("UID of the owner.", min_length=1, max_length=64, pattern=IDENTITY)]
    hash: Hash
    count: Annotated[int, doc("Number of waiting instances.", ge=0)]
    message: Annotated[
        Text | None, doc("Human-readable message: the amount that is short, and its largest holders.")
    ] = None


HOLDERS_MAX = 1024
"""Bound on `status.holders`: the ledger is part of one object."""
WAITING_MAX = 64
"""Bound on `status.waiting`. `waitingInstances` counts those beyond it too."""


class QuotaStatus(ObjectStatus):
    """Use of the budget."""

    used: Annotated[Used | None, doc("Sum of what granted instances request.")] = None
    sequence: Annotated[int, doc("Number of changes of what is granted.", ge=0)] = 0
    holders: Annotated[
        list[QuotaHolder], doc("Granted instances by owner and size.", max_length=HOLDERS_MAX, keys=("uid", "hash"))
    ] = []
    waiting: Annotated[
        list[QuotaWaiting],
        doc(
            "Waiting instances by owner and size, in the order of the queue.",
            max_length=WAITING_MAX,
            keys=("uid", "hash"),
        ),
    ] = []
    waiting_instances: Annotated[int, doc("Number of waiting instances of all owners.", ge=0)] = 0


@kind(
    "quotas",
    columns=(
        Column("Instances", ".status.used.instances", "integer"),
        Column("Of", ".spec.hard.instances", "integer"),
        Column("Waiting", ".status.waitingInstances", "integer"),
        Column("CPU", ".spec.hard.cpu", wide=True),
        Column("Memory", ".spec.hard.memory", wide=True),
        Column("Enforced", '.status.conditions[?(@.type=="Enforced")].status'),
    ),
)
class Quota(Object):
    """A namespace's budget, named default: instances, vCPU, memory, storage. Without one, nothing is limited."""

    spec: Annotated[QuotaSpec, doc("Budget of the namespace.")]
    status: Annotated[QuotaStatus | None, doc("Use of the budget.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status, "Enforced")


class QuotaOwner(Model):
    """Owner of the instances."""

    kind: Annotated[Literal["WorkloadDeployment", "WorkerPool", "Function", "Task"], doc("Kind of the owner.")]
    name: Annotated[Name, doc("Name of the owner.")]
    uid: Annotated[str, doc("UID of the owner.", min_length=1, max_length=64, pattern=IDENTITY)]


class QuotaSlots(Model):
    """Requested instances of one size."""

    hash: Hash
    count: Annotated[int, doc("Number of requested instances.", ge=0, le=1_000_000)]
    requests: Requests = None


class QuotaGrant(Model):
    """Granted instances of one size."""

    hash: Hash
    count: Annotated[int, doc("Number of granted instances.", ge=0)]


SIZES_MAX = 16


class QuotaClaimSpec(Model):
    """Instances that an owner requests from the budget."""

    rules = immutable("owner")
    owner: Annotated[QuotaOwner, doc("Owner of the instances. Immutable.")]
    slots: Annotated[
        list[QuotaSlots], doc("Requested number of instances by size.", max_length=SIZES_MAX, keys=("hash",))
    ] = []


class QuotaClaimStatus(ObjectStatus):
    """Granted part of the request."""

    granted: Annotated[
        list[QuotaGrant], doc("Granted number of instances by size.", max_length=SIZES_MAX, keys=("hash",))
    ] = []


@kind(
    "quotaclaims",
    short=("qc",),
    made=True,
    columns=(
        Column("Kind", ".spec.owner.kind"),
        Column("Owner", ".spec.owner.name"),
        Column("Granted", '.status.conditions[?(@.type=="Granted")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Granted")].reason'),
    ),
)
class QuotaClaim(Object):
    """A request of an owner of instances for a part of the quota. Made by Rota."""

    spec: Annotated[QuotaClaimSpec, doc("Requested instances.")]
    status: Annotated[QuotaClaimStatus | None, doc("Granted instances.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status, "Granted")
