"""Task: one execution of a function, a command or a prompt."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import field

from rota.api.field_rules import ENTRYPOINT, git_ref
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
from rota.api.worker import WorkerConfig

ATTEMPTS_MAX = 32
DEPENDENCIES_MAX = 100
OUTPUTS_MAX = 64
RETRY_OF = "rota.dev/retry-of"
"""Label of a task that retries another by hand: the name of the first of them."""

NO_NUL = "must not contain a NUL character"

Priority = Annotated[int, doc("Priority in the queue. Higher goes first.", ge=-1000, le=1000)]


class FunctionCall(Model):
    """A call of a function."""

    name: Annotated[Name, doc("Name of the function.", refers="Function", needs="existence")]
    payload: Annotated[JSONObject | None, doc("Event of the call.", atomic=True)] = None


class Affinity(Model):
    """Preference for a worker."""

    key: Annotated[
        str,
        doc(
            "Key of the task. It prefers the worker that last ran a task of the same key.",
            min_length=1,
            max_length=253,
            pattern=LINE_PATTERN,
        ),
    ]


class Retry(Model):
    """Retry policy."""

    rules = (
        Rule(
            "self.limit == 0 || self.reasons.exists(one, one != 'WorkerLost')",
            "limit counts tries after Failed and Timeout: name one of them in reasons",
            "limit",
        ),
    )
    limit: Annotated[
        int, doc("Maximum number of retries. Those after a lost worker are not counted.", ge=0, le=100)
    ] = 0
    backoff_seconds: Annotated[
        int, doc("Seconds before the first retry. They double with each further one.", ge=0, le=3600)
    ] = 5
    reasons: Annotated[
        list[Literal["Failed", "Timeout", "WorkerLost"]], doc("Outcomes that are retried.", max_length=3, unique=True)
    ] = field(default_factory=lambda: ["WorkerLost"])


def _branch() -> Rule:
    """The rule that a branch is a git ref. A branch with an expression is checked once the expression is filled in."""
    rule = git_ref("branch")
    return rule._replace(cel=f"!has(self.branch) || self.branch.contains('{{{{') || ({rule.cel})")


class TaskTemplate(Model):
    """Template of tasks. Exactly one of function, command and prompt must be set."""

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
    function: Annotated[FunctionCall | None, doc("Function to call.")] = None
    command: Annotated[
        Argv, doc("Command and its arguments. It is run without a shell.", min_length=1, max_length=LIST_ITEMS_MAX)
    ] = []
    stdin: Annotated[Value | None, doc("Standard input of the command.")] = None
    prompt: Annotated[Value | None, doc("Prompt for an agent.")] = None
    worker_pool_ref: Annotated[
        Ref | None, doc("Pool whose workers run the task.", refers="WorkerPool", needs="existence")
    ] = None
    worker: Annotated[WorkerConfig | None, doc("Worker for this task only, deleted when it is finished.")] = None
    depends_on: Annotated[
        list[Name],
        doc(
            "Names of tasks that must succeed before this one starts.",
            max_length=DEPENDENCIES_MAX,
            unique=True,
            refers="Task",
        ),
    ] = []
    branch: Annotated[
        str | None,
        doc(
            "Branch that is locked while the task runs: one task at a time per workspace and branch.",
            min_length=1,
            max_length=253,
            pattern="^[^-]",
        ),
    ] = None
    priority: Priority = 0
    holder: Annotated[
        str | None,
        doc("Account that the task counts for, for fair shares.", min_length=1, max_length=253, pattern=LINE_PATTERN),
    ] = None
    affinity: Annotated[Affinity | None, doc("Preference for a worker.")] = None
    timeout_seconds: Annotated[
        int | None, doc("Seconds after which an attempt is ended as failed. Omitted: unbounded.", ge=1, le=604_800)
    ] = None
    ttl_seconds_after_finished: Annotated[
        int | None,
        doc("Seconds after which a finished task is deleted. Omitted: it is kept.", ge=0, le=31_536_000),
    ] = None
    retry: Annotated[Retry | None, doc("Retry policy. Omitted: retries after a lost worker only.")] = None


class TaskSpec(TaskTemplate):
    """Desired state of a task. Immutable but for cancel, which changes from false to true."""

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
    cancel: Annotated[bool, doc("If true, the task is cancelled.")] = False


class Attempt(Model):
    """An attempt at a task."""

    instance: Annotated[Text, doc("Name of the worker that ran it.")]
    start: Annotated[Time | None, doc("Time at which it started.")] = None
    end: Annotated[Time | None, doc("Time at which it ended.")] = None
    exit_code: Annotated[int | None, doc("Exit code of the command.")] = None
    reason: Annotated[Text | None, doc("Machine-readable reason for its outcome.")] = None
    commit: Annotated[Text | None, doc("Commit of the workspace it ran on.")] = None
    note: Annotated[Value | None, doc("Warning about that commit: its ref may have moved.")] = None


Outputs = Annotated[dict[str, Value], doc("Values reported by the task, by key.", max_length=OUTPUTS_MAX)]


class Dependency(Model):
    """Outcome of a dependency, copied when it finished."""

    name: Annotated[Name, doc("Name of the dependency.")]
    uid: Annotated[str, doc("UID of the dependency.", max_length=64)]
    phase: Annotated[Text, doc("Final phase of the dependency.")]
    outputs: Outputs = {}
    retry_of: Annotated[Name | None, doc("Name of the task that it retries.")] = None


class TaskStatus(ObjectStatus):
    """Status of a task."""

    phase: Annotated[
        Literal["Waiting", "Queued", "Running", "Succeeded", "Failed", "Cancelled"] | None, doc("Phase of the task.")
    ] = None
    reason: Annotated[Text | None, doc("Machine-readable reason for the phase.")] = None
    message: Annotated[Value | None, doc("Human-readable message about the phase.")] = None
    arrival: Annotated[Time | None, doc("Time at which the task was queued. It determines its place in the queue.")] = (
        None
    )
    instance_name: Annotated[Text | None, doc("Name of the worker that runs the task.")] = None
    instance_uid: Annotated[
        str | None, doc("UID of that worker. A later worker may have the same name.", max_length=64)
    ] = field(default=None, name="instanceUID")
    attempts: Annotated[list[Attempt], doc("Last attempts, oldest first.", max_length=ATTEMPTS_MAX)] = []
    tries: Annotated[int, doc("Number of finished attempts.", ge=0)] = 0
    losses: Annotated[int, doc("Number of attempts that ended because their worker was lost.", ge=0)] = 0
    dependencies: Annotated[
        list[Dependency], doc("Outcomes of its dependencies.", max_length=DEPENDENCIES_MAX, keys=("name",))
    ] = []
    start_time: Annotated[Time | None, doc("Time at which the first attempt started.")] = None
    completion_time: Annotated[Time | None, doc("Time at which the task finished.")] = None
    exit_code: Annotated[int | None, doc("Exit code of the last attempt.")] = None
    commit: Annotated[Text | None, doc("Commit of the workspace that the last attempt ran on.")] = None
    result: Annotated[Any, doc("Result of the task. A large result is the digest of a blob.")] = None
    outputs: Outputs = {}
    usage: Annotated[JSONObject | None, doc("Usage reported by the worker: tokens, cost, time.", atomic=True)] = None


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
    spec: Annotated[TaskSpec, doc("Desired state of the task.")]
    status: Annotated[TaskStatus | None, doc("Status of the task.")] = None

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
