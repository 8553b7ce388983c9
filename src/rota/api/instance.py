"""Instance: the unit that runs, and its template, which pools and workloads share."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import field

from rota.api.conflicts import PLACES, PORTS
from rota.api.egress import Network
from rota.api.field_rules import (
    NOT_OF_THE_SYSTEM,
    SYSTEM_PLACE,
    beside_the_system,
    image,
    more_than_nothing,
    place,
    program,
)
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
from rota.api.worker import WorkerRole

CONTAINERS_MAX = 16
ABSOLUTE_PATH = r"^/[^\x00-\x1f\x7f]*$"
IDENTITY = "^[A-Za-z0-9][-_.:A-Za-z0-9]*$"
"""The form of ids and hashes that Rota makes."""
RUNTIMES = Literal["process", "container", "pod"]


class Port(Model):
    """A port that a container listens on."""

    name: Annotated[Label, doc("Name of the port.")]
    port: Annotated[
        int | None,
        doc("Number of the port. Omitted: the runtime picks one and puts it into the environment.", ge=1, le=65535),
    ] = None
    protocol: Annotated[Literal["TCP", "UDP"], doc("Protocol of the port.")] = "TCP"


class ExecAction(Model):
    """A command run inside the instance."""

    rules = (program("command"),)
    command: Annotated[
        Argv, doc("Command and its arguments. It is run without a shell.", min_length=1, max_length=LIST_ITEMS_MAX)
    ]


class HTTPGetAction(Model):
    """An HTTP request to the instance itself."""

    path: Annotated[str, doc("Path to request.", max_length=1024, pattern=r"^/[^\x00-\x20\x7f]*$")] = "/"
    port: Annotated[int, doc("Number of the port to request.", ge=1, le=65535)]


class TCPSocketAction(Model):
    """A TCP connection to the instance itself."""

    port: Annotated[int, doc("Number of the port to connect to.", ge=1, le=65535)]


class Probe(Model):
    """A check of whether a container is ready, or alive. Exactly one action must be set."""

    rules = (exactly_one("exec", "httpGet", "tcpSocket"),)
    exec: Annotated[ExecAction | None, doc("Command that succeeds with exit code 0.")] = None
    http_get: Annotated[HTTPGetAction | None, doc("HTTP request that succeeds with a status from 200 to 399.")] = None
    tcp_socket: Annotated[TCPSocketAction | None, doc("TCP connection that succeeds when it is opened.")] = None
    period_seconds: Annotated[int, doc("Seconds between two probes.", ge=1, le=3600)] = 10
    timeout_seconds: Annotated[int, doc("Seconds after which a probe has failed.", ge=1, le=3600)] = 1
    failure_threshold: Annotated[
        int, doc("Number of failures in a row after which the check has failed.", ge=1, le=100)
    ] = 3
    initial_delay_seconds: Annotated[int, doc("Seconds before the first probe.", ge=0, le=3600)] = 0


class Container(Model):
    """A process or container of an instance."""

    rules = (image("image"), program("command"))
    name: Annotated[Label, doc("Name of the container.")]
    image: Annotated[Text | None, doc("Image of the container. The process runtime needs none.")] = None
    command: Annotated[Argv, doc("Program and its first arguments.", max_length=LIST_ITEMS_MAX)] = []
    args: Annotated[Argv, doc("Further arguments.", max_length=LIST_ITEMS_MAX)] = []
    working_dir: Annotated[Line | None, doc("Working directory.")] = None
    env: Env = []
    ports: Annotated[list[Port], doc("Ports the container listens on.", max_length=64, keys=("name",))] = []
    resources: Annotated[Resources | None, doc("Resource requests and limits of the container.")] = None
    readiness_probe: Annotated[Probe | None, doc("Check of whether the container can be used.")] = None
    liveness_probe: Annotated[
        Probe | None, doc("Check of whether the container is alive. It is restarted when the check fails.")
    ] = None


class Volume(Model):
    """Files made from a Secret or a ConfigMap, updated when it changes."""

    rules = (exactly_one("configMap", "secret"), place("mountPath"))
    name: Annotated[Label, doc("Name of the volume.")]
    config_map: Annotated[Ref | None, doc("ConfigMap whose keys become files.", refers="ConfigMap")] = None
    secret: Annotated[Ref | None, doc("Secret whose keys become files.", refers="Secret")] = None
    mount_path: Annotated[
        str,
        doc("Absolute path of the directory that has the files.", min_length=2, max_length=1024, pattern=ABSOLUTE_PATH),
    ]


class Storage(Model):
    """A directory that survives restarts, and recreation under the same ordinal."""

    rules = (*more_than_nothing("size"), place("path"), beside_the_system("path"))
    size: Annotated[Quantity, doc("Capacity of the directory, such as 10Gi.")]
    path: Annotated[
        str,
        doc(
            "Absolute path of the directory inside the instance.", min_length=2, max_length=1024, pattern=ABSOLUTE_PATH
        ),
    ] = "/workspace"


class Handler(Model):
    """The handler of one version of a function, in an instance of it."""

    function: Annotated[Name, doc("Name of the function.")]
    runtime: Annotated[Literal["python", "command"], doc("Runtime of the function.")]
    entrypoint: Annotated[str | None, doc("Handler, as module:callable.", max_length=253)] = None
    command: Annotated[Argv, doc("Command that answers a call.", max_length=LIST_ITEMS_MAX)] = []
    code: Annotated[
        str | None,
        doc(
            "Digest of the code. Omitted: the code is in the workspace.", max_length=71, pattern="^sha256:[0-9a-f]{64}$"
        ),
    ] = None
    packages: Annotated[
        str | None,
        doc("Hash of the list of required packages.", max_length=64, pattern="^[0-9a-f]{64}$"),
    ] = None
    concurrency: Annotated[int, doc("Number of calls handled at once.", ge=1, le=100)] = 1


class InstanceTemplate(Model):
    """Template of instances: the part of their spec that people write."""

    rules: ClassVar[tuple[Rule, ...]] = (
        # In a container, the image determines the folders of the system.
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
    runtime: Annotated[RUNTIMES | None, doc("Runtime of the instance. Omitted: the server's default.")] = None
    containers: Annotated[
        list[Container], doc("Containers of the instance.", min_length=1, max_length=CONTAINERS_MAX, keys=("name",))
    ]
    volumes: Annotated[list[Volume], doc("Files made from Secrets and ConfigMaps.", max_length=64, keys=("name",))] = []
    instance_type: Annotated[
        Name | None, doc("InstanceType that gives the size of the instance.", refers="InstanceType")
    ] = None
    requests: Annotated[
        Amounts | None, doc("Size of the instance, if neither instanceType nor the limits of its containers give it.")
    ] = None
    storage: Annotated[Storage | None, doc("Directory that survives restarts and recreation.")] = None
    worker: Annotated[
        WorkerRole | None, doc("Runner of tasks in the instance. Omitted: it runs its containers only, and no tasks.")
    ] = None
    workspace_ref: Annotated[Ref | None, doc("Workspace that the instance is prepared with.", refers="Workspace")] = (
        None
    )
    restart_policy: Annotated[
        Literal["Always", "OnFailure", "Never"], doc("Policy for restarting the instance after it has exited.")
    ] = "Always"
    termination_grace_period_seconds: Annotated[
        int, doc("Seconds between the request to stop and the kill.", ge=0, le=86400)
    ] = 30
    isolation: Annotated[
        Containment | None,
        doc(
            "Isolation of the instance. Omitted: sandbox, if the host supports it; an explicit sandbox is never left "
            "out. gvisor: a container with its own kernel, on hosts that have gVisor's runsc."
        ),
    ] = None
    network: Annotated[Network | None, NETWORK] = None
    egress: Targets = []


class FunctionTemplate(InstanceTemplate):
    """Template of the instances of a function."""

    handler: Annotated[Handler | None, doc("Handler of calls. Set by Rota for functions.")] = None


class SchedulingGate(Model):
    """A condition for starting the instance. Only its owner removes it."""

    name: Annotated[
        str,
        doc(
            "Name of the gate, prefixed with its owner's domain.",
            min_length=1,
            max_length=63,
            pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$",
        ),
    ]


class Assignment(Model):
    """Hold on an instance."""

    id: Annotated[str, doc("ID of the hold.", min_length=1, max_length=128, pattern=IDENTITY)]
    kind: Annotated[Literal["Task", "Claim", "Function"], doc("Kind of the holder.")]
    name: Annotated[Name, doc("Name of the holder.")]
    uid: Annotated[str, doc("UID of the holder.", min_length=1, max_length=64, pattern=IDENTITY)]
    since: Annotated[Time, doc("Time at which the hold began.")]
    options: Annotated[JSONObject | None, doc("Changes of the template for this hold only.", atomic=True)] = None


class InstanceSpec(FunctionTemplate):
    """Desired state of an instance."""

    rules = (*InstanceTemplate.rules, *immutable("cellName", "templateHash", "ordinal"))
    cell_name: Annotated[
        Name | None, doc("Cell that runs the instance. Immutable. Omitted: the cell it is written in.")
    ] = None
    scheduling_gates: Annotated[
        list[SchedulingGate],
        doc(
            "Conditions for starting the instance. It is not started while there are any.",
            max_length=16,
            keys=("name",),
        ),
    ] = []
    template_hash: Annotated[
        str, doc("Hash of the template it was made from. Immutable.", min_length=1, max_length=64, pattern=IDENTITY)
    ]
    ordinal: Annotated[int, doc("Number of the instance among its siblings. Immutable.", ge=0, le=1_000_000)]
    assignment: Annotated[Assignment | None, doc("Current hold on the instance. Written by Rota only.")] = None


class LastExit(Model):
    """Last exit of an instance."""

    code: Annotated[int | None, doc("Exit code, unless a signal ended it.")] = None
    signal: Annotated[int | None, doc("Signal that ended it, if one did.")] = None
    reason: Annotated[Text | None, doc("Machine-readable reason.")] = None
    time: Annotated[Time | None, doc("Time of the exit.")] = None


class Address(Model):
    """Address of a port of an instance, as the runtime recorded it."""

    name: Annotated[str, doc("Name of the port.", min_length=1, max_length=63)]
    host: Annotated[Text, doc("Host name or IP address.")]
    port: Annotated[int, doc("Number of the port.", ge=1, le=65535)]


class AssignmentStatus(Model):
    """Progress of the runner with a hold."""

    id: Annotated[str, doc("ID of the hold.", min_length=1, max_length=128)]
    phase: Annotated[Literal["Accepted", "Running", "Done"], doc("Progress of the runner.")]


class InstanceStatus(ObjectStatus):
    """Observed state of an instance."""

    phase: Annotated[
        Literal["Pending", "Starting", "Idle", "Running", "Stopping", "Failed", "Succeeded"] | None,
        doc("Phase of the instance. In a pool, Idle is free and Running is held."),
    ] = None
    observed_template_hash: Annotated[str | None, doc("Hash of the template that runs.", max_length=64)] = None
    granted_requests_hash: Annotated[
        str | None, doc("Hash of the requests that the quota has granted.", max_length=64)
    ] = None
    runtime_id: Annotated[str | None, doc("ID that the runtime gave the instance.", max_length=253)] = field(
        default=None, name="runtimeID"
    )
    start_time: Annotated[Time | None, doc("Time at which the instance was started.")] = None
    restarts: Annotated[int, doc("Number of restarts.", ge=0)] = 0
    last_exit: Annotated[LastExit | None, doc("Last exit of the instance.")] = None
    addresses: Annotated[list[Address], doc("Addresses of its ports.", max_length=1024, keys=("name",))] = []
    assignment: Annotated[AssignmentStatus | None, doc("Progress of the runner with the current hold.")] = None


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
    """A process or container that Rota runs, with an ordinal. Made by Rota."""

    spec: Annotated[InstanceSpec, doc("Desired state of the instance.")]
    status: Annotated[InstanceStatus | None, doc("Observed state of the instance.")] = None

    def readiness(self) -> Readiness:
        if self.status is not None and self.status.phase == "Failed":
            ready = self.status.condition("Ready")
            return Readiness("Failed", ready.reason if ready else "Failed", ready.message if ready else "")
        if self.status is None:
            return by_condition(self.metadata, None)
        # An assignment changes the generation and not the instance: a condition of an earlier generation still counts.
        return by_condition(msgspec.structs.replace(self.metadata, generation=0), self.status)
