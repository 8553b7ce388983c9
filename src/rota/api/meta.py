"""What every object has: metadata, conditions, and the frame around spec and status."""

from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import msgspec
import msgspec.inspect

from rota.api.kind import Kind
from rota.api.model import MESSAGE_LENGTH_MAX, Model, Time, doc

# Metadata has no bounds here: its own, which Kubernetes sets, are checked where objects are admitted, and what another
# API server has admitted must be readable.


class OwnerReference(Model):
    """The object that another one belongs to and is deleted with."""

    api_version: Annotated[str, doc("The owner's API version.")] = ""
    kind: Annotated[str, doc("The owner's kind.")] = ""
    name: Annotated[str, doc("The owner's name.")] = ""
    uid: Annotated[str, doc("The owner's uid: a namesake made later is another object.")] = ""
    controller: Annotated[bool | None, doc("Whether the owner is the one controller of this object.")] = None
    block_owner_deletion: Annotated[
        bool | None, doc("Whether a foreground deletion of the owner waits for this object to be gone.")
    ] = None


class ManagedFieldsEntry(Model):
    """Which fields one manager owns."""

    manager: Annotated[str | None, doc("Who wrote the fields.")] = None
    operation: Annotated[str | None, doc("How they were written: Apply or Update.")] = None
    api_version: Annotated[str | None, doc("The version of the fields' names.")] = None
    time: Annotated[Time | None, doc("When the set of fields last changed.")] = None
    fields_type: Annotated[str | None, doc("Always FieldsV1.")] = None
    fields_v1: Annotated[dict[str, Any] | None, doc("The set of fields.")] = None
    subresource: Annotated[str | None, doc("The subresource they were written through.")] = None


class ObjectMeta(Model):
    """Name, identity, version and lifecycle of an object."""

    name: Annotated[str, doc("The name, unique for its kind in its namespace.")] = ""
    generate_name: Annotated[str | None, doc("A prefix that the server completes to a unique name.")] = None
    namespace: Annotated[str, doc("The namespace; empty for cluster kinds.")] = ""
    self_link: Annotated[str | None, doc("Not used any more.")] = None
    uid: Annotated[str, doc("The object's identity in time, set by the server.")] = ""
    resource_version: Annotated[str, doc("The version of this state, set by the server.")] = ""
    generation: Annotated[int, doc("Counts changes of the desired state, set by the server.")] = 0
    creation_timestamp: Annotated[Time | None, doc("When the object was made, set by the server.")] = None
    deletion_timestamp: Annotated[Time | None, doc("When the object was asked to go, set by the server.")] = None
    deletion_grace_period_seconds: Annotated[int | None, doc("Seconds granted to go in, set by the server.")] = None
    labels: Annotated[dict[str, str], doc("Short facts to select objects by.")] = {}
    annotations: Annotated[dict[str, str], doc("Facts for people and tools, not for selection.")] = {}
    owner_references: Annotated[list[OwnerReference], doc("What this object belongs to.", keys=("uid",))] = []
    finalizers: Annotated[list[str], doc("Who has to act before a deleted object may be gone.", unique=True)] = []
    managed_fields: Annotated[list[ManagedFieldsEntry], doc("Who owns which fields.")] = []


class Condition(Model):
    """One aspect of an object's current state."""

    type: Annotated[str, doc("The aspect.", min_length=1, max_length=316)]
    status: Annotated[Literal["True", "False", "Unknown"], doc("Whether it holds.")]
    reason: Annotated[str, doc("Why, as one CamelCase word for programs.", max_length=1024)] = ""
    message: Annotated[str, doc("Why, as a sentence for people.", max_length=MESSAGE_LENGTH_MAX)] = ""
    last_transition_time: Annotated[Time | None, doc("When the status last changed.")] = None
    observed_generation: Annotated[int | None, doc("The generation it speaks of.", ge=0)] = None


class ObjectStatus(Model):
    """What every status has."""

    observed_generation: Annotated[int | None, doc("The generation that this status speaks of.", ge=0)] = None
    conditions: Annotated[list[Condition], doc("The aspects of the current state.", max_length=32, keys=("type",))] = []

    def condition(self, type_: str) -> Condition | None:
        """The condition of this type, if there is one."""
        for condition in self.conditions:
            if condition.type == type_:
                return condition
        return None


ReadyState = Literal["Ready", "Failed", "Skipped", "Pending"]


class Readiness(NamedTuple):
    """Whether what depends on an object may go on."""

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
        """An object of this kind from its JSON."""
        decoded: Self = _decoder(cls).decode(value)
        return decoded

    def readiness(self) -> Readiness:
        """Whether what depends on this object may go on. Plain data is ready as soon as it exists."""
        return READY

    def over(self) -> bool:
        """Whether the object has come to its end: nothing will be done about it any more."""
        return False


@cache
def status_type(type_: type[Object]) -> type[Any]:
    """The type of a kind's status."""
    field = next(one for one in msgspec.inspect.type_info(type_).fields if one.name == "status")  # type: ignore[attr-defined]
    while isinstance(field, msgspec.inspect.Field | msgspec.inspect.Metadata):
        field = field.type
    members = field.types if isinstance(field, msgspec.inspect.UnionType) else (field,)
    found: type[Any] = next(one.cls for one in members if isinstance(one, msgspec.inspect.StructType))
    return found


def empty_status(type_: type[Object]) -> Any:
    """A status of a kind that says nothing yet."""
    return status_type(type_)()


def by_condition(metadata: ObjectMeta, status: ObjectStatus | None, type_: str = "Ready") -> Readiness:
    """Readiness as a condition tells it, once the condition speaks of the current generation."""
    condition = status.condition(type_) if status else None
    if status is None or condition is None:
        return Readiness("Pending", "NotObserved", "no controller has reported on it yet")
    observed = condition.observed_generation or status.observed_generation or 0
    if observed < metadata.generation:
        return Readiness("Pending", "OutOfDate", f"generation {metadata.generation} is not observed yet")
    state: ReadyState = "Ready" if condition.status == "True" else "Pending"
    return Readiness(state, condition.reason, condition.message)
