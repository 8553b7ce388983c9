"""TaskSpawner: a source of items, each of which becomes a Task."""

from typing import Annotated, Literal

from msgspec import field

from rota.api.kind import ALL, Column, kind
from rota.api.meta import Object, ObjectStatus, Readiness, by_condition
from rota.api.model import Model, Ref, Rule, Text, Time, doc, exactly_one
from rota.api.sharing import MAPPED, NOT_A_PATH, PATH_RULE
from rota.api.task import TaskTemplate
from rota.api.templates import SPAWNER_TEMPLATES
from rota.api.texts import http_url

ITEMS_MAX = 4_000
"""Items that a spawner remembers."""


class Filter(Model):
    """A condition on a webhook's body."""

    rules = (Rule(f"!self.path.matches(r'{NOT_A_PATH}')", f"path {PATH_RULE}", "path"),)
    path: Annotated[str, doc("The field, as a dotted path.", min_length=1, max_length=253)]
    values: Annotated[list[Text], doc("Passes when the field is one of these.", min_length=1, max_length=64)]


class WebhookSource(Model):
    """Items pushed by a webhook."""

    checks = (MAPPED,)
    secret_ref: Annotated[Ref, doc("The Secret that signs the requests.", refers="Secret")]
    filters: Annotated[list[Filter], doc("What an item must be like.", max_length=64)] = []
    map: Annotated[dict[str, Text], doc("The item's fields, each from a path of the body.", max_length=64)] = {}


class GitHubSource(Model):
    """Items polled from an issue tracker that speaks GitHub's API."""

    rules = (
        http_url("apiURL"),
        Rule("!self.repo.matches('(^|/)[.]+(/|$)')", "repo must be OWNER/NAME", "repo"),
    )
    api_url: Annotated[str, doc("The API's address.", max_length=1024, pattern=r"^https?://[^\x00-\x1f\x7f]*$")] = (
        field(default="https://api.github.com", name="apiURL")
    )
    repo: Annotated[str, doc("OWNER/NAME.", min_length=3, max_length=253, pattern=r"^[-\w.]+/[-\w.]+$")]
    kind: Annotated[Literal["issues", "pulls"], doc("What to poll.")] = "issues"
    labels: Annotated[list[Text], doc("Labels an item must have.", max_length=32, unique=True)] = []
    exclude_labels: Annotated[list[Text], doc("Labels it must not have.", max_length=32, unique=True)] = []
    state: Annotated[Literal["open", "closed", "all"], doc("The state it must be in.")] = "open"
    secret_ref: Annotated[Ref | None, doc("The Secret to sign in with.", refers="Secret")] = None
    poll_seconds: Annotated[int, doc("Seconds between two polls.", ge=1, le=86400)] = 60


class SpawnerSource(Model):
    """Where items come from."""

    rules = (exactly_one("webhook", "github"),)
    webhook: Annotated[WebhookSource | None, doc("Pushed by a webhook.")] = None
    github: Annotated[GitHubSource | None, doc("Polled from an issue tracker.")] = None


class TaskSpawnerSpec(Model):
    """A source, and the task made of each item."""

    checks = (SPAWNER_TEMPLATES,)
    source: Annotated[SpawnerSource, doc("Where items come from.")]
    task_template: Annotated[TaskTemplate, doc("The task, with {{ item.FIELD }} filled in.", needs="existence")]
    max_concurrency: Annotated[int | None, doc("Tasks under way at most.", ge=1, le=10_000)] = None
    max_total: Annotated[int | None, doc("Tasks made at most, ever.", ge=1, le=1_000_000_000)] = None
    suspend: Annotated[bool, doc("Make no tasks for now.")] = False


class TaskSpawnerStatus(ObjectStatus):
    """What came of the source."""

    discovered: Annotated[int, doc("Items seen.", ge=0)] = 0
    created: Annotated[int, doc("Tasks made.", ge=0)] = 0
    active: Annotated[int, doc("Tasks under way.", ge=0)] = 0
    last_poll_time: Annotated[Time | None, doc("When it was last polled.")] = None
    last_error: Annotated[Text | None, doc("Why the last poll, or the last delivery, came to nothing.")] = None
    items: Annotated[
        list[Annotated[str, doc("One of them.", max_length=64)]],
        doc(
            "Items that had a task: how its name ends. The newest last; past the bound the oldest go.",
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
    """A source of items, each of which becomes a Task."""

    spec: Annotated[TaskSpawnerSpec, doc("The source, and the task made of each item.")]
    status: Annotated[TaskSpawnerStatus | None, doc("What came of it.")] = None

    def readiness(self) -> Readiness:
        return by_condition(self.metadata, self.status)
