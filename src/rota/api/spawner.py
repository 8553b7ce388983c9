"""TaskSpawner: a source of items, each of which becomes a Task."""

from typing import Annotated, Literal

from msgspec import field

from rota.api.conflicts import MAPPED, NOT_A_PATH, PATH_RULE
from rota.api.field_rules import http_url
from rota.api.kind import ALL, Column, kind
from rota.api.meta import Object, ObjectStatus, Readiness, by_condition
from rota.api.model import Model, Ref, Rule, Text, Time, doc, exactly_one
from rota.api.task import TaskTemplate
from rota.api.templates import SPAWNER_TEMPLATES

ITEMS_MAX = 4_000
"""Bound on the items that a spawner remembers."""


class Filter(Model):
    """A condition on a webhook's body."""

    rules = (Rule(f"!self.path.matches(r'{NOT_A_PATH}')", f"path {PATH_RULE}", "path"),)
    path: Annotated[str, doc("Path of the field in the body, such as issue.state.", min_length=1, max_length=253)]
    values: Annotated[list[Text], doc("Accepted values of the field.", min_length=1, max_length=64)]


class WebhookSource(Model):
    """Items pushed by a webhook."""

    checks = (MAPPED,)
    secret_ref: Annotated[Ref, doc("Secret that requests are signed with.", refers="Secret")]
    filters: Annotated[list[Filter], doc("Filters. A body that fails one of them is ignored.", max_length=64)] = []
    map: Annotated[dict[str, Text], doc("Fields of the item, each as a path in the body.", max_length=64)] = {}


class GitHubSource(Model):
    """Items polled from an issue tracker that speaks GitHub's API."""

    rules = (
        http_url("apiURL"),
        Rule("!self.repo.matches('(^|/)[.]+(/|$)')", "repo must be OWNER/NAME", "repo"),
    )
    api_url: Annotated[str, doc("URL of the API.", max_length=1024, pattern=r"^https?://[^\x00-\x1f\x7f]*$")] = field(
        default="https://api.github.com", name="apiURL"
    )
    repo: Annotated[str, doc("Repository, as OWNER/NAME.", min_length=3, max_length=253, pattern=r"^[-\w.]+/[-\w.]+$")]
    kind: Annotated[Literal["issues", "pulls"], doc("Kind of the items.")] = "issues"
    labels: Annotated[list[Text], doc("Labels that an item must have.", max_length=32, unique=True)] = []
    exclude_labels: Annotated[list[Text], doc("Labels that an item must not have.", max_length=32, unique=True)] = []
    state: Annotated[Literal["open", "closed", "all"], doc("State that an item must have.")] = "open"
    secret_ref: Annotated[Ref | None, doc("Secret to authenticate with.", refers="Secret")] = None
    poll_seconds: Annotated[int, doc("Seconds between two polls.", ge=1, le=86400)] = 60


class SpawnerSource(Model):
    """Source of items. Exactly one of the fields must be set."""

    rules = (exactly_one("webhook", "github"),)
    webhook: Annotated[WebhookSource | None, doc("Webhook that pushes items.")] = None
    github: Annotated[GitHubSource | None, doc("Issue tracker that is polled for items.")] = None


class TaskSpawnerSpec(Model):
    """Source of items, and the task created for each."""

    checks = (SPAWNER_TEMPLATES,)
    source: Annotated[SpawnerSource, doc("Source of items.")]
    task_template: Annotated[
        TaskTemplate,
        doc("Template of the task. {{ item.FIELD }} is replaced by a field of the item.", needs="existence"),
    ]
    max_concurrency: Annotated[
        int | None, doc("Maximum number of unfinished tasks. Omitted: unbounded.", ge=1, le=10_000)
    ] = None
    max_total: Annotated[
        int | None, doc("Maximum number of tasks ever created. Omitted: unbounded.", ge=1, le=1_000_000_000)
    ] = None
    suspend: Annotated[bool, doc("If true, no tasks are created.")] = False


class TaskSpawnerStatus(ObjectStatus):
    """Status of a spawner."""

    discovered: Annotated[int, doc("Number of items discovered.", ge=0)] = 0
    created: Annotated[int, doc("Number of tasks created.", ge=0)] = 0
    active: Annotated[int, doc("Number of unfinished tasks.", ge=0)] = 0
    last_poll_time: Annotated[Time | None, doc("Time of the last poll.")] = None
    last_error: Annotated[Text | None, doc("Error of the last poll or delivery, if it failed.")] = None
    items: Annotated[
        list[Annotated[str, doc("Suffix of the name of a task.", max_length=64)]],
        doc(
            "Items that have had a task, by the suffix of its name, oldest first. Beyond the "
            "bound the oldest are dropped.",
            max_length=ITEMS_MAX,
        ),
    ] = []


@kind(
    "taskspawners",
    categories=(ALL,),
    short=("spawner",),
    columns=(
        Column("Suspended", ".spec.suspend", "boolean"),
        Column("Discovered", ".status.discovered", "integer"),
        Column("Created", ".status.created", "integer"),
        Column("Active", ".status.active", "integer"),
        Column("Error", ".status.lastError", wide=True),
    ),
)
class TaskSpawner(Object):
    """Creates a Task for each item of a source."""

    spec: Annotated[TaskSpawnerSpec, doc("Source of items, and the task created for each.")]
    status: Annotated[TaskSpawnerStatus | None, doc("Status of the spawner.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)
