"""WorkerPool and Claim: warm instances, and exclusive holds on them.

Workspace and AgentConfig: the files and instructions that workers are prepared with.
"""

from typing import Annotated, Literal

from msgspec import field

from rota.api.conflicts import FILES, HEADERS, IMAGES, MARKS
from rota.api.copies import POOL_COPIES
from rota.api.field_rules import IMAGE, IMAGE_RULE, git_ref, git_url, http_url, more_than_nothing, program
from rota.api.instance import Address, InstanceTemplate
from rota.api.kind import ALL, SCALE_MAX, Column, Scale, kind
from rota.api.meta import Object, ObjectStatus, Readiness, by_condition
from rota.api.model import (
    LINE_PATTERN,
    LIST_ITEMS_MAX,
    Label,
    Model,
    Quantity,
    Ref,
    Rule,
    Text,
    Time,
    Value,
    doc,
    exactly_one,
    immutable,
)
from rota.api.parts import Argv, Env
from rota.api.task import Priority
from rota.api.templates import WORKER_TEMPLATES
from rota.api.worker import WorkerConfig

REPLICAS_MAX = 1000
REPOSITORY = r"^(https|ssh|file)://[^\x00-\x1f\x7f]*$"


class PoolScale(Model):
    """Bounds within which a pool scales by demand."""

    rules = (Rule("self.min <= self.max", "min must not be greater than max", "min"),)
    min: Annotated[int, doc("Minimum number of workers.", ge=0, le=REPLICAS_MAX)]
    max: Annotated[int, doc("Maximum number of workers.", ge=1, le=REPLICAS_MAX)]
    target_idle: Annotated[int, doc("Number of idle workers to keep ahead of demand.", ge=0, le=REPLICAS_MAX)] = 1
    scale_down_seconds: Annotated[
        int, doc("Seconds of lower demand after which workers are stopped.", ge=0, le=86400)
    ] = 300


class PoolStorage(Model):
    """Directory of each ordinal that survives the worker."""

    rules = more_than_nothing("size")
    size: Annotated[Quantity, doc("Capacity of each directory, such as 10Gi.")]


class PoolUpdate(Model):
    """Rollout of a new template."""

    max_unavailable: Annotated[
        int, doc("Maximum number of workers that may be unavailable during the rollout.", ge=1, le=REPLICAS_MAX)
    ] = 1
    drain_seconds: Annotated[
        int, doc("Seconds a busy worker may take to finish before it is replaced.", ge=0, le=604_800)
    ] = 3600


class PoolQueue(Model):
    """Bounds on waiting Claims. Tasks wait as long as they must."""

    limit: Annotated[int, doc("Maximum number of waiting Claims. Further ones fail.", ge=0, le=1_000_000)] = 8192
    default_wait_seconds: Annotated[
        int, doc("Seconds a Claim waits, unless its waitSeconds says otherwise.", ge=0, le=86400)
    ] = 120


class WorkerPoolSpec(Model):
    """Desired state of a pool."""

    rules = (
        exactly_one("worker", "template"),
        Rule("!(has(self.replicas) && has(self.scale))", "replicas and scale exclude each other"),
        Rule(
            "!(has(self.storage) && has(self.template) && has(self.template.storage))",
            "storage and template.storage are the same; set one of them",
            "storage",
        ),
    )
    checks = (WORKER_TEMPLATES, POOL_COPIES)
    worker: Annotated[WorkerConfig | None, doc("Configuration of each worker.")] = None
    template: Annotated[
        InstanceTemplate | None,
        doc("Template of each instance. Without a worker in it, instances can be claimed but run no Tasks."),
    ] = None
    replicas: Annotated[int | None, doc("Number of instances. Omitted: 1.", ge=0, le=REPLICAS_MAX)] = None
    scale: Annotated[PoolScale | None, doc("Bounds for scaling by demand.")] = None
    storage: Annotated[PoolStorage | None, doc("Directory of each ordinal that survives the worker.")] = None
    reset: Annotated[
        Literal["Keep", "Clean", "Recreate"],
        doc("Reset of an instance between two holders: keep its files, clean it, or recreate it."),
    ] = "Clean"
    update: Annotated[PoolUpdate, doc("Rollout of a new template.")] = field(default_factory=PoolUpdate)
    queue: Annotated[PoolQueue, doc("Bounds on waiting Claims.")] = field(default_factory=PoolQueue)


class WorkerPoolStatus(ObjectStatus):
    """Status of a pool."""

    phase: Annotated[Literal["Pending", "Scaling", "Ready", "Degraded"] | None, doc("Phase of the pool.")] = None
    replicas: Annotated[int, doc("Number of instances.", ge=0, le=SCALE_MAX)] = 0
    ready_replicas: Annotated[int, doc("Number of ready instances.", ge=0)] = 0
    idle: Annotated[int, doc("Number of instances that are ready and not held.", ge=0)] = 0
    busy: Annotated[int, doc("Number of held instances.", ge=0)] = 0
    waiting: Annotated[int, doc("Number of Tasks and Claims that wait for an instance.", ge=0)] = 0
    updated_replicas: Annotated[int, doc("Number of instances of the newest template.", ge=0)] = 0
    tasks_completed: Annotated[int, doc("Number of tasks completed.", ge=0)] = 0
    selector: Annotated[Text | None, doc("Label selector of its instances.")] = None


@kind(
    "workerpools",
    categories=(ALL,),
    short=("wp",),
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Ready", ".status.readyReplicas", "integer"),
        Column("Idle", ".status.idle", "integer"),
        Column("Busy", ".status.busy", "integer"),
        Column("Waiting", ".status.waiting", "integer"),
        Column("Replicas", ".status.replicas", "integer", wide=True),
        Column("Updated", ".status.updatedReplicas", "integer", wide=True),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
    ),
)
class WorkerPool(Object):
    """Warm workers of one template, and the queue for them."""

    spec: Annotated[WorkerPoolSpec, doc("Desired state of the pool.")]
    status: Annotated[WorkerPoolStatus | None, doc("Status of the pool.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)


class ClaimSpec(Model):
    """Request for an instance of a pool."""

    rules = (
        *immutable("poolRef", "holder"),
        Rule("self.release || !oldSelf.release", "a released claim cannot be held again", "release"),
        Rule(
            f"!has(self.images) || self.images.all(name, self.images[name].matches(r'{IMAGE}'))",
            f"each of images {IMAGE_RULE}",
            "images",
        ),
    )
    checks = (MARKS, IMAGES)
    pool_ref: Annotated[Ref, doc("Pool of the instance. Immutable.", refers="WorkerPool", needs="existence")]
    holder: Annotated[
        str | None,
        doc(
            "Account that the claim counts for, for fair shares. Immutable.",
            min_length=1,
            max_length=253,
            pattern=LINE_PATTERN,
        ),
    ] = None
    priority: Priority = 0
    wait_seconds: Annotated[
        int | None,
        doc("Seconds the claim waits for an instance before it fails. Omitted: the pool's default.", ge=0, le=86400),
    ] = None
    lease_seconds: Annotated[int, doc("Seconds after the last renewal at which the hold ends.", ge=1, le=604_800)] = (
        3600
    )
    renew_time: Annotated[Time | None, doc("Time at which the holder last renewed the claim.")] = None
    release: Annotated[bool, doc("If true, the instance is given back. It cannot be set back to false.")] = False
    images: Annotated[dict[str, Text], doc("Images by container, for this hold only.", max_length=16)] = {}
    env: Env = []
    labels: Annotated[dict[str, Text], doc("Labels of the instance, for this hold only.", max_length=64)] = {}
    annotations: Annotated[dict[str, Text], doc("Annotations of the instance, for this hold only.", max_length=64)] = {}


class ClaimStatus(ObjectStatus):
    """Status of a claim."""

    phase: Annotated[
        Literal["Waiting", "Bound", "Released", "Expired", "Failed"] | None, doc("Phase of the claim.")
    ] = None
    arrival: Annotated[
        Time | None, doc("Time at which the claim was queued. It determines its place in the queue.")
    ] = None
    instance_name: Annotated[Text | None, doc("Name of the instance it holds.")] = None
    addresses: Annotated[list[Address], doc("Addresses of the instance.", max_length=1024, keys=("name",))] = []
    bound_time: Annotated[Time | None, doc("Time at which the instance was bound.")] = None
    expires_at: Annotated[Time | None, doc("Time at which the hold ends unless it is renewed.")] = None
    end_time: Annotated[Time | None, doc("Time at which the claim ended.")] = None
    reason: Annotated[Text | None, doc("Machine-readable reason for the phase.")] = None
    message: Annotated[Value | None, doc("Human-readable message about the phase.")] = None


@kind(
    "claims",
    categories=(ALL,),
    columns=(
        Column("Pool", ".spec.poolRef.name"),
        Column("Phase", ".status.phase"),
        Column("Instance", ".status.instanceName"),
        Column("Holder", ".spec.holder"),
        Column("Expires", ".status.expiresAt", "date"),
    ),
    selectable=(".spec.poolRef.name", ".status.phase"),
)
class Claim(Object):
    """An exclusive, leased hold on one idle instance of a pool. Its name is the idempotency id."""

    spec: Annotated[ClaimSpec, doc("Request for an instance.")]
    status: Annotated[ClaimStatus | None, doc("Status of the claim.")] = None

    def readiness(self) -> Readiness:
        if self.status is None or self.status.phase in (None, "Waiting"):
            said = self.status.message if self.status is not None else None
            return Readiness("Pending", "Waiting", said or "it waits for an idle instance")
        reason, message = self.status.reason or self.status.phase or "", self.status.message or ""
        if self.status.phase == "Bound":
            return Readiness("Ready", reason, message)
        return Readiness("Failed" if self.status.phase == "Failed" else "Skipped", reason, message)

    def over(self) -> bool:
        return self.status is not None and self.status.phase in ("Released", "Expired", "Failed")


class Remote(Model):
    """An additional git remote."""

    rules = (
        git_url("url"),
        git_ref("name"),
        Rule("self.name != 'origin'", "origin is the repository itself; choose another name", "name"),
    )
    name: Annotated[
        str, doc("Name of the remote.", min_length=1, max_length=63, pattern=r"^[A-Za-z0-9_][-A-Za-z0-9_.]*$")
    ]
    url: Annotated[str, doc("URL of the remote.", min_length=1, max_length=1024, pattern=REPOSITORY)]


class WorkspaceFile(Model):
    """A file to write into a workspace."""

    rules = (
        Rule("!self.path.matches('(^|/)[.][.](/|$)')", "path must not leave the workspace", "path"),
        Rule("!self.path.matches('(^|/)[.][gG][iI][tT](/|$)')", "path must not be inside .git", "path"),
        Rule(
            "!self.path.matches('(^|/)[.]?(/|$)')", "path must be of names: no '.', no '//', no '/' at its end", "path"
        ),
    )
    path: Annotated[
        str,
        doc(
            "Path relative to the workspace.",
            min_length=1,
            max_length=1024,
            pattern=r"^[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]*$",
        ),
    ]
    content: Annotated[Value, doc("Content of the file.")]
    mode: Annotated[str | None, doc("Mode of the file, in octal.", max_length=4, pattern=r"^0?[0-7]{3}$")] = None


class WorkspaceSpec(Model):
    """A git repository, files and a setup command."""

    rules = (git_url("repo"), git_ref("ref"), program("setup"))
    checks = (FILES,)
    repo: Annotated[
        str, doc("URL of the repository: https, ssh or file.", min_length=1, max_length=1024, pattern=REPOSITORY)
    ]
    ref: Annotated[
        str | None,
        doc("Branch, tag or commit. Omitted: the default branch.", min_length=1, max_length=253, pattern="^[^-]"),
    ] = None
    depth: Annotated[int | None, doc("Number of commits of history to fetch. Omitted: all.", ge=1, le=1_000_000)] = None
    secret_ref: Annotated[Ref | None, doc("Secret to authenticate with.", refers="Secret")] = None
    remotes: Annotated[list[Remote], doc("Additional git remotes.", max_length=16, keys=("name",))] = []
    files: Annotated[
        list[WorkspaceFile], doc("Files to write into the workspace.", max_length=LIST_ITEMS_MAX, keys=("path",))
    ] = []
    setup: Annotated[Argv, doc("Command to run once the files are written.", max_length=LIST_ITEMS_MAX)] = []


@kind("workspaces", short=("ws",), columns=(Column("Repo", ".spec.repo"), Column("Ref", ".spec.ref")))
class Workspace(Object):
    """A git repository at a ref, files and a setup command that a worker is prepared with."""

    spec: Annotated[WorkspaceSpec, doc("Content of the workspace.")]
    status: Annotated[ObjectStatus | None, doc("Most recently observed status of the workspace.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)


class MCPServer(Model):
    """An MCP server that an agent may use."""

    rules = (
        Rule("self.type == 'stdio' ? has(self.command) && !has(self.url) : has(self.url) && !has(self.command)",
             "a stdio server needs a command, any other a url"),
        Rule("self.type != 'stdio' || !has(self.headers)", "a stdio server has no headers", "headers"),
        http_url("url"),
        program("command"),
    )  # fmt: skip
    checks = (HEADERS,)
    name: Annotated[
        str,
        doc("Name of the server.", min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$"),
    ]
    type: Annotated[Literal["stdio", "http", "sse"], doc("Transport of the server.")]
    url: Annotated[
        str | None,
        doc("URL of an http or sse server.", min_length=1, max_length=1024, pattern=r"^https?://[^\x00-\x1f\x7f]*$"),
    ] = None
    command: Annotated[Argv, doc("Command that starts a stdio server.", min_length=1, max_length=LIST_ITEMS_MAX)] = []
    headers: Annotated[dict[str, Text], doc("Headers of each request to an http or sse server.", max_length=32)] = {}
    secret_ref: Annotated[
        Ref | None, doc("Secret whose keys become headers or environment variables.", refers="Secret")
    ] = None


class Skill(Model):
    """A text that an agent can read on demand."""

    name: Annotated[Label, doc("Name of the skill.")]
    content: Annotated[Value, doc("Text of the skill.")]


class AgentConfigSpec(Model):
    """Instructions, MCP servers and skills."""

    instructions: Annotated[
        Value | None, doc("Instructions for the agent, put into its own file for them, such as CLAUDE.md.")
    ] = None
    mcp_servers: Annotated[list[MCPServer], doc("MCP servers the agent may use.", max_length=32, keys=("name",))] = []
    skills: Annotated[list[Skill], doc("Skills the agent can read on demand.", max_length=64, keys=("name",))] = []


@kind("agentconfigs")
class AgentConfig(Object):
    """Instructions, MCP servers and skills for the agents of workers."""

    spec: Annotated[AgentConfigSpec, doc("Instructions, MCP servers and skills.")]
    status: Annotated[ObjectStatus | None, doc("Most recently observed status of the object.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)
