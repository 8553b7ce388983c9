"""Instance: the one unit that runs, and the parts of its template that pools and workloads share."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import field

from rota.api.egress import Network
from rota.api.kind import ALL, Column, kind
from rota.api.meta import Object, ObjectStatus, Readiness, by_condition
from rota.api.model import (
    LIST_ITEMS_MAX,
    JSONObject,
    Label,
    Line,
    Model,
    Name,
    Quantity,
    Ref,
    Rule,
    Text,
    Time,
    doc,
    exactly_one,
    immutable,
)
from rota.api.parts import EGRESS, NETWORK, Amounts, Argv, Containment, Env, Resources, Targets
from rota.api.sharing import PLACES, PORTS
from rota.api.texts import (
    NOT_OF_THE_SYSTEM,
    SYSTEM_PLACE,
    beside_the_system,
    image,
    more_than_nothing,
    place,
    program,
)
from rota.api.worker import WorkerRole

CONTAINERS_MAX = 16
ABSOLUTE_PATH = r"^/[^\x00-\x1f\x7f]*$"
IDENTITY = "^[A-Za-z0-9][-_.:A-Za-z0-9]*$"
"""Of a hold, an object or a template, as Rota makes them."""
RUNTIMES = Literal["process", "container", "pod"]


class Port(Model):
    """A port that a container listens on."""

    name: Annotated[Label, doc("The port's name.")]
    port: Annotated[
        int | None, doc("The number. Omitted: the runtime picks one and puts it into the environment.", ge=1, le=65535)
    ] = None
    protocol: Annotated[Literal["TCP", "UDP"], doc("The protocol.")] = "TCP"


class ExecAction(Model):
    """A command run inside the instance."""

    rules = (program("command"),)
    command: Annotated[Argv, doc("The command and its arguments.", min_length=1, max_length=LIST_ITEMS_MAX)]


class HTTPGetAction(Model):
    """An HTTP request to the instance itself."""

    path: Annotated[str, doc("The path.", max_length=1024, pattern=r"^/[^\x00-\x20\x7f]*$")] = "/"
    port: Annotated[int, doc("The port.", ge=1, le=65535)]


class TCPSocketAction(Model):
    """A connection to the instance itself."""

    port: Annotated[int, doc("The port.", ge=1, le=65535)]


class Probe(Model):
    """How a runtime finds out that a container is ready, or alive."""

    rules = (exactly_one("exec", "httpGet", "tcpSocket"),)
    exec: Annotated[ExecAction | None, doc("Passes when the command exits with 0.")] = None
    http_get: Annotated[HTTPGetAction | None, doc("Passes on a status from 200 to 399.")] = None
    tcp_socket: Annotated[TCPSocketAction | None, doc("Passes when the connection opens.")] = None
    period_seconds: Annotated[int, doc("Seconds between two probes.", ge=1, le=3600)] = 10
    timeout_seconds: Annotated[int, doc("Seconds a probe may take.", ge=1, le=3600)] = 1
    failure_threshold: Annotated[int, doc("Failures in a row that count.", ge=1, le=100)] = 3
    initial_delay_seconds: Annotated[int, doc("Seconds before the first probe.", ge=0, le=3600)] = 0


class Container(Model):
    """One process, or one container, of an instance."""

    rules = (image("image"), program("command"))
    name: Annotated[Label, doc("The container's name.")]
    image: Annotated[Text | None, doc("The image. The process runtime needs none.")] = None
    command: Annotated[Argv, doc("The program and its first arguments.", max_length=LIST_ITEMS_MAX)] = []
    args: Annotated[Argv, doc("Further arguments.", max_length=LIST_ITEMS_MAX)] = []
    working_dir: Annotated[Line | None, doc("The directory it starts in.")] = None
    env: Env = []
    ports: Annotated[list[Port], doc("The ports it listens on.", max_length=64, keys=("name",))] = []
    resources: Annotated[Resources | None, doc("What it is promised and may use.")] = None
    readiness_probe: Annotated[Probe | None, doc("Tells when it can be used.")] = None
    liveness_probe: Annotated[Probe | None, doc("Tells when it must be restarted.")] = None


class Volume(Model):
    """Files made from a Secret or a ConfigMap, updated when it changes."""

    rules = (exactly_one("configMap", "secret"), place("mountPath"))
    name: Annotated[Label, doc("The volume's name.")]
    config_map: Annotated[Ref | None, doc("The ConfigMap whose keys become files.", refers="ConfigMap")] = None
    secret: Annotated[Ref | None, doc("The Secret whose keys become files.", refers="Secret")] = None
    mount_path: Annotated[
        str, doc("The directory they appear in.", min_length=2, max_length=1024, pattern=ABSOLUTE_PATH)
    ]


class Storage(Model):
    """A directory that survives restarts, and recreation under the same ordinal."""

    rules = (*more_than_nothing("size"), place("path"), beside_the_system("path"))
    size: Annotated[Quantity, doc("How much it may hold.")]
    path: Annotated[str, doc("Where the instance sees it.", min_length=2, max_length=1024, pattern=ABSOLUTE_PATH)] = (
        "/workspace"
    )


class Handler(Model):
    """What answers calls in an instance of a function, of one version of its code."""

    function: Annotated[Name, doc("The function.")]
    runtime: Annotated[Literal["python", "command"], doc("What runs it.")]
    entrypoint: Annotated[str | None, doc("The handler, as module:callable.", max_length=253)] = None
    command: Annotated[Argv, doc("The command that answers a call.", max_length=LIST_ITEMS_MAX)] = []
    code: Annotated[
        str | None,
        doc("The digest of the code. Omitted: it is in the workspace.", max_length=71, pattern="^sha256:[0-9a-f]{64}$"),
    ] = None
    packages: Annotated[
        str | None,
        doc("The packages that it requires, by the hash of their list.", max_length=64, pattern="^[0-9a-f]{64}$"),
    ] = None
    concurrency: Annotated[int, doc("Calls that it takes at once.", ge=1, le=100)] = 1


class InstanceTemplate(Model):
    """What an instance runs: the part of its spec that people write."""

    rules: ClassVar[tuple[Rule, ...]] = (
        # In a container it is the image that says what is where.
        Rule(
            "!has(self.volumes) || (has(self.runtime) ? self.runtime != 'process' : self.containers.exists(one,"
            f" has(one.image))) || !self.volumes.exists(one, one.mountPath.matches('{SYSTEM_PLACE}'))",
            f"mountPath {NOT_OF_THE_SYSTEM}",
            "volumes",
        ),
        Rule(
            "!has(self.isolation) || self.isolation != 'gvisor' || (has(self.runtime) && self.runtime == 'container')",
            "gvisor keeps containers apart: it takes runtime container",
            "isolation",
        ),
        EGRESS,
    )
    checks = (PORTS, PLACES)
    runtime: Annotated[RUNTIMES | None, doc("How it is made real. Omitted: the server's default.")] = None
    containers: Annotated[list[Container], doc("What runs.", min_length=1, max_length=CONTAINERS_MAX, keys=("name",))]
    volumes: Annotated[list[Volume], doc("Files from Secrets and ConfigMaps.", max_length=64, keys=("name",))] = []
    instance_type: Annotated[Name | None, doc("A named size.", refers="InstanceType")] = None
    requests: Annotated[Amounts | None, doc("Its size, where no instance type or container limits say it.")] = None
    storage: Annotated[Storage | None, doc("A directory that survives recreation.")] = None
    worker: Annotated[WorkerRole | None, doc("What runs tasks in it. Omitted: its containers run, and no tasks.")] = (
        None
    )
    workspace_ref: Annotated[Ref | None, doc("The workspace it is prepared with.", refers="Workspace")] = None
    restart_policy: Annotated[Literal["Always", "OnFailure", "Never"], doc("When to start it again.")] = "Always"
    termination_grace_period_seconds: Annotated[
        int, doc("Seconds between the request to stop and the kill.", ge=0, le=86400)
    ] = 30
    isolation: Annotated[
        Containment | None,
        doc(
            "Sandboxed or not. Omitted: as the host can; an explicit sandbox fails closed. gvisor: a container with a "
            "kernel of its own, where the host has gVisor's runsc, or not at all."
        ),
    ] = None
    network: Annotated[Network | None, NETWORK] = None
    egress: Targets = []


class FunctionTemplate(InstanceTemplate):
    """What an instance of a function runs."""

    handler: Annotated[Handler | None, doc("What answers calls in it. Made by Rota, for functions.")] = None


class SchedulingGate(Model):
    """Something that must happen before the runtime does anything. Its owner alone removes it."""

    name: Annotated[
        str,
        doc(
            "The gate's name, with a prefix of whoever removes it.",
            min_length=1,
            max_length=63,
            pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$",
        ),
    ]


class Assignment(Model):
    """Who holds an instance, and for what."""

    id: Annotated[str, doc("This hold's identity.", min_length=1, max_length=128, pattern=IDENTITY)]
    kind: Annotated[Literal["Task", "Claim", "Function"], doc("What holds it.")]
    name: Annotated[Name, doc("The holder's name.")]
    uid: Annotated[str, doc("The holder's uid.", min_length=1, max_length=64, pattern=IDENTITY)]
    since: Annotated[Time, doc("Since when.")]
    options: Annotated[JSONObject | None, doc("What this hold alone changes; gone with it.", atomic=True)] = None


class InstanceSpec(FunctionTemplate):
    """One running thing with an ordinal."""

    rules = (*InstanceTemplate.rules, *immutable("cellName", "templateHash", "ordinal"))
    cell_name: Annotated[
        Name | None, doc("The cell that runs it; immutable. Omitted: the one that it is written in.")
    ] = None
    scheduling_gates: Annotated[
        list[SchedulingGate], doc("What must happen first.", max_length=16, keys=("name",))
    ] = []
    template_hash: Annotated[
        str, doc("The template it was made from; immutable.", min_length=1, max_length=64, pattern=IDENTITY)
    ]
    ordinal: Annotated[int, doc("Its number among its siblings; immutable.", ge=0, le=1_000_000)]
    assignment: Annotated[Assignment | None, doc("Who holds it. Written by the pool's leader only.")] = None


class LastExit(Model):
    """How the last run ended."""

    code: Annotated[int | None, doc("The exit code.")] = None
    signal: Annotated[int | None, doc("The signal that ended it.")] = None
    reason: Annotated[Text | None, doc("Why, as one word.")] = None
    time: Annotated[Time | None, doc("When.")] = None


class Address(Model):
    """Where one of its ports can be reached, as the runtime recorded it."""

    name: Annotated[str, doc("The port's name.", min_length=1, max_length=63)]
    host: Annotated[Text, doc("The host.")]
    port: Annotated[int, doc("The port's number.", ge=1, le=65535)]


class AssignmentStatus(Model):
    """How far the runner is with the assignment."""

    id: Annotated[str, doc("Which hold this speaks of.", min_length=1, max_length=128)]
    phase: Annotated[Literal["Accepted", "Running", "Done"], doc("How far it is.")]


class InstanceStatus(ObjectStatus):
    """What is really there."""

    phase: Annotated[
        Literal["Pending", "Starting", "Idle", "Running", "Stopping", "Failed", "Succeeded"] | None,
        doc("Where it is in its life. Idle and Running: free or held, for pooled ones."),
    ] = None
    observed_template_hash: Annotated[str | None, doc("The template that really runs.", max_length=64)] = None
    granted_requests_hash: Annotated[str | None, doc("The size that its quota grant is for.", max_length=64)] = None
    runtime_id: Annotated[str | None, doc("The runtime's own name for it.", max_length=253)] = field(
        default=None, name="runtimeID"
    )
    start_time: Annotated[Time | None, doc("When it was started.")] = None
    restarts: Annotated[int, doc("How often it was started again.", ge=0)] = 0
    last_exit: Annotated[LastExit | None, doc("How the last run ended.")] = None
    addresses: Annotated[list[Address], doc("Where its ports can be reached.", max_length=1024, keys=("name",))] = []
    assignment: Annotated[AssignmentStatus | None, doc("How far the runner is with the assignment.")] = None


@kind(
    "instances",
    categories=(ALL,),
    short=("inst",),
    made=True,
    columns=(
        Column("Phase", ".status.phase"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Restarts", ".status.restarts", "integer"),
        Column("Holder", ".spec.assignment.name"),
        Column("Cell", ".spec.cellName", wide=True),
        Column("Ordinal", ".spec.ordinal", "integer", wide=True),
        Column("Template", ".status.observedTemplateHash", wide=True),
    ),
    selectable=(".spec.cellName", ".status.phase"),
)
class Instance(Object):
    """One running thing with an ordinal, made by Rota."""

    spec: Annotated[InstanceSpec, doc("What should run.")]
    status: Annotated[InstanceStatus | None, doc("What is really there.")] = None

    def readiness(self) -> Readiness:
        if self.status is not None and self.status.phase == "Failed":
            ready = self.status.condition("Ready")
            return Readiness("Failed", ready.reason if ready else "Failed", ready.message if ready else "")
        if self.status is None:
            return by_condition(self.metadata, None)
        # Who has it changes its generation, and nothing of what it is.
        return by_condition(msgspec.structs.replace(self.metadata, generation=0), self.status)
