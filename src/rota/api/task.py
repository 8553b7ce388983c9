"""Task: one execution, and the configuration of the worker that executes it."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import field

from rota.api.kind import ALL, Column, kind
from rota.api.meta import Object, ObjectStatus, Readiness
from rota.api.model import (
    LINE_PATTERN,
    LIST_ITEMS_MAX,
    JSONObject,
    Model,
    Name,
    Ref,
    Rule,
    Text,
    Time,
    Value,
    doc,
    exactly_one,
    immutable,
)
from rota.api.parts import Argv
from rota.api.templates import TASK_TEMPLATES
from rota.api.texts import ENTRYPOINT, git_ref
from rota.api.worker import WorkerConfig

ATTEMPTS_MAX = 32
DEPENDENCIES_MAX = 100
OUTPUTS_MAX = 64
RETRY_OF = "rota.dev/retry-of"
"""The label that names the first of several tries of the same task."""

NO_NUL = "must not contain a NUL character"

Priority = Annotated[int, doc("Higher goes first.", ge=-1000, le=1000)]


class FunctionCall(Model):
    """A call of a function."""

    name: Annotated[Name, doc("The function.", refers="Function", needs="existence")]
    payload: Annotated[JSONObject | None, doc("What it is given.", atomic=True)] = None


class Affinity(Model):
    """Which worker a task prefers."""

    key: Annotated[
        str,
        doc(
            "Tasks of the same key prefer the worker that had it last.",
            min_length=1,
            max_length=253,
            pattern=LINE_PATTERN,
        ),
    ]


class Retry(Model):
    """When a task is tried again."""

    rules = (
        Rule(
            "self.limit == 0 || self.reasons.exists(one, one != 'WorkerLost')",
            "limit counts tries after Failed and Timeout: name one of them in reasons",
            "limit",
        ),
    )
    limit: Annotated[int, doc("Further tries at most. Losing the worker is not counted.", ge=0, le=100)] = 0
    backoff_seconds: Annotated[int, doc("Seconds before the first further try; doubled each time.", ge=0, le=3600)] = 5
    reasons: Annotated[
        list[Literal["Failed", "Timeout", "WorkerLost"]], doc("After which outcomes.", max_length=3, unique=True)
    ] = field(default_factory=lambda: ["WorkerLost"])


def _branch() -> Rule:
    """As a git ref, unless it is to be filled in: then it is looked at when that is done."""
    rule = git_ref("branch")
    return rule._replace(cel=f"!has(self.branch) || self.branch.contains('{{{{') || ({rule.cel})")


class TaskTemplate(Model):
    """What is executed, where and under which conditions."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("function", "command", "prompt"),
        Rule(
            "has(self.__function__) ? !has(self.workerPoolRef) && !has(self.worker)"
            " : has(self.workerPoolRef) != has(self.worker)",
            "a command or prompt needs exactly one of workerPoolRef and worker; a function runs on its own workers",
        ),
        Rule("!has(self.stdin) || has(self.command)", "stdin goes with command"),
        Rule(
            "!has(self.command) || size(self.command) == 0 || self.command[0] != ''",
            "command must begin with a program: its first element is empty",
            "command",
        ),
        *(
            Rule(rf"!has(self.{name}) || !self.{name}.contains('\x00')", f"{name} {NO_NUL}", name)
            for name in ("stdin", "prompt")
        ),
        Rule(
            "!has(self.prompt) || !has(self.worker) || self.worker.type in ['claude-code', 'codex', 'custom']",
            "a prompt is for an agent: a worker of type claude-code, codex or custom",
            "worker",
        ),
        Rule(
            "!has(self.command) || size(self.command) == 0 || !has(self.worker) || self.worker.type != 'python'"
            f" || self.command[0].matches(r'{ENTRYPOINT}')",
            "a python worker calls module:callable, which must be the first element",
            "command",
        ),
        *(
            Rule(
                f"!has(self.__function__) || !has(self.{name})",
                f"{name} is for commands and prompts: calls of a function have workers of their own",
                name,
            )
            for name in ("branch", "affinity", "holder")
        ),
        Rule(
            "!has(self.__function__) || self.priority == 0",
            "priority is for commands and prompts: calls of a function are made in the order in which they come",
            "priority",
        ),
        Rule(
            "!has(self.worker) || !has(self.affinity)",
            "affinity is for pools: a worker of its own has had no other task",
            "affinity",
        ),
        _branch(),
    )
    function: Annotated[FunctionCall | None, doc("Call a function.")] = None
    command: Annotated[Argv, doc("Run a command.", min_length=1, max_length=LIST_ITEMS_MAX)] = []
    stdin: Annotated[Value | None, doc("What the command reads.")] = None
    prompt: Annotated[Value | None, doc("Give an agent a prompt.")] = None
    worker_pool_ref: Annotated[
        Ref | None, doc("The pool whose worker runs it.", refers="WorkerPool", needs="existence")
    ] = None
    worker: Annotated[WorkerConfig | None, doc("A worker of its own, gone at the end.")] = None
    depends_on: Annotated[
        list[Name],
        doc("Tasks that must have succeeded first.", max_length=DEPENDENCIES_MAX, unique=True, refers="Task"),
    ] = []
    branch: Annotated[
        str | None, doc("Held alone, per workspace, while running.", min_length=1, max_length=253, pattern="^[^-]")
    ] = None
    priority: Priority = 0
    holder: Annotated[
        str | None, doc("On whose account, for fair shares.", min_length=1, max_length=253, pattern=LINE_PATTERN)
    ] = None
    affinity: Annotated[Affinity | None, doc("Which worker it prefers.")] = None
    timeout_seconds: Annotated[int | None, doc("Seconds it may run.", ge=1, le=604_800)] = None
    ttl_seconds_after_finished: Annotated[
        int | None, doc("Seconds it is kept when it is over.", ge=0, le=31_536_000)
    ] = None
    retry: Annotated[Retry | None, doc("When it is tried again.")] = None


class TaskSpec(TaskTemplate):
    """A task. Nothing of it changes but `cancel`, from false to true."""

    checks = (TASK_TEMPLATES,)
    rules = (
        *TaskTemplate.rules,
        Rule("self.cancel || !oldSelf.cancel", "a cancelled task cannot be revived", "cancel"),
        *immutable(
            "function",
            "command",
            "stdin",
            "prompt",
            "workerPoolRef",
            "worker",
            "dependsOn",
            "branch",
            "priority",
            "holder",
            "affinity",
            "timeoutSeconds",
            "ttlSecondsAfterFinished",
            "retry",
        ),
    )
    cancel: Annotated[bool, doc("Ask it to end.")] = False


class Attempt(Model):
    """One try of a task."""

    instance: Annotated[Text, doc("The worker that ran it.")]
    start: Annotated[Time | None, doc("When it started.")] = None
    end: Annotated[Time | None, doc("When it ended.")] = None
    exit_code: Annotated[int | None, doc("The exit code.")] = None
    reason: Annotated[Text | None, doc("How it ended, as one word.")] = None
    commit: Annotated[Text | None, doc("The commit of the tree that it had.")] = None
    note: Annotated[Value | None, doc("What to know of that tree: that its ref may have moved.")] = None


Outputs = Annotated[dict[str, Value], doc("Values that the task reported, by key.", max_length=OUTPUTS_MAX)]


class Dependency(Model):
    """The outcome of a dependency, copied when it ended."""

    name: Annotated[Name, doc("The dependency.")]
    uid: Annotated[str, doc("Its uid.", max_length=64)]
    phase: Annotated[Text, doc("How it ended.")]
    outputs: Outputs = {}
    retry_of: Annotated[Name | None, doc("The task that it is a further try of.")] = None


class TaskStatus(ObjectStatus):
    """How far a task is, and what came of it."""

    phase: Annotated[
        Literal["Waiting", "Queued", "Running", "Succeeded", "Failed", "Cancelled"] | None, doc("How far it is.")
    ] = None
    reason: Annotated[Text | None, doc("Why, as one word.")] = None
    message: Annotated[Value | None, doc("Why, as a sentence.")] = None
    arrival: Annotated[Time | None, doc("Its place in the queue: when it got there.")] = None
    instance_name: Annotated[Text | None, doc("The worker that has it.")] = None
    instance_uid: Annotated[
        str | None, doc("The uid of that worker: another one may come under its name.", max_length=64)
    ] = field(default=None, name="instanceUID")
    attempts: Annotated[list[Attempt], doc("The last of its tries, the newest last.", max_length=ATTEMPTS_MAX)] = []
    tries: Annotated[int, doc("How many tries have ended.", ge=0)] = 0
    losses: Annotated[int, doc("How many of them because the worker was lost.", ge=0)] = 0
    dependencies: Annotated[
        list[Dependency], doc("What came of its dependencies.", max_length=DEPENDENCIES_MAX, keys=("name",))
    ] = []
    start_time: Annotated[Time | None, doc("When it first started.")] = None
    completion_time: Annotated[Time | None, doc("When it was over.")] = None
    exit_code: Annotated[int | None, doc("The exit code.")] = None
    commit: Annotated[Text | None, doc("The commit of the tree that its last try had.")] = None
    result: Annotated[Any, doc("What it returned; a large one is a blob's digest.")] = None
    outputs: Outputs = {}
    usage: Annotated[JSONObject | None, doc("What it used: tokens, cost, time.", atomic=True)] = None


@kind(
    "tasks",
    categories=(ALL,),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Reason", ".status.reason"),
        Column("Worker", ".status.instanceName"),
        Column("Started", ".status.startTime", "date"),
        Column("Completed", ".status.completionTime", "date"),
        Column("Pool", ".spec.workerPoolRef.name", wide=True),
        Column("Function", ".spec.function.name", wide=True),
        Column("Commit", ".status.commit", wide=True),
        Column("Message", ".status.message", wide=True),
    ),
    selectable=(".status.phase", ".spec.workerPoolRef.name"),
)
class Task(Object):
    """One execution: a function call, a command or an agent's prompt."""

    rules = (
        Rule(
            "!has(self.spec.dependsOn) || !(self.metadata.name in self.spec.dependsOn)",
            "a task cannot depend on itself",
            "spec.dependsOn",
        ),
    )
    spec: Annotated[TaskSpec, doc("What is executed, where and under which conditions.")]
    status: Annotated[TaskStatus | None, doc("How far it is, and what came of it.")] = None

    def readiness(self) -> Readiness:
        phase = self.status.phase if self.status else None
        reason, message = (self.status.reason or "", self.status.message or "") if self.status else ("", "")
        if phase == "Succeeded":
            return Readiness("Ready", reason, message)
        if phase in ("Failed", "Cancelled"):
            return Readiness("Failed", reason or phase, message)
        return Readiness("Pending", reason or phase or "NotObserved", message)

    def over(self) -> bool:
        return self.status is not None and self.status.phase in ("Succeeded", "Failed", "Cancelled")
