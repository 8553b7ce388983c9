"""Location, Cell and InstanceType: the cluster's cities, their sites and the sizes they offer.

Quota and QuotaClaim: who may use how much.
"""

from typing import Annotated, Literal

from msgspec import field

from rota.api.instance import IDENTITY
from rota.api.kind import Column, kind
from rota.api.meta import Object, ObjectStatus, Readiness, by_condition
from rota.api.model import CityCode, Model, Name, Quantity, Text, Time, Total, doc, immutable
from rota.api.parts import Amounts
from rota.api.texts import more_than_nothing


class LocationSpec(Model):
    """A city."""

    city_code: Annotated[
        CityCode,
        doc("The short name of the city. Name the Location after it."),
    ]
    display_name: Annotated[Text | None, doc("The city's name, for people.")] = None
    region: Annotated[Text | None, doc("The part of the world it is in.")] = None
    latitude: Annotated[float | None, doc("Degrees north.", ge=-90, le=90)] = None
    longitude: Annotated[float | None, doc("Degrees east.", ge=-180, le=180)] = None


@kind(
    "locations",
    namespaced=False,
    short=("loc",),
    columns=(Column("City", ".spec.cityCode"), Column("Name", ".spec.displayName"), Column("Region", ".spec.region")),
)
class Location(Object):
    """A city."""

    spec: Annotated[LocationSpec, doc("Which city, and where.")]
    status: Annotated[ObjectStatus | None, doc("What was observed of it.")] = None


class Capacity(Amounts):
    """How much there is, or is used."""

    instances: Annotated[int | None, doc("Instances.", ge=0)] = None


class Used(Model):
    """How much is used: sums, of which each is read back as it was written."""

    instances: Annotated[int | None, doc("Instances.", ge=0)] = None
    cpu: Annotated[Total | None, doc("Virtual CPUs: 2, 1500m.")] = None
    memory: Annotated[Total | None, doc("Bytes of memory.")] = None
    storage: Annotated[Total | None, doc("Bytes of storage.")] = None


class CellSpec(Model):
    """One site's control plane."""

    city_code: Annotated[CityCode, doc("The city it is in.")]
    weight: Annotated[int, doc("Its share among the cells of its city.", ge=0, le=1000)] = 100
    cordoned: Annotated[bool, doc("Place nothing new here.")] = False
    drain: Annotated[bool, doc("Move what is here to other cells of its city, where they have room.")] = False
    capacity: Annotated[Capacity | None, doc("How much it holds. Omitted: no bound.")] = None


class CellStatus(ObjectStatus):
    """What the cell last said of itself."""

    last_heartbeat_time: Annotated[Time | None, doc("When it was last heard of.")] = None
    version: Annotated[Text | None, doc("The Rota it runs.")] = None
    allocated: Annotated[Used | None, doc("How much is in use.")] = None
    instances: Annotated[int, doc("Instances it runs.", ge=0)] = 0
    identity: Annotated[
        str | None,
        doc(
            "A digest of the identity of the home that joined under this name.",
            min_length=1,
            max_length=64,
            pattern=IDENTITY,
        ),
    ] = None
    hub_id: Annotated[
        str | None,
        doc("In the cell itself: the hub that it belongs to.", min_length=1, max_length=64, pattern=IDENTITY),
    ] = field(default=None, name="hubID")
    orphans: Annotated[
        list[Text],
        doc("Deployments that run there and that this hub does not know any more: namespace/name.", max_length=200),
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
    """One site's control plane, with its city, capacity and heartbeat."""

    spec: Annotated[CellSpec, doc("Where it is, and how much it holds.")]
    status: Annotated[CellStatus | None, doc("What it last said of itself.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)


class InstanceTypeSpec(Model):
    """A named size."""

    rules = more_than_nothing("cpu", "memory")
    cpu: Annotated[Quantity, doc("Virtual CPUs.")]
    memory: Annotated[Quantity, doc("Memory.")]
    state: Annotated[Literal["Active", "Deprecated", "Disabled"], doc("Whether it may be used.")] = "Active"


@kind(
    "instancetypes",
    namespaced=False,
    short=("it",),
    columns=(Column("CPU", ".spec.cpu"), Column("Memory", ".spec.memory"), Column("State", ".spec.state")),
)
class InstanceType(Object):
    """A named size: vCPU and memory."""

    spec: Annotated[InstanceTypeSpec, doc("How large it is.")]
    status: Annotated[ObjectStatus | None, doc("What was observed of it.")] = None

    def readiness(self) -> Readiness:
        if self.spec.state == "Disabled":
            return Readiness("Failed", "Disabled", f'instance type "{self.metadata.name}" is disabled')
        return Readiness("Ready")


class Budget(Capacity):
    """How much of everything that a quota counts."""

    storage: Annotated[Quantity | None, doc("Storage of instances: 10Gi.")] = None


class QuotaSpec(Model):
    """A namespace's budget."""

    hard: Annotated[Budget, doc("How much may be used at most. What is omitted has no bound.")]


OwnerKind = Annotated[Text, doc("Its kind: WorkloadDeployment, WorkerPool, Function, Task or Instance.")]
Hash = Annotated[str, doc("Tells sizes apart.", min_length=1, max_length=64, pattern=IDENTITY)]
Requests = Annotated[Used | None, doc("How much each of them takes.")]


class QuotaHolder(Model):
    """Instances of one owner and size that are granted."""

    kind: OwnerKind
    name: Annotated[Name, doc("Its name.")]
    uid: Annotated[str, doc("Its uid.", min_length=1, max_length=64, pattern=IDENTITY)]
    hash: Hash
    count: Annotated[int, doc("How many instances.", ge=0)]
    requests: Requests = None


class QuotaWaiting(Model):
    """Instances of one owner and size that the budget has no room for."""

    kind: OwnerKind
    name: Annotated[Name, doc("Its name.")]
    uid: Annotated[str, doc("Its uid.", min_length=1, max_length=64, pattern=IDENTITY)]
    hash: Hash
    count: Annotated[int, doc("How many instances.", ge=0)]
    message: Annotated[Text | None, doc("What is short, and who holds it.")] = None


HOLDERS_MAX = 1024
"""Entries of a ledger: it is part of one object."""
WAITING_MAX = 64
"""Of those who wait, the first so many are told one by one."""


class QuotaStatus(ObjectStatus):
    """How much of the budget is used."""

    used: Annotated[Used | None, doc("How much is granted.")] = None
    sequence: Annotated[int, doc("Counts changes of what is granted.", ge=0)] = 0
    holders: Annotated[list[QuotaHolder], doc("Who holds how much.", max_length=HOLDERS_MAX, keys=("uid", "hash"))] = []
    waiting: Annotated[
        list[QuotaWaiting], doc("Who waits, the first of them first.", max_length=WAITING_MAX, keys=("uid", "hash"))
    ] = []
    waiting_instances: Annotated[int, doc("Instances that wait, of everybody.", ge=0)] = 0


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

    spec: Annotated[QuotaSpec, doc("The budget.")]
    status: Annotated[QuotaStatus | None, doc("How much of it is used.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status, "Enforced")


class QuotaOwner(Model):
    """Whose instances they are."""

    kind: Annotated[Literal["WorkloadDeployment", "WorkerPool", "Function", "Task"], doc("Its kind.")]
    name: Annotated[Name, doc("Its name.")]
    uid: Annotated[str, doc("Its uid.", min_length=1, max_length=64, pattern=IDENTITY)]


class QuotaSlots(Model):
    """Instances of one size."""

    hash: Hash
    count: Annotated[int, doc("How many instances.", ge=0, le=1_000_000)]
    requests: Requests = None


class QuotaGrant(Model):
    """Instances of one size that are granted."""

    hash: Hash
    count: Annotated[int, doc("How many instances.", ge=0)]


SIZES_MAX = 16


class QuotaClaimSpec(Model):
    """What an owner of instances asks of the budget."""

    rules = immutable("owner")
    owner: Annotated[QuotaOwner, doc("Whose instances they are; immutable.")]
    slots: Annotated[list[QuotaSlots], doc("How many of each size.", max_length=SIZES_MAX, keys=("hash",))] = []


class QuotaClaimStatus(ObjectStatus):
    """What of it is granted."""

    granted: Annotated[list[QuotaGrant], doc("How many of each size.", max_length=SIZES_MAX, keys=("hash",))] = []


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
    """What an owner of instances asks of the quota, granted or not. Made by Rota."""

    spec: Annotated[QuotaClaimSpec, doc("What is asked for.")]
    status: Annotated[QuotaClaimStatus | None, doc("What of it is granted.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status, "Granted")
