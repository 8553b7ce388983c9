"""WorkerPool and Claim: warm instances, and exclusive holds on them.

Workspace and AgentConfig: what workers are prepared with.
"""

from typing import Annotated, Literal

from msgspec import field

from rota.api.copies import POOL_COPIES
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
from rota.api.sharing import FILES, HEADERS, IMAGES, MARKS
from rota.api.task import Priority
from rota.api.templates import WORKER_TEMPLATES
from rota.api.texts import IMAGE, IMAGE_RULE, git_ref, git_url, http_url, more_than_nothing, program
from rota.api.worker import WorkerConfig

REPLICAS_MAX = 1000
REPOSITORY = r"^(https|ssh|file)://[^\x00-\x1f\x7f]*$"


class PoolScale(Model):
    """The bounds within which a pool scales by demand."""

    rules = (Rule("self.min <= self.max", "min must not be greater than max", "min"),)
    min: Annotated[int, doc("Workers at least.", ge=0, le=REPLICAS_MAX)]
    max: Annotated[int, doc("Workers at most.", ge=1, le=REPLICAS_MAX)]
    target_idle: Annotated[int, doc("Idle workers to keep ahead of demand.", ge=0, le=REPLICAS_MAX)] = 1
    scale_down_seconds: Annotated[int, doc("Seconds a worker is idle before it goes.", ge=0, le=86400)] = 300


class PoolStorage(Model):
    """A directory per ordinal that survives the worker."""

    rules = more_than_nothing("size")
    size: Annotated[Quantity, doc("How much each may hold.")]


class PoolUpdate(Model):
    """How a pool changes over to a new template."""

    max_unavailable: Annotated[int, doc("Workers that may be missing at once.", ge=1, le=REPLICAS_MAX)] = 1
    drain_seconds: Annotated[int, doc("Seconds a busy worker may take to finish first.", ge=0, le=604_800)] = 3600


class PoolQueue(Model):
    """Bounds on waiting Claims. Tasks wait as long as they must."""

    limit: Annotated[int, doc("Claims that may wait at once.", ge=0, le=1_000_000)] = 8192
    default_wait_seconds: Annotated[int, doc("Seconds a Claim waits unless it says otherwise.", ge=0, le=86400)] = 120


class WorkerPoolSpec(Model):
    """N warm workers."""

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
    worker: Annotated[WorkerConfig | None, doc("What each worker is.")] = None
    template: Annotated[
        InstanceTemplate | None, doc("What each instance is. Without a runner it can be claimed, but runs no Tasks.")
    ] = None
    replicas: Annotated[int | None, doc("How many. Omitted: 1.", ge=0, le=REPLICAS_MAX)] = None
    scale: Annotated[PoolScale | None, doc("Scale by demand, within bounds.")] = None
    storage: Annotated[PoolStorage | None, doc("A directory per ordinal that survives the worker.")] = None
    reset: Annotated[Literal["Keep", "Clean", "Recreate"], doc("What happens between two holders.")] = "Clean"
    update: Annotated[PoolUpdate, doc("How it changes over to a new template.")] = field(default_factory=PoolUpdate)
    queue: Annotated[PoolQueue, doc("Bounds on waiting Claims.")] = field(default_factory=PoolQueue)


class WorkerPoolStatus(ObjectStatus):
    """How many workers there are, and what they do."""

    phase: Annotated[Literal["Pending", "Scaling", "Ready", "Degraded"] | None, doc("How the pool is as a whole.")] = (
        None
    )
    replicas: Annotated[int, doc("Instances there are.", ge=0, le=SCALE_MAX)] = 0
    ready_replicas: Annotated[int, doc("Instances that are ready.", ge=0)] = 0
    idle: Annotated[int, doc("Ready and free.", ge=0)] = 0
    busy: Annotated[int, doc("Held.", ge=0)] = 0
    waiting: Annotated[int, doc("Tasks and Claims that wait for one.", ge=0)] = 0
    updated_replicas: Annotated[int, doc("Instances of the newest template.", ge=0)] = 0
    tasks_completed: Annotated[int, doc("Tasks it has completed.", ge=0)] = 0
    selector: Annotated[Text | None, doc("Selects its instances, by label.")] = None


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
    """N warm workers, each with its own persistent workspace."""

    spec: Annotated[WorkerPoolSpec, doc("What the workers are, and how many.")]
    status: Annotated[WorkerPoolStatus | None, doc("How many there are, and what they do.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)


class ClaimSpec(Model):
    """An exclusive, leased hold on one idle instance."""

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
    pool_ref: Annotated[Ref, doc("The pool; immutable.", refers="WorkerPool", needs="existence")]
    holder: Annotated[
        str | None,
        doc("On whose account, for fair shares; immutable.", min_length=1, max_length=253, pattern=LINE_PATTERN),
    ] = None
    priority: Priority = 0
    wait_seconds: Annotated[int | None, doc("Seconds it waits. Omitted: the pool's default.", ge=0, le=86400)] = None
    lease_seconds: Annotated[int, doc("Seconds the hold lasts after its last renewal.", ge=1, le=604_800)] = 3600
    renew_time: Annotated[Time | None, doc("When the holder last renewed it.")] = None
    release: Annotated[bool, doc("Give the instance back.")] = False
    images: Annotated[dict[str, Text], doc("Images by container, for this hold only.", max_length=16)] = {}
    env: Env = []
    labels: Annotated[dict[str, Text], doc("Labels of the instance, for this hold only.", max_length=64)] = {}
    annotations: Annotated[dict[str, Text], doc("Annotations of the instance, for this hold only.", max_length=64)] = {}


class ClaimStatus(ObjectStatus):
    """What a claim got."""

    phase: Annotated[Literal["Waiting", "Bound", "Released", "Expired", "Failed"] | None, doc("How far it is.")] = None
    arrival: Annotated[Time | None, doc("Its place in the queue: when it got there.")] = None
    instance_name: Annotated[Text | None, doc("The instance it holds.")] = None
    addresses: Annotated[list[Address], doc("Where the instance can be reached.", max_length=1024, keys=("name",))] = []
    bound_time: Annotated[Time | None, doc("When it got the instance.")] = None
    expires_at: Annotated[Time | None, doc("When the hold ends unless it is renewed.")] = None
    end_time: Annotated[Time | None, doc("When it was over.")] = None
    reason: Annotated[Text | None, doc("Why, as one word.")] = None
    message: Annotated[Value | None, doc("Why, as a sentence.")] = None


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

    spec: Annotated[ClaimSpec, doc("What is asked for.")]
    status: Annotated[ClaimStatus | None, doc("What it got.")] = None

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
    """A further remote of a repository."""

    rules = (
        git_url("url"),
        git_ref("name"),
        Rule("self.name != 'origin'", "origin is the repository itself; choose another name", "name"),
    )
    name: Annotated[
        str, doc("The remote's name.", min_length=1, max_length=63, pattern=r"^[A-Za-z0-9_][-A-Za-z0-9_.]*$")
    ]
    url: Annotated[str, doc("Its address.", min_length=1, max_length=1024, pattern=REPOSITORY)]


class WorkspaceFile(Model):
    """A file written into a workspace."""

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
            "Its path below the workspace.",
            min_length=1,
            max_length=1024,
            pattern=r"^[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]*$",
        ),
    ]
    content: Annotated[Value, doc("Its content.")]
    mode: Annotated[str | None, doc("Its mode, in octal.", max_length=4, pattern=r"^0?[0-7]{3}$")] = None


class WorkspaceSpec(Model):
    """A git repository at a ref, with files and a set-up command."""

    rules = (git_url("repo"), git_ref("ref"), program("setup"))
    checks = (FILES,)
    repo: Annotated[str, doc("The repository: https, ssh or file.", min_length=1, max_length=1024, pattern=REPOSITORY)]
    ref: Annotated[str | None, doc("A branch, tag or commit.", min_length=1, max_length=253, pattern="^[^-]")] = None
    depth: Annotated[int | None, doc("How much history. Omitted: all.", ge=1, le=1_000_000)] = None
    secret_ref: Annotated[Ref | None, doc("The Secret to sign in with.", refers="Secret")] = None
    remotes: Annotated[list[Remote], doc("Further remotes.", max_length=16, keys=("name",))] = []
    files: Annotated[list[WorkspaceFile], doc("Files to write.", max_length=LIST_ITEMS_MAX, keys=("path",))] = []
    setup: Annotated[Argv, doc("A command to run once it is there.", max_length=LIST_ITEMS_MAX)] = []


@kind("workspaces", short=("ws",), columns=(Column("Repo", ".spec.repo"), Column("Ref", ".spec.ref")))
class Workspace(Object):
    """A git repository at a ref, files and a set-up command: what a worker prepares."""

    spec: Annotated[WorkspaceSpec, doc("What it is made of.")]
    status: Annotated[ObjectStatus | None, doc("What was observed of it.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)


class MCPServer(Model):
    """A tool server that an agent may use."""

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
        doc("The server's name.", min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$"),
    ]
    type: Annotated[Literal["stdio", "http", "sse"], doc("How it is spoken to.")]
    url: Annotated[
        str | None, doc("Its address.", min_length=1, max_length=1024, pattern=r"^https?://[^\x00-\x1f\x7f]*$")
    ] = None
    command: Annotated[Argv, doc("The command that starts it.", min_length=1, max_length=LIST_ITEMS_MAX)] = []
    headers: Annotated[dict[str, Text], doc("Headers to send.", max_length=32)] = {}
    secret_ref: Annotated[Ref | None, doc("A Secret whose keys become headers or environment.", refers="Secret")] = None


class Skill(Model):
    """A text that an agent may read."""

    name: Annotated[Label, doc("The skill's name.")]
    content: Annotated[Value, doc("The text.")]


class AgentConfigSpec(Model):
    """Instructions, tool servers and skills."""

    instructions: Annotated[Value | None, doc("What it is told first.")] = None
    mcp_servers: Annotated[list[MCPServer], doc("Tool servers it may use.", max_length=32, keys=("name",))] = []
    skills: Annotated[list[Skill], doc("Texts it may read.", max_length=64, keys=("name",))] = []


@kind("agentconfigs")
class AgentConfig(Object):
    """Instructions, MCP servers and skills that a worker's agent gets."""

    spec: Annotated[AgentConfigSpec, doc("What the agent gets.")]
    status: Annotated[ObjectStatus | None, doc("What was observed of it.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)
