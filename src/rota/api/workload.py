"""Workload and WorkloadDeployment: a template, and the cities it runs in."""

from typing import Annotated, Literal

from msgspec import field

from rota.api.conflicts import CITIES, MARKS, RESTARTS
from rota.api.copies import REPLICAS_MAX, WORKLOAD_COPIES
from rota.api.instance import IDENTITY, InstanceTemplate
from rota.api.kind import ALL, SCALE_MAX, Column, Scale, kind
from rota.api.meta import Object, ObjectStatus, Readiness, by_condition
from rota.api.model import CityCode, Model, Name, Ref, Rule, Text, Time, doc, immutable

PLACEMENTS_MAX = 32
CITIES_MAX = 64
CELLS_MAX = 1024
LEASE_SECONDS = 60
REBALANCE = "rota.dev/rebalance"
"""Annotation that asks to spread the instances of a workload evenly. It is removed once they are."""

OnCellLost = Literal["Keep", "Move"]


class TemplateMeta(Model):
    """Labels and annotations of the instances."""

    checks = (MARKS,)
    labels: Annotated[dict[str, Text], doc("Labels of the instances.", max_length=64)] = {}
    annotations: Annotated[dict[str, Text], doc("Annotations of the instances.", max_length=64)] = {}


class WorkloadTemplate(Model):
    """Template of the instances."""

    metadata: Annotated[TemplateMeta | None, doc("Labels and annotations of the instances.")] = None
    spec: Annotated[InstanceTemplate, doc("Template of the spec of the instances.")]


class ScaleMetric(Model):
    """Metric that a placement scales by."""

    cpu_percent: Annotated[
        int,
        doc("Target average CPU use, in percent of the requested CPUs. Without a request, of one CPU.", ge=1, le=100),
    ]


class PlacementScale(Model):
    """Number of instances in each city."""

    rules = (
        Rule("!has(self.max) || self.max >= self.min", "max must not be less than min", "max"),
        Rule("has(self.metric) == has(self.max)", "max and metric need each other"),
    )
    min: Annotated[int, doc("Minimum number of instances in each city.", ge=1, le=REPLICAS_MAX)] = 1
    max: Annotated[
        int | None, doc("Maximum number of instances in each city. Omitted: min.", ge=1, le=REPLICAS_MAX)
    ] = None
    metric: Annotated[ScaleMetric | None, doc("Metric to scale by.")] = None


class Placement(Model):
    """Cities, and the number of instances in each."""

    checks = (RESTARTS,)
    name: Annotated[
        str, doc("Name of the placement.", min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    ]
    city_codes: Annotated[
        list[CityCode],
        doc("Codes of the cities.", min_length=1, max_length=CITIES_MAX, unique=True),
    ]
    scale: Annotated[PlacementScale, doc("Number of instances in each city.")] = field(default_factory=PlacementScale)
    on_cell_lost: Annotated[
        OnCellLost,
        doc("Policy for a cell out of reach: keep its instances there, or move them to other cells of the city."),
    ] = "Keep"
    lease_seconds: Annotated[
        int, doc("Seconds without contact after which instances are moved, with onCellLost Move.", ge=5, le=86400)
    ] = LEASE_SECONDS
    restarted_at: Annotated[
        dict[str, Time], doc("Time of the last request to restart, by city.", max_length=CITIES_MAX)
    ] = {}


MOVES = "self.placements.exists(one, has(one.onCellLost) && one.onCellLost == 'Move')"


class WorkloadSpec(Model):
    """Desired state of a workload."""

    rules = (
        Rule(
            f"!{MOVES} || !has(self.template.spec.storage)",
            "storage stays in its cell: leave it out, or say onCellLost: Keep",
            "template",
        ),
        Rule(
            f"!{MOVES} || !has(self.template.spec.runtime) || self.template.spec.runtime == 'process'",
            "only processes are ended for certain in a cell that is out of reach: say runtime: process, or"
            " onCellLost: Keep",
            "template",
        ),
    )
    checks = (CITIES, WORKLOAD_COPIES)
    template: Annotated[WorkloadTemplate, doc("Template of the instances.")]
    placements: Annotated[
        list[Placement],
        doc("Cities, and the number of instances in each.", min_length=1, max_length=PLACEMENTS_MAX, keys=("name",)),
    ]
    revision_history_limit: Annotated[int, doc("Number of old templates kept for rollback.", ge=0, le=100)] = 10


There = Annotated[int, doc("Number of instances.", ge=0, le=SCALE_MAX)]
Current = Annotated[int, doc("Number of instances of the newest template that are programmed.", ge=0)]
Updated = Annotated[int, doc("Number of instances of the newest template.", ge=0)]
Desired = Annotated[int, doc("Number of desired instances.", ge=0)]
Usable = Annotated[int, doc("Number of ready instances.", ge=0)]


class PlacedInCell(Model):
    """Instances of a placement in one cell."""

    name: Annotated[Name, doc("Name of the cell.")]
    replicas: Annotated[int, doc("Number of instances placed in the cell.", ge=0)] = 0
    ready: Annotated[int, doc("Number of those that are ready.", ge=0)] = 0


class PlacedInCity(Model):
    """Instances of a placement in one city, by cell."""

    city_code: Annotated[CityCode, doc("Code of the city.")]
    cells: Annotated[
        list[PlacedInCell],
        doc("Cells of the city that have instances of the placement.", max_length=CELLS_MAX, keys=("name",)),
    ] = []


class PlacementStatus(Model):
    """Status of a placement."""

    name: Annotated[Name, doc("Name of the placement.")]
    replicas: There = 0
    current_replicas: Current = 0
    updated_replicas: Updated = 0
    desired_replicas: Desired = 0
    ready_replicas: Usable = 0
    available: Annotated[
        Literal["True", "False", "Unknown"] | None, doc("Status of the availability of the placement.")
    ] = None
    reason: Annotated[Text | None, doc("Machine-readable reason why it is not available.")] = None
    message: Annotated[Text | None, doc("Human-readable message about why it is not available.")] = None
    unplaced: Annotated[int, doc("Number of instances that no cell has room for.", ge=0)] = 0
    cities: Annotated[
        list[PlacedInCity], doc("Instances by city and cell.", max_length=CITIES_MAX, keys=("cityCode",))
    ] = []


class CountedStatus(ObjectStatus):
    """Counts of instances."""

    replicas: There = 0
    current_replicas: Current = 0
    updated_replicas: Updated = 0
    desired_replicas: Desired = 0
    ready_replicas: Usable = 0


class WorkloadStatus(CountedStatus):
    """Status of a workload in all cities."""

    deployments: Annotated[int, doc("Number of WorkloadDeployments.", ge=0)] = 0
    cities: Annotated[Text | None, doc("Cities it runs in, for display.")] = None
    ready: Annotated[Text | None, doc("Ready and desired instances, for display.")] = None
    placements: Annotated[
        list[PlacementStatus], doc("Statuses of the placements.", max_length=PLACEMENTS_MAX, keys=("name",))
    ] = []


AVAILABLE = '.status.conditions[?(@.type=="Available")].status'


@kind(
    "workloads",
    categories=(ALL,),
    short=("wl",),
    columns=(
        Column("Ready", ".status.ready"),
        Column("Up-to-date", ".status.updatedReplicas", "integer"),
        Column("Available", AVAILABLE),
        Column("Cities", ".status.cities"),
        Column("Reason", '.status.conditions[?(@.type=="Available")].reason', wide=True),
    ),
)
class Workload(Object):
    """Instances of one template in several cities."""

    spec: Annotated[WorkloadSpec, doc("Desired state of the workload.")]
    status: Annotated[WorkloadStatus | None, doc("Status of the workload in all cities.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status, "Available")


class WorkloadDeploymentSpec(Model):
    """Desired state of one placement in one cell."""

    rules = immutable("workloadRef", "placementName", "cityCode", "cellName")
    workload_ref: Annotated[Ref, doc("Workload it belongs to. Immutable.")]
    placement_name: Annotated[Name, doc("Placement of the workload. Immutable.")]
    city_code: Annotated[CityCode, doc("Code of the city. Immutable.")]
    cell_name: Annotated[Name, doc("Name of the cell. Immutable.")]
    replicas: Annotated[int, doc("Number of instances.", ge=0, le=REPLICAS_MAX)]
    template: Annotated[WorkloadTemplate, doc("Template of the instances.")]
    on_cell_lost: Annotated[OnCellLost, doc("Policy for when the cell is out of reach.")] = "Keep"
    lease_seconds: Annotated[
        int, doc("Seconds without contact after which instances are moved, with onCellLost Move.", ge=5, le=86400)
    ] = LEASE_SECONDS
    term: Annotated[int, doc("Fencing number: how often its instances were moved to another cell.", ge=0)] = 0
    metric: Annotated[ScaleMetric | None, doc("Metric that the placement scales by. Omitted: none is measured.")] = None


class WorkloadDeploymentStatus(CountedStatus):
    """Status of one placement in one cell."""

    selector: Annotated[Text | None, doc("Label selector of its instances.")] = None
    template_hash: Annotated[str | None, doc("Hash of the newest template.", max_length=64)] = None
    cpu_percent: Annotated[
        int | None, doc("Average CPU use of the instances, in percent of the requested CPUs. Omitted: unknown.", ge=0)
    ] = None


@kind(
    "workloaddeployments",
    categories=(ALL,),
    short=("wd",),
    made=True,
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    columns=(
        Column("City", ".spec.cityCode"),
        Column("Cell", ".spec.cellName"),
        Column("Desired", ".spec.replicas", "integer"),
        Column("Ready", ".status.readyReplicas", "integer"),
        Column("Up-to-date", ".status.updatedReplicas", "integer"),
        Column("Available", AVAILABLE),
    ),
    selectable=(".spec.cellName",),
)
class WorkloadDeployment(Object):
    """One placement of a Workload in one cell. Made by Rota."""

    spec: Annotated[WorkloadDeploymentSpec, doc("Desired state of the placement in the cell.")]
    status: Annotated[WorkloadDeploymentStatus | None, doc("Status of the placement in the cell.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status, "Available")


class RevisionSpec(Model):
    """A former template of a workload."""

    rules = immutable("workloadRef", "number", "templateHash", "template")
    workload_ref: Annotated[Ref, doc("Workload it belongs to. Immutable.")]
    number: Annotated[int, doc("Number of the template, counted from 1. Immutable.", ge=1)]
    template_hash: Annotated[
        str, doc("Hash of the template. Immutable.", min_length=1, max_length=64, pattern=IDENTITY)
    ]
    template: Annotated[WorkloadTemplate, doc("Template of the instances. Immutable.")]


@kind(
    "revisions",
    made=True,
    columns=(
        Column("Workload", ".spec.workloadRef.name"),
        Column("Number", ".spec.number", "integer"),
        Column("Template", ".spec.templateHash", wide=True),
    ),
)
class Revision(Object):
    """A former template of a workload, kept for rollback. Made by Rota."""

    spec: Annotated[RevisionSpec, doc("Former template.")]
    status: Annotated[ObjectStatus | None, doc("Most recently observed status of the revision.")] = None
