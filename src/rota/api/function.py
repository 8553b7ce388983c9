"""Function and Schedule: code with a handler, and when to call it."""

from typing import Annotated, Literal

from msgspec import field

from rota.api.copies import FUNCTION_COPIES
from rota.api.egress import Network
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
from rota.api.texts import ENTRYPOINT, REQUIREMENT, program
from rota.api.times import TIMES

CITIES_MAX = 64
INLINE_LENGTH_MAX = 262_144
CRON_LENGTH_MAX = 256
ZONE_LENGTH_MAX = 64
ACTIVE_MAX = 1_000
"""Runs of one schedule under way at once."""

Regions = Annotated[
    list[CityCode], doc("Cities that serve it. Omitted: the server's choice.", max_length=CITIES_MAX, unique=True)
]


class Source(Model):
    """Where a function's code is."""

    rules = (exactly_one("digest", "inline", "workspaceRef"),)
    digest: Annotated[
        str | None, doc("A blob of the gateway, by its digest.", max_length=71, pattern="^sha256:[0-9a-f]{64}$")
    ] = None
    inline: Annotated[str | None, doc("The code itself, as one file.", max_length=INLINE_LENGTH_MAX)] = None
    workspace_ref: Annotated[Ref | None, doc("A workspace that holds it.", refers="Workspace")] = None


class FunctionScale(Model):
    """How many workers a function has."""

    rules = (Rule("self.min <= self.max", "min must not be greater than max", "min"),)
    min: Annotated[int, doc("Workers kept warm without calls.", ge=0, le=1000)] = 0
    max: Annotated[int, doc("Workers at most.", ge=1, le=1000)] = 4
    idle_seconds: Annotated[int, doc("Seconds without a call after which a worker goes.", ge=1, le=86400)] = 300


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
    runtime: Annotated[Literal["python", "command"], doc("What runs it.")] = "python"
    entrypoint: Annotated[str | None, doc("The handler, as module:callable.", max_length=253)] = None
    command: Annotated[
        Argv,
        doc(
            "A command that reads the event on stdin and writes its result on stdout.",
            min_length=1,
            max_length=LIST_ITEMS_MAX,
        ),
    ] = []
    source: Annotated[Source, doc("Where the code is.")]
    requirements: Annotated[
        list[Line], doc("Packages installed once into a cached environment.", max_length=LIST_ITEMS_MAX)
    ] = []
    public: Annotated[bool, doc("Whether anyone may call it without a key.")] = False
    timeout_seconds: Annotated[int, doc("Seconds a call may take.", ge=1, le=3600)] = 30
    concurrency: Annotated[int, doc("Calls that one worker takes at once.", ge=1, le=100)] = 1
    env: Env = []
    resources: Annotated[Resources | None, doc("What a worker is promised and may use.")] = None
    isolation: Annotated[Isolation | None, doc("Sandboxed or not. Omitted: as the host can.")] = None
    network: Annotated[Network | None, NETWORK] = None
    egress: Targets = []
    scale: Annotated[FunctionScale, doc("How many workers it has.")] = field(default_factory=FunctionScale)
    regions: Regions = []


class Calls(Model):
    """How many calls ended how."""

    succeeded: Annotated[int, doc("Calls that returned.", ge=0)] = 0
    failed: Annotated[int, doc("Calls that did not.", ge=0)] = 0


class LoadedVersion(Model):
    """A version that a worker has loaded."""

    version: Annotated[Text, doc("The version.")]
    time: Annotated[Time | None, doc("When it was first loaded.")] = None
    template: Annotated[
        JSONObject, doc("What its workers are made from: it goes on while a newer version is not loaded.", atomic=True)
    ]


class FunctionStatus(ObjectStatus):
    """What serves the function."""

    url: Annotated[Text | None, doc("Where it is called.")] = None
    version: Annotated[
        Text | None,
        doc("The newest version: a hash of all that its workers are made from. The condition Loaded is about it."),
    ] = None
    last_loaded: Annotated[LoadedVersion | None, doc("The version that was loaded last, and that answers.")] = None
    digest: Annotated[Text | None, doc("The code that is served.")] = None
    region: Annotated[Text | None, doc("The city that serves it.")] = None
    ready_workers: Annotated[int, doc("Workers that can take a call.", ge=0)] = 0
    last_call_time: Annotated[Time | None, doc("When it was last called.")] = None
    calls: Annotated[Calls | None, doc("How many calls ended how.")] = None


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

    spec: Annotated[FunctionSpec, doc("The code and how it is served.")]
    status: Annotated[FunctionStatus | None, doc("What serves it.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)


class Target(Model):
    """What a schedule starts."""

    rules = (exactly_one("functionRef", "taskTemplate"),)
    function_ref: Annotated[Ref | None, doc("The function to call.", refers="Function", needs="existence")] = None
    task_template: Annotated[TaskTemplate | None, doc("The task to make.", needs="existence")] = None


class History(Model):
    """How many finished runs are kept."""

    succeeded: Annotated[int, doc("Of those that succeeded.", ge=0, le=1000)] = 10
    failed: Annotated[int, doc("Of those that failed.", ge=0, le=1000)] = 10


class ScheduleSpec(Model):
    """When to start what."""

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
            "Five cron fields, or @hourly, @daily, @weekly, @monthly, @yearly.",
            min_length=1,
            max_length=CRON_LENGTH_MAX,
            pattern="^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)"
            "|[ \t]*[!-?A-~]+([ \t]+[!-~]+){4}[ \t]*)$",
        ),
    ]
    time_zone: Annotated[
        str,
        doc(
            "The time zone that cron speaks in.",
            min_length=1,
            max_length=ZONE_LENGTH_MAX,
            pattern=r"^[A-Za-z][-+/\w]*$",
        ),
    ] = "UTC"
    enabled: Annotated[bool, doc("Whether it ticks.")] = True
    target: Annotated[Target, doc("What it starts.")]
    payload: Annotated[JSONObject | None, doc("What the function is given, with `schedule` added.", atomic=True)] = None
    regions: Regions = []
    overlap: Annotated[Literal["Allow", "Skip", "Replace"], doc("What to do when the last run still runs.")] = "Skip"
    catch_up: Annotated[Literal["None", "Last", "All"], doc("Which missed ticks to make up for.")] = "Last"
    catch_up_within_seconds: Annotated[int, doc("How old a missed tick may be.", ge=0, le=31_536_000)] = 3600
    jitter_seconds: Annotated[int, doc("Spread the start over so many seconds.", ge=0, le=3600)] = 0
    history: Annotated[History, doc("How many finished runs are kept.")] = field(default_factory=History)


class ScheduleStatus(ObjectStatus):
    """When it ran and will run."""

    next_run_time: Annotated[Time | None, doc("The next tick.")] = None
    last_scheduled_time: Annotated[Time | None, doc("The newest tick that was fired.")] = None
    last_started_time: Annotated[Time | None, doc("When a run last started, or ended without having started.")] = None
    last_completed_time: Annotated[Time | None, doc("When a run last ended.")] = None
    last_error: Annotated[Text | None, doc("Why the last run failed, if it did.")] = None
    run_count: Annotated[int, doc("Runs that were started: by ticks, and by hand.", ge=0)] = 0
    skipped_count: Annotated[
        int, doc("Ticks that became no task: overlapping, or missed and not made up for.", ge=0)
    ] = 0
    region: Annotated[Text | None, doc("The city it runs in.")] = None
    active: Annotated[list[Name], doc("Tasks under way.", max_length=ACTIVE_MAX, unique=True)] = []
    observed_cron: Annotated[
        str | None, doc("The zone and cron that the next tick is of.", max_length=CRON_LENGTH_MAX + ZONE_LENGTH_MAX + 1)
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
    """Starts a function or a task by the clock."""

    spec: Annotated[ScheduleSpec, doc("When to start what.")]
    status: Annotated[ScheduleStatus | None, doc("When it ran and will run.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)
