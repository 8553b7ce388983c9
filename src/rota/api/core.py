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
    """Desired state of a namespace."""

    finalizers: Annotated[
        list[Annotated[str, doc("Name of a finalizer.", min_length=1, max_length=253)]],
        doc("Finalizers: each must be removed by its owner before the namespace is deleted.", max_length=16),
    ] = []


class NamespaceStatus(Model):
    """Status of a namespace."""

    phase: Annotated[
        Literal["Active", "Terminating"] | None,
        doc("Phase of the namespace: Active, or Terminating while its objects are deleted."),
    ] = None
    conditions: Annotated[
        list[Condition],
        doc("Conditions that explain why a Terminating namespace is not gone yet.", max_length=16, keys=("type",)),
    ] = []


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
    """A project: names are unique in it, and its objects are deleted with it."""

    spec: Annotated[NamespaceSpec | None, doc("Desired state of the namespace.")] = None
    status: Annotated[NamespaceStatus | None, doc("Status of the namespace.")] = None

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
    """Confidential values, such as passwords and keys."""

    type: Annotated[str, doc("Type of the values, as in Kubernetes.", max_length=253)] = "Opaque"
    data: Annotated[
        dict[str, Annotated[str, doc("", max_length=DATA_LENGTH_MAX)]], doc("Values, base64-encoded.", max_length=1024)
    ] = {}
    string_data: Annotated[
        dict[str, Value], doc("Values in plain text. Write-only: the server moves them to data.", max_length=1024)
    ] = {}
    immutable: Annotated[bool | None, doc("If true, the values cannot be changed any more.")] = None


@kind(
    "configmaps", group="", version="v1", short=("cm",), has_status=False, columns=(Column("Data", ".data", "count"),)
)
class ConfigMap(Object):
    """Configuration values that are not confidential."""

    data: Annotated[
        dict[str, Annotated[str, doc("", max_length=DATA_LENGTH_MAX)]], doc("Values in plain text.", max_length=1024)
    ] = {}
    binary_data: Annotated[
        dict[str, Annotated[str, doc("", max_length=DATA_LENGTH_MAX)]], doc("Values, base64-encoded.", max_length=1024)
    ] = {}
    immutable: Annotated[bool | None, doc("If true, the values cannot be changed any more.")] = None


class ObjectReference(Model):
    """Reference to the object of an Event."""

    api_version: Annotated[Text | None, doc("API version of the object.")] = None
    kind: Annotated[Text | None, doc("Kind of the object.")] = None
    namespace: Annotated[Text | None, doc("Namespace of the object.")] = None
    name: Annotated[Text | None, doc("Name of the object.")] = None
    uid: Annotated[Text | None, doc("UID of the object.")] = None
    resource_version: Annotated[Text | None, doc("Resource version of the object at that time.")] = None
    field_path: Annotated[Text | None, doc("Path of the part of the object.")] = None


class EventSource(Model):
    """Source of an Event."""

    component: Annotated[Text | None, doc("Component that reported the Event.")] = None
    host: Annotated[Text | None, doc("Host that the component ran on.")] = None


class EventSeries(Model):
    """Occurrences of a repeated Event."""

    count: Annotated[int | None, doc("Number of occurrences.")] = None
    last_observed_time: Annotated[Time | None, doc("Time of the last occurrence.")] = None


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
    """A report of something that happened to an object."""

    involved_object: Annotated[ObjectReference, doc("Object that the event is about.", atomic=True)] = field(
        default_factory=ObjectReference
    )
    reason: Annotated[Text | None, doc("Machine-readable reason, in CamelCase.")] = None
    message: Annotated[Value | None, doc("Human-readable message.")] = None
    source: Annotated[EventSource | None, doc("Component that reported the event.")] = None
    first_timestamp: Annotated[Time | None, doc("Time of the first occurrence.")] = None
    last_timestamp: Annotated[Time | None, doc("Time of the last occurrence.")] = None
    count: Annotated[int | None, doc("Number of occurrences.")] = None
    type: Annotated[Text | None, doc("Type of the event: Normal or Warning.")] = None
    event_time: Annotated[Time | None, doc("Time of the event, in microseconds.")] = None
    series: Annotated[EventSeries | None, doc("Occurrences of a repeated event.")] = None
    action: Annotated[Text | None, doc("Action that was taken.")] = None
    related: Annotated[ObjectReference | None, doc("Secondary object that the event is about.", atomic=True)] = None
    reporting_component: Annotated[Text | None, doc("Controller that reported the event.")] = None
    reporting_instance: Annotated[Text | None, doc("Process that reported the event.")] = None


class LeaseSpec(Model):
    """Holder of a lease, and its times."""

    holder_identity: Annotated[Text | None, doc("Identity of the holder.")] = None
    lease_duration_seconds: Annotated[
        int | None, doc("Seconds after the last renewal before others may take the lease.")
    ] = None
    acquire_time: Annotated[Time | None, doc("Time at which the holder acquired the lease.")] = None
    renew_time: Annotated[Time | None, doc("Time at which the holder last renewed the lease.")] = None
    lease_transitions: Annotated[int | None, doc("Number of changes of the holder.")] = None
    strategy: Annotated[Text | None, doc("Strategy for choosing among several candidates.")] = None
    preferred_holder: Annotated[Text | None, doc("Identity of the preferred next holder.")] = None


@kind(
    "leases",
    group="coordination.k8s.io",
    version="v1",
    has_status=False,
    columns=(Column("Holder", ".spec.holderIdentity"),),
)
class Lease(Object):
    """A lock that expires, by which one of several processes is elected."""

    spec: Annotated[LeaseSpec | None, doc("Holder of the lease, and its times.")] = None


class PolicyRule(Model):
    """Permission for each of the verbs on each of the resources."""

    verbs: Annotated[
        list[
            Annotated[
                Literal["*", "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                doc("One of them."),
            ]
        ],
        doc("Allowed verbs. `*` is all verbs.", max_length=16),
    ]
    api_groups: Annotated[
        list[Annotated[str, doc("One of them.", max_length=253, pattern=r"^(\*|[-a-z0-9.]*)$")]],
        doc("API groups of the resources: `rota.dev`, `` for the core group, `*` for all.", max_length=8),
    ] = []
    resources: Annotated[
        list[Annotated[str, doc("Resource or subresource.", max_length=128, pattern=r"^(\*|[a-z0-9]+)(/[a-z]+)?$")]],
        doc("Resources and subresources: `tasks`, `instances/exec`, `*/log`, `*` for all.", max_length=32),
    ] = []
    resource_names: Annotated[
        list[Annotated[str, doc("One of them.", min_length=1, max_length=253, pattern=NAME_PATTERN)]],
        doc("Names of the objects that the rule is limited to. Omitted: all objects.", max_length=64),
    ] = []


@kind("roles", group="rbac.authorization.k8s.io", version="v1", has_status=False)
class Role(Object):
    """Permissions of a token in a namespace: `rota token create NAME --role ROLE`."""

    policy: Annotated[list[PolicyRule], doc("Permissions. Requests that no rule allows are denied.", max_length=32)] = (
        field(default_factory=list, name="rules")
    )
