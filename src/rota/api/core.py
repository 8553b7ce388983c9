"""The kinds of Kubernetes' own groups that Rota serves too."""

from typing import Annotated, Literal

from msgspec import field

from rota.api.kind import VERBS, Column, kind
from rota.api.meta import Condition, Object, Readiness
from rota.api.model import NAME_PATTERN, Model, Text, Time, Value, doc

DATA_LENGTH_MAX = 1_400_000
"""Bytes of one base64 value: 1 MiB of data."""

MICRO_TIMES: dict[str, tuple[tuple[str, ...], ...]] = {
    "Lease": (("spec", "acquireTime"), ("spec", "renewTime")),
    "Event": (("eventTime",), ("series", "lastObservedTime")),
}
"""Times that Kubernetes writes, and reads, with exactly six digits of a second's fraction."""


class NamespaceSpec(Model):
    """What a namespace waits for before it may be gone."""

    finalizers: Annotated[
        list[Annotated[str, doc("One of them.", min_length=1, max_length=253)]],
        doc("Who has to act before the namespace may be gone.", max_length=16),
    ] = []


class NamespaceStatus(Model):
    """Where a namespace is in its life."""

    phase: Annotated[Literal["Active", "Terminating"] | None, doc("Active, or Terminating while it is emptied.")] = None
    conditions: Annotated[list[Condition], doc("What holds up its end.", max_length=16, keys=("type",))] = []


@kind(
    "namespaces",
    group="",
    version="v1",
    namespaced=False,
    short=("ns",),
    columns=(Column("Status", ".status.phase"),),
    selectable=(".status.phase",),
    # As on Kubernetes, namespaces are deleted one by one.
    verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
)
class Namespace(Object):
    """A project: the space in which names are unique, and that goes as a whole."""

    spec: Annotated[NamespaceSpec | None, doc("What it waits for before it may be gone.")] = None
    status: Annotated[NamespaceStatus | None, doc("Where it is in its life.")] = None

    def readiness(self) -> Readiness:
        terminating = self.status is not None and self.status.phase == "Terminating"
        return (
            Readiness("Pending", "Terminating", "the namespace is being deleted") if terminating else Readiness("Ready")
        )


@kind(
    "secrets",
    group="",
    version="v1",
    has_status=False,
    columns=(Column("Type", ".type"), Column("Data", ".data", "count")),
    selectable=(".type",),
)
class Secret(Object):
    """Values that must not be shown."""

    type: Annotated[str, doc("What the values are for, as in Kubernetes.", max_length=253)] = "Opaque"
    data: Annotated[
        dict[str, Annotated[str, doc("", max_length=DATA_LENGTH_MAX)]], doc("The values, base64.", max_length=1024)
    ] = {}
    string_data: Annotated[
        dict[str, Value], doc("Values in plain text, for writing only: the server moves them to data.", max_length=1024)
    ] = {}
    immutable: Annotated[bool | None, doc("Whether the values can never change again.")] = None


@kind(
    "configmaps", group="", version="v1", short=("cm",), has_status=False, columns=(Column("Data", ".data", "count"),)
)
class ConfigMap(Object):
    """Values that may be shown."""

    data: Annotated[
        dict[str, Annotated[str, doc("", max_length=DATA_LENGTH_MAX)]], doc("The values, text.", max_length=1024)
    ] = {}
    binary_data: Annotated[
        dict[str, Annotated[str, doc("", max_length=DATA_LENGTH_MAX)]], doc("The values, base64.", max_length=1024)
    ] = {}
    immutable: Annotated[bool | None, doc("Whether the values can never change again.")] = None


class ObjectReference(Model):
    """Which object an Event is about."""

    api_version: Annotated[Text | None, doc("The object's API version.")] = None
    kind: Annotated[Text | None, doc("The object's kind.")] = None
    namespace: Annotated[Text | None, doc("The object's namespace.")] = None
    name: Annotated[Text | None, doc("The object's name.")] = None
    uid: Annotated[Text | None, doc("The object's uid.")] = None
    resource_version: Annotated[Text | None, doc("The object's version then.")] = None
    field_path: Annotated[Text | None, doc("The part of the object.")] = None


class EventSource(Model):
    """Who reported an Event."""

    component: Annotated[Text | None, doc("The component.")] = None
    host: Annotated[Text | None, doc("The host it ran on.")] = None


class EventSeries(Model):
    """How often an Event was seen."""

    count: Annotated[int | None, doc("How many times.")] = None
    last_observed_time: Annotated[Time | None, doc("When last.")] = None


@kind(
    "events",
    group="",
    version="v1",
    short=("ev",),
    has_status=False,
    columns=(
        Column("Last Seen", ".lastTimestamp", "date"),
        Column("Type", ".type"),
        Column("Reason", ".reason"),
        Column("Object", ".involvedObject.name"),
        Column("Message", ".message"),
    ),
    selectable=(
        ".involvedObject.kind",
        ".involvedObject.namespace",
        ".involvedObject.name",
        ".involvedObject.uid",
        ".involvedObject.apiVersion",
        ".involvedObject.resourceVersion",
        ".involvedObject.fieldPath",
        ".reason",
        ".type",
        ".reportingComponent",
    ),
    selected_at={"source": (".source.component", ".reportingComponent")},
)
class Event(Object):
    """Something a person should notice."""

    involved_object: Annotated[ObjectReference, doc("What it is about.", atomic=True)] = field(
        default_factory=ObjectReference
    )
    reason: Annotated[Text | None, doc("What happened, as one word.")] = None
    message: Annotated[Value | None, doc("What happened, as a sentence.")] = None
    source: Annotated[EventSource | None, doc("Who reported it.")] = None
    first_timestamp: Annotated[Time | None, doc("When first.")] = None
    last_timestamp: Annotated[Time | None, doc("When last.")] = None
    count: Annotated[int | None, doc("How many times.")] = None
    type: Annotated[Text | None, doc("Normal or Warning.")] = None
    event_time: Annotated[Time | None, doc("When, to the microsecond.")] = None
    series: Annotated[EventSeries | None, doc("How often, when it repeats.")] = None
    action: Annotated[Text | None, doc("What was done about it.")] = None
    related: Annotated[ObjectReference | None, doc("A second object it is about.", atomic=True)] = None
    reporting_component: Annotated[Text | None, doc("The controller that reported it.")] = None
    reporting_instance: Annotated[Text | None, doc("The process that reported it.")] = None


class LeaseSpec(Model):
    """Who holds a lease, and until when."""

    holder_identity: Annotated[Text | None, doc("Who holds it.")] = None
    lease_duration_seconds: Annotated[int | None, doc("How long others wait after the last renewal.")] = None
    acquire_time: Annotated[Time | None, doc("When it was taken.")] = None
    renew_time: Annotated[Time | None, doc("When it was last renewed.")] = None
    lease_transitions: Annotated[int | None, doc("How many times it changed hands.")] = None
    strategy: Annotated[Text | None, doc("How the holder is chosen, where several ask.")] = None
    preferred_holder: Annotated[Text | None, doc("Who should take it next.")] = None


@kind(
    "leases",
    group="coordination.k8s.io",
    version="v1",
    has_status=False,
    columns=(Column("Holder", ".spec.holderIdentity"),),
)
class Lease(Object):
    """A lock that expires: how one of several processes is chosen."""

    spec: Annotated[LeaseSpec | None, doc("Who holds it, and until when.")] = None


class PolicyRule(Model):
    """What may be done to which objects: each of the verbs to each of the resources."""

    verbs: Annotated[
        list[
            Annotated[
                Literal["*", "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                doc("One of them."),
            ]
        ],
        doc("What may be done; `*` is everything.", max_length=16),
    ]
    api_groups: Annotated[
        list[Annotated[str, doc("One of them.", max_length=253, pattern=r"^(\*|[-a-z0-9.]*)$")]],
        doc("The groups of the resources: `rota.dev`, `` for Kubernetes' core, `*` for all.", max_length=8),
    ] = []
    resources: Annotated[
        list[Annotated[str, doc("One of them.", max_length=128, pattern=r"^(\*|[a-z0-9]+)(/[a-z]+)?$")]],
        doc("The resources, or parts of them: `tasks`, `instances/exec`, `*/log`, `*` for all.", max_length=32),
    ] = []
    resource_names: Annotated[
        list[Annotated[str, doc("One of them.", min_length=1, max_length=253, pattern=NAME_PATTERN)]],
        doc("The only objects that are meant, by their names; without any, all.", max_length=64),
    ] = []


@kind("roles", group="rbac.authorization.k8s.io", version="v1", has_status=False)
class Role(Object):
    """What a token may do in a namespace, by verb, resource and name: `rota token create NAME --role ROLE`."""

    policy: Annotated[list[PolicyRule], doc("What is allowed. What no rule names is not.", max_length=32)] = field(
        default_factory=list, name="rules"
    )
