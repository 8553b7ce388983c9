"""Function and Schedule: code with a handler, and the clock that starts functions and tasks."""

from typing import Annotated, Literal

from msgspec import field

from rota.api.copies import FUNCTION_COPIES
from rota.api.egress import Network
from rota.api.field_rules import ENTRYPOINT, REQUIREMENT, program
from rota.api.kind import ALL, Column, kind
from rota.api.meta import Object, ObjectStatus, Readiness, by_condition
from rota.api.model import (
    LIST_ITEMS_MAX,
    CityCode,
    JSONObject,
    Line,
    Model,
    Name,
    Ref,
    Rule,
    Text,
    Time,
    doc,
    exactly_one,
)
from rota.api.parts import EGRESS, NETWORK, Argv, Env, Isolation, Resources, Targets
from rota.api.task import TaskTemplate
from rota.api.templates import SCHEDULE_TEMPLATES
from rota.api.times import TIMES

CITIES_MAX = 64
INLINE_LENGTH_MAX = 262_144
CRON_LENGTH_MAX = 256
ZONE_LENGTH_MAX = 64
ACTIVE_MAX = 1_000
"""Bound on the unfinished runs of one schedule."""

Regions = Annotated[
    list[CityCode],
    doc("Codes of the cities that it may run in. Omitted: the server chooses.", max_length=CITIES_MAX, unique=True),
]


class Source(Model):
    """Code of a function. Exactly one of the fields must be set."""

    rules = (exactly_one("digest", "inline", "workspaceRef"),)
    digest: Annotated[
        str | None,
        doc("Digest of a blob of the gateway that has the code.", max_length=71, pattern="^sha256:[0-9a-f]{64}$"),
    ] = None
    inline: Annotated[str | None, doc("Code itself, as one file.", max_length=INLINE_LENGTH_MAX)] = None
    workspace_ref: Annotated[Ref | None, doc("Workspace that has the code.", refers="Workspace")] = None


class FunctionScale(Model):
    """Bounds on the number of workers of a function."""

    rules = (Rule("self.min <= self.max", "min must not be greater than max", "min"),)
    min: Annotated[int, doc("Minimum number of workers, kept even without calls.", ge=0, le=1000)] = 0
    max: Annotated[int, doc("Maximum number of workers.", ge=1, le=1000)] = 4
    idle_seconds: Annotated[int, doc("Seconds without a call after which a worker is stopped.", ge=1, le=86400)] = 300


class FunctionSpec(Model):
    """Code with a handler, its environment, visibility, timeout and scale."""

    rules = (
        Rule(
            "self.runtime != 'python' || has(self.entrypoint)", "a python function needs an entrypoint: module:callable"
        ),
        Rule("self.runtime != 'command' || has(self.command)", "a command function needs a command"),
        Rule("!(has(self.entrypoint) && has(self.command))", "entrypoint and command exclude each other"),
        Rule(
            f"!has(self.entrypoint) || self.entrypoint.matches(r'{ENTRYPOINT}')",
            "entrypoint must be module:callable, such as app:handler or shop.orders:close",
            "entrypoint",
        ),
        program("command"),
        Rule(
            f"!has(self.requirements) || self.requirements.all(one, one.matches(r'{REQUIREMENT}'))",
            "requirements must name packages, such as requests>=2",
            "requirements",
        ),
        EGRESS,
    )
    checks = (FUNCTION_COPIES,)
    runtime: Annotated[
        Literal["python", "command"],
        doc("Runtime of the function: python calls a handler, command runs a program for each call."),
    ] = "python"
    entrypoint: Annotated[str | None, doc("Handler of a python function, as module:callable.", max_length=253)] = None
    command: Annotated[
        Argv,
        doc(
            "Command of a command function. It reads the event on stdin and writes its result on stdout.",
            min_length=1,
            max_length=LIST_ITEMS_MAX,
        ),
    ] = []
    source: Annotated[Source, doc("Code of the function.")]
    requirements: Annotated[
        list[Line],
        doc(
            "Packages to install, as pip requirements. They are installed once, into a cached environment.",
            max_length=LIST_ITEMS_MAX,
        ),
    ] = []
    public: Annotated[bool, doc("If true, the function can be called without a key.")] = False
    timeout_seconds: Annotated[int, doc("Seconds after which a call is ended as failed.", ge=1, le=3600)] = 30
    concurrency: Annotated[int, doc("Number of calls that one worker handles at once.", ge=1, le=100)] = 1
    env: Env = []
    resources: Annotated[Resources | None, doc("Resource requests and limits of each worker.")] = None
    isolation: Annotated[
        Isolation | None, doc("Isolation of the workers. Omitted: sandbox, if the host supports it.")
    ] = None
    network: Annotated[Network | None, NETWORK] = None
    egress: Targets = []
    scale: Annotated[FunctionScale, doc("Bounds on the number of workers.")] = field(default_factory=FunctionScale)
    regions: Regions = []


class Calls(Model):
    """Numbers of finished calls by outcome."""

    succeeded: Annotated[int, doc("Number of calls that returned.", ge=0)] = 0
    failed: Annotated[int, doc("Number of calls that failed.", ge=0)] = 0


class LoadedVersion(Model):
    """A version that a worker has loaded."""

    version: Annotated[Text, doc("Hash of the version.")]
    time: Annotated[Time | None, doc("Time at which the version was first loaded.")] = None
    template: Annotated[
        JSONObject, doc("Template of its workers. It serves until a newer version is loaded.", atomic=True)
    ]


class FunctionStatus(ObjectStatus):
    """Status of a function."""

    url: Annotated[Text | None, doc("URL of the function.")] = None
    version: Annotated[
        Text | None,
        doc("Hash of the newest version of code and settings. The condition Loaded is about it."),
    ] = None
    last_loaded: Annotated[LoadedVersion | None, doc("Version that answers calls: the last one that was loaded.")] = (
        None
    )
    digest: Annotated[Text | None, doc("Digest of the code that answers calls.")] = None
    region: Annotated[Text | None, doc("Code of the city that serves the function.")] = None
    ready_workers: Annotated[int, doc("Number of workers that can take a call.", ge=0)] = 0
    last_call_time: Annotated[Time | None, doc("Time of the last call.")] = None
    calls: Annotated[Calls | None, doc("Numbers of finished calls by outcome.")] = None


@kind(
    "functions",
    categories=(ALL,),
    short=("fn",),
    columns=(
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Workers", ".status.readyWorkers", "integer"),
        Column("Last Call", ".status.lastCallTime", "date"),
        Column("URL", ".status.url", wide=True),
    ),
)
class Function(Object):
    """Code with a handler, called over HTTP, by schedules and by tasks."""

    spec: Annotated[FunctionSpec, doc("Code of the function, and settings of its workers.")]
    status: Annotated[FunctionStatus | None, doc("Status of the function.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)


class ScheduleTarget(Model):
    """A function or a task that a schedule starts. Exactly one of the fields must be set."""

    rules = (exactly_one("functionRef", "taskTemplate"),)
    function_ref: Annotated[Ref | None, doc("Function to call.", refers="Function", needs="existence")] = None
    task_template: Annotated[TaskTemplate | None, doc("Template of the task to create.", needs="existence")] = None


class History(Model):
    """Numbers of finished runs that are kept."""

    succeeded: Annotated[int, doc("Number of succeeded runs to keep.", ge=0, le=1000)] = 10
    failed: Annotated[int, doc("Number of failed runs to keep.", ge=0, le=1000)] = 10


class ScheduleSpec(Model):
    """ScheduleTarget of a schedule, and the times at which it starts."""

    rules = (
        Rule(
            "!has(self.payload) || has(self.target.functionRef)"
            " || (has(self.target.taskTemplate) && has(self.target.taskTemplate.__function__))",
            "payload is for a function, and the target is none",
            "payload",
        ),
    )
    checks = (TIMES, SCHEDULE_TEMPLATES)
    cron: Annotated[
        str,
        doc(
            "Cron expression of five fields, or @hourly, @daily, @weekly, @monthly or @yearly.",
            min_length=1,
            max_length=CRON_LENGTH_MAX,
            pattern="^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)"
            "|[ \t]*[!-?A-~]+([ \t]+[!-~]+){4}[ \t]*)$",
        ),
    ]
    time_zone: Annotated[
        str,
        doc(
            "IANA name of the time zone of cron, such as Europe/Berlin.",
            min_length=1,
            max_length=ZONE_LENGTH_MAX,
            pattern=r"^[A-Za-z][-+/\w]*$",
        ),
    ] = "UTC"
    enabled: Annotated[bool, doc("If false, the schedule is paused.")] = True
    target: Annotated[ScheduleTarget, doc("Function or task to start at each tick.")]
    payload: Annotated[JSONObject | None, doc("Event of the function. `schedule` is added to it.", atomic=True)] = None
    regions: Regions = []
    overlap: Annotated[
        Literal["Allow", "Skip", "Replace"],
        doc("Policy for a tick while the last run is unfinished: start both, skip the tick, or cancel the last run."),
    ] = "Skip"
    catch_up: Annotated[Literal["None", "Last", "All"], doc("Missed ticks to make up for.")] = "Last"
    catch_up_within_seconds: Annotated[
        int, doc("Maximum age in seconds of a missed tick that is made up for.", ge=0, le=31_536_000)
    ] = 3600
    jitter_seconds: Annotated[
        int, doc("Maximum seconds by which a start is delayed. The delay of a tick is always the same.", ge=0, le=3600)
    ] = 0
    history: Annotated[History, doc("Numbers of finished runs that are kept.")] = field(default_factory=History)


class ScheduleStatus(ObjectStatus):
    """Status of a schedule."""

    next_run_time: Annotated[Time | None, doc("Time of the next tick.")] = None
    last_scheduled_time: Annotated[Time | None, doc("Time of the newest tick that started a run.")] = None
    last_started_time: Annotated[
        Time | None, doc("Time at which a run last started, or ended without having started.")
    ] = None
    last_completed_time: Annotated[Time | None, doc("Time at which a run last finished.")] = None
    last_error: Annotated[Text | None, doc("Error of the last run, if it failed.")] = None
    run_count: Annotated[int, doc("Number of runs started, by ticks and by hand.", ge=0)] = 0
    skipped_count: Annotated[
        int, doc("Number of ticks that started no run: overlapping, or missed and not made up for.", ge=0)
    ] = 0
    region: Annotated[Text | None, doc("Code of the city that the schedule runs in.")] = None
    active: Annotated[list[Name], doc("Names of the unfinished runs.", max_length=ACTIVE_MAX, unique=True)] = []
    observed_cron: Annotated[
        str | None,
        doc(
            "Time zone and cron expression that nextRunTime was computed from.",
            max_length=CRON_LENGTH_MAX + ZONE_LENGTH_MAX + 1,
        ),
    ] = None


@kind(
    "schedules",
    categories=(ALL,),
    short=("sched",),
    columns=(
        Column("Cron", ".spec.cron"),
        Column("Zone", ".spec.timeZone"),
        Column("Enabled", ".spec.enabled", "boolean"),
        Column("Next", ".status.nextRunTime", "date"),
        Column("Last", ".status.lastStartedTime", "date"),
        Column("Runs", ".status.runCount", "integer", wide=True),
        Column("Error", ".status.lastError", wide=True),
    ),
)
class Schedule(Object):
    """Starts a function or a task at times given by a cron expression."""

    spec: Annotated[ScheduleSpec, doc("ScheduleTarget of the schedule, and the times at which it starts.")]
    status: Annotated[ScheduleStatus | None, doc("Status of the schedule.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)
