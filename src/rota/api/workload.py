"""Workload and WorkloadDeployment: a template, and the cities it runs in."""

from typing import Annotated, Literal

from msgspec import field

from rota.api.copies import REPLICAS_MAX, WORKLOAD_COPIES
from rota.api.instance import IDENTITY, InstanceTemplate
from rota.api.kind import ALL, SCALE_MAX, Column, Scale, kind
from rota.api.meta import Object, ObjectStatus, Readiness, by_condition
from rota.api.model import CityCode, Model, Name, Ref, Rule, Text, Time, doc, immutable
from rota.api.sharing import CITIES, MARKS, RESTARTS

PLACEMENTS_MAX = 32
CITIES_MAX = 64
CELLS_MAX = 1024
LEASE_SECONDS = 60
REBALANCE = "rota.dev/rebalance"
"""The annotation of a workload whose instances are to be divided evenly. It is taken away when they are."""

OnCellLost = Literal["Keep", "Move"]


class TemplateMeta(Model):
    """Labels and annotations of the instances."""

    checks = (MARKS,)
    labels: Annotated[dict[str, Text], doc("Their labels.", max_length=64)] = {}
    annotations: Annotated[dict[str, Text], doc("Their annotations.", max_length=64)] = {}


class WorkloadTemplate(Model):
    """What each instance is."""

    metadata: Annotated[TemplateMeta | None, doc("Labels and annotations of the instances.")] = None
    spec: Annotated[InstanceTemplate, doc("What each instance runs.")]


class ScaleMetric(Model):
    """What a placement scales by."""

    cpu_percent: Annotated[
        int,
        doc("Average use of the CPUs that the instances ask for; of one that asks for none, of one CPU.", ge=1, le=100),
    ]


class PlacementScale(Model):
    """How many instances in each city."""

    rules = (
        Rule("!has(self.max) || self.max >= self.min", "max must not be less than min", "max"),
        Rule("has(self.metric) == has(self.max)", "max and metric need each other"),
    )
    min: Annotated[int, doc("Instances at least.", ge=1, le=REPLICAS_MAX)] = 1
    max: Annotated[int | None, doc("Instances at most.", ge=1, le=REPLICAS_MAX)] = None
    metric: Annotated[ScaleMetric | None, doc("What to scale by.")] = None


class Placement(Model):
    """Some cities, and how many instances in each."""

    checks = (RESTARTS,)
    name: Annotated[
        str, doc("The placement's name.", min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    ]
    city_codes: Annotated[
        list[CityCode],
        doc("The cities, by their Locations.", min_length=1, max_length=CITIES_MAX, unique=True),
    ]
    scale: Annotated[PlacementScale, doc("How many in each city.")] = field(default_factory=PlacementScale)
    on_cell_lost: Annotated[OnCellLost, doc("What happens when a cell is out of reach.")] = "Keep"
    lease_seconds: Annotated[int, doc("Seconds without contact after which Move moves.", ge=5, le=86400)] = (
        LEASE_SECONDS
    )
    restarted_at: Annotated[
        dict[str, Time], doc("When each city was last asked to restart.", max_length=CITIES_MAX)
    ] = {}


MOVES = "self.placements.exists(one, has(one.onCellLost) && one.onCellLost == 'Move')"


class WorkloadSpec(Model):
    """A template and its placements."""

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
    template: Annotated[WorkloadTemplate, doc("What each instance is.")]
    placements: Annotated[
        list[Placement], doc("Where, and how many.", min_length=1, max_length=PLACEMENTS_MAX, keys=("name",))
    ]
    revision_history_limit: Annotated[int, doc("Old templates kept to go back to.", ge=0, le=100)] = 10


There = Annotated[int, doc("Instances there are.", ge=0, le=SCALE_MAX)]
Current = Annotated[int, doc("Of the newest template, and programmed.", ge=0)]
Updated = Annotated[int, doc("Of the newest template.", ge=0)]
Desired = Annotated[int, doc("Instances there should be.", ge=0)]
Usable = Annotated[int, doc("Instances that are ready.", ge=0)]


class PlacedInCell(Model):
    """How many instances of a placement one cell has."""

    name: Annotated[Name, doc("The cell.")]
    replicas: Annotated[int, doc("Instances placed there.", ge=0)] = 0
    ready: Annotated[int, doc("Of these, those that are ready.", ge=0)] = 0


class PlacedInCity(Model):
    """Where the instances of a placement are in one city."""

    city_code: Annotated[CityCode, doc("The city.")]
    cells: Annotated[list[PlacedInCell], doc("Its cells that have some.", max_length=CELLS_MAX, keys=("name",))] = []


class PlacementStatus(Model):
    """How one placement is."""

    name: Annotated[Name, doc("The placement.")]
    replicas: There = 0
    current_replicas: Current = 0
    updated_replicas: Updated = 0
    desired_replicas: Desired = 0
    ready_replicas: Usable = 0
    available: Annotated[Literal["True", "False", "Unknown"] | None, doc("Whether it serves.")] = None
    reason: Annotated[Text | None, doc("Why not, as one word.")] = None
    message: Annotated[Text | None, doc("Why not, in a sentence.")] = None
    unplaced: Annotated[int, doc("Instances that no cell has room for.", ge=0)] = 0
    cities: Annotated[list[PlacedInCity], doc("Where they are.", max_length=CITIES_MAX, keys=("cityCode",))] = []


class CountedStatus(ObjectStatus):
    """How many instances there are."""

    replicas: There = 0
    current_replicas: Current = 0
    updated_replicas: Updated = 0
    desired_replicas: Desired = 0
    ready_replicas: Usable = 0


class WorkloadStatus(CountedStatus):
    """How the workload is, everywhere."""

    deployments: Annotated[int, doc("Placements times cells.", ge=0)] = 0
    cities: Annotated[Text | None, doc("The cities it runs in, for people.")] = None
    ready: Annotated[Text | None, doc("Ready of desired, for people.")] = None
    placements: Annotated[
        list[PlacementStatus], doc("How each placement is.", max_length=PLACEMENTS_MAX, keys=("name",))
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
    """A template and its placements: which cities, how many."""

    spec: Annotated[WorkloadSpec, doc("What runs where.")]
    status: Annotated[WorkloadStatus | None, doc("How it is, everywhere.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status, "Available")


class WorkloadDeploymentSpec(Model):
    """One placement in one cell."""

    rules = immutable("workloadRef", "placementName", "cityCode", "cellName")
    workload_ref: Annotated[Ref, doc("The workload; immutable.")]
    placement_name: Annotated[Name, doc("Its placement; immutable.")]
    city_code: Annotated[CityCode, doc("The city; immutable.")]
    cell_name: Annotated[Name, doc("The cell; immutable.")]
    replicas: Annotated[int, doc("How many instances.", ge=0, le=REPLICAS_MAX)]
    template: Annotated[WorkloadTemplate, doc("What each instance is.")]
    on_cell_lost: Annotated[OnCellLost, doc("What happens when the cell is out of reach.")] = "Keep"
    lease_seconds: Annotated[int, doc("Seconds without contact after which Move moves.", ge=5, le=86400)] = (
        LEASE_SECONDS
    )
    term: Annotated[int, doc("How often its instances were moved to another cell.", ge=0)] = 0
    metric: Annotated[ScaleMetric | None, doc("What the placement scales by. Omitted: nothing is measured.")] = None


class WorkloadDeploymentStatus(CountedStatus):
    """How one placement in one cell is."""

    selector: Annotated[Text | None, doc("Selects its instances, by label.")] = None
    template_hash: Annotated[str | None, doc("The newest template.", max_length=64)] = None
    cpu_percent: Annotated[int | None, doc("Average use of its instances' CPUs. Omitted: not known.", ge=0)] = None


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
    """One placement in one cell, made by Rota."""

    spec: Annotated[WorkloadDeploymentSpec, doc("What runs in the cell.")]
    status: Annotated[WorkloadDeploymentStatus | None, doc("How it is there.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status, "Available")


class RevisionSpec(Model):
    """A template that a workload had."""

    rules = immutable("workloadRef", "number", "templateHash", "template")
    workload_ref: Annotated[Ref, doc("The workload; immutable.")]
    number: Annotated[int, doc("Counts the workload's templates from 1; immutable.", ge=1)]
    template_hash: Annotated[
        str, doc("Tells templates apart; immutable.", min_length=1, max_length=64, pattern=IDENTITY)
    ]
    template: Annotated[WorkloadTemplate, doc("What each instance was; immutable.")]


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
    """A template that a workload had, to go back to. Made by Rota."""

    spec: Annotated[RevisionSpec, doc("The template.")]
    status: Annotated[ObjectStatus | None, doc("What was observed of it.")] = None
