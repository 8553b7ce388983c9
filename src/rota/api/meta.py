"""The parts that every object has: metadata, conditions, and the frame around spec and status."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import msgspec
import msgspec.inspect

from rota.api.kind import Kind
from rota.api.model import MESSAGE_LENGTH_MAX, Model, Time, doc

# Metadata has no bounds here: its own, which Kubernetes sets, are checked where objects are admitted, and what another
# API server has admitted must be readable.


class OwnerReference(Model):
    """A reference to an owner of the object. The object is deleted with its owners."""

    api_version: Annotated[str, doc("API version of the owner.")] = ""
    kind: Annotated[str, doc("Kind of the owner.")] = ""
    name: Annotated[str, doc("Name of the owner.")] = ""
    uid: Annotated[str, doc("UID of the owner. A later object of the same name is not the owner.")] = ""
    controller: Annotated[
        bool | None, doc("If true, the owner is the controller of the object. At most one owner is.")
    ] = None
    block_owner_deletion: Annotated[
        bool | None, doc("If true, a foreground deletion of the owner waits until this object is deleted.")
    ] = None


class ManagedFieldsEntry(Model):
    """Fields that one manager owns."""

    manager: Annotated[str | None, doc("Name of the manager.")] = None
    operation: Annotated[str | None, doc("Operation that wrote the fields: Apply or Update.")] = None
    api_version: Annotated[str | None, doc("API version of the names of the fields.")] = None
    time: Annotated[Time | None, doc("Time at which the set of fields last changed.")] = None
    fields_type: Annotated[str | None, doc("Always FieldsV1.")] = None
    fields_v1: Annotated[dict[str, Any] | None, doc("Set of fields, in the format FieldsV1.")] = None
    subresource: Annotated[str | None, doc("Subresource that the fields were written through.")] = None


class ObjectMeta(Model):
    """Name, identity, version and lifecycle of an object."""

    name: Annotated[str, doc("Name of the object, unique for its kind in its namespace.")] = ""
    generate_name: Annotated[str | None, doc("Prefix of the name. The server adds a unique suffix.")] = None
    namespace: Annotated[str, doc("Namespace of the object. Empty for cluster-scoped kinds.")] = ""
    self_link: Annotated[str | None, doc("Not used.")] = None
    uid: Annotated[str, doc("UID: unique in time, also among objects of the same name. Set by the server.")] = ""
    resource_version: Annotated[str, doc("Version of this state of the object. Set by the server.")] = ""
    generation: Annotated[int, doc("Number of changes of the desired state. Set by the server.")] = 0
    creation_timestamp: Annotated[Time | None, doc("Time at which the object was created. Set by the server.")] = None
    deletion_timestamp: Annotated[Time | None, doc("Time at which deletion was requested. Set by the server.")] = None
    deletion_grace_period_seconds: Annotated[
        int | None, doc("Seconds granted for a graceful deletion. Set by the server.")
    ] = None
    labels: Annotated[dict[str, str], doc("Labels, by which objects are selected.")] = {}
    annotations: Annotated[
        dict[str, str], doc("Annotations for people and tools. Objects cannot be selected by them.")
    ] = {}
    owner_references: Annotated[
        list[OwnerReference], doc("Owners of the object. It is deleted once all of them are.", keys=("uid",))
    ] = []
    finalizers: Annotated[
        list[str], doc("Finalizers: each must be removed by its owner before the object is deleted.", unique=True)
    ] = []
    managed_fields: Annotated[list[ManagedFieldsEntry], doc("Owners of the fields of the object.")] = []


class Condition(Model):
    """One aspect of an object's current state."""

    type: Annotated[str, doc("Type of the condition, in CamelCase.", min_length=1, max_length=316)]
    status: Annotated[Literal["True", "False", "Unknown"], doc("Status of the condition.")]
    reason: Annotated[str, doc("Machine-readable reason for the status, in CamelCase.", max_length=1024)] = ""
    message: Annotated[str, doc("Human-readable message about the status.", max_length=MESSAGE_LENGTH_MAX)] = ""
    last_transition_time: Annotated[Time | None, doc("Time at which the status last changed.")] = None
    observed_generation: Annotated[
        int | None, doc("Generation of the object that the condition was set for.", ge=0)
    ] = None


class ObjectStatus(Model):
    """Fields that every status has."""

    observed_generation: Annotated[int | None, doc("Generation of the object that the status was set for.", ge=0)] = (
        None
    )
    conditions: Annotated[list[Condition], doc("Conditions of the object.", max_length=32, keys=("type",))] = []

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of a type; None if there is none."""
        for condition in self.conditions:
            if condition.type == type_:
                return condition
        return None


ReadyState = Literal["Ready", "Failed", "Skipped", "Pending"]


class Readiness(NamedTuple):
    """The readiness of an object for those that depend on it."""

    state: ReadyState
    reason: str = ""
    message: str = ""


READY = Readiness("Ready")


@cache
def _decoder(type_: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


class Object(Model):
    """Base of every kind: `apiVersion` and `kind` are the class's own, `spec` and `status` are added by the kind."""

    api: ClassVar[Kind]
    metadata: Annotated[ObjectMeta, doc("Name, identity, version and lifecycle.")]

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Decode an object of this kind from JSON."""
        decoded: Self = _decoder(cls).decode(value)
        return decoded

    def readiness(self) -> Readiness:
        """Return the readiness for dependents. Plain data is ready as soon as it exists."""
        return READY

    def over(self) -> bool:
        """Report whether the object is finished: controllers do nothing about it any more."""
        return False


@cache
def status_type(type_: type[Object]) -> type[Any]:
    """Return the type of a kind's status."""
    field = next(one for one in msgspec.inspect.type_info(type_).fields if one.name == "status")  # type: ignore[attr-defined]
    while isinstance(field, msgspec.inspect.Field | msgspec.inspect.Metadata):
        field = field.type
    members = field.types if isinstance(field, msgspec.inspect.UnionType) else (field,)
    found: type[Any] = next(one.cls for one in members if isinstance(one, msgspec.inspect.StructType))
    return found


def empty_status(type_: type[Object]) -> Any:
    """Return a status without any observation."""
    return status_type(type_)()


def by_condition(metadata: ObjectMeta, status: ObjectStatus | None, type_: str = "Ready") -> Readiness:
    """Return the readiness by a condition; Pending until the condition is of the current generation."""
    condition = status.condition(type_) if status else None
    if status is None or condition is None:
        return Readiness("Pending", "NotObserved", "no controller has reported on it yet")
    observed = condition.observed_generation or status.observed_generation or 0
    if observed < metadata.generation:
        return Readiness("Pending", "OutOfDate", f"generation {metadata.generation} is not observed yet")
    state: ReadyState = "Ready" if condition.status == "True" else "Pending"
    return Readiness(state, condition.reason, condition.message)


def with_condition(conditions: Sequence[Condition], new: Condition, now: float) -> list[Condition]:
    """Return conditions with a new one in its place. Its transition time is `now` only if its status changes."""
    message = new.message if len(new.message) <= MESSAGE_LENGTH_MAX else new.message[: MESSAGE_LENGTH_MAX - 1] + "…"
    old = next((one for one in conditions if one.type == new.type), None)
    if old is not None and old.status == new.status and old.last_transition_time is not None:
        since = old.last_transition_time
    else:
        since = datetime.fromtimestamp(int(now), UTC)
    placed = msgspec.structs.replace(new, message=message, last_transition_time=since)
    if old is None:
        return [*conditions, placed]
    return [placed if one is old else one for one in conditions]


def without_condition(conditions: Sequence[Condition], type_: str) -> list[Condition]:
    """Return conditions without the one of a type."""
    return [one for one in conditions if one.type != type_]
