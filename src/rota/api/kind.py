"""A kind's place in the API beside its fields, and the table of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from rota.api.meta import Object

GROUP = "rota.dev"
VERSION = "v1alpha1"
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
READ_VERBS = ("get", "list", "watch")
ALL = "all"
"""The category that `kubectl get all` shows: running things and their owners, without configuration, as on
Kubernetes."""
SCALE_MAX = 2**31 - 1
"""The greatest number that the scale subresource can show."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a kind's table: its heading, and where its value is."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    """Shown only when the wide form is asked for."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Paths of the scale subresource."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""

    def typed_paths(self) -> tuple[tuple[str, type], ...]:
        """Return each path with the type of its value."""
        numbers: tuple[tuple[str, type], ...] = ((self.spec_replicas, int), (self.status_replicas, int))
        return (*numbers, (self.selector, str)) if self.selector else numbers


AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind's place in the API, in Kubernetes' terms."""

    name: str
    plural: str
    type: type[Object]
    group: str = GROUP
    version: str = VERSION
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = (AGE,)
    scale: Scale | None = None
    has_status: bool = True
    """Status is a subresource: the main verbs ignore it, `/status` changes nothing else."""
    made: bool = False
    """True for objects that Rota makes and people do not write."""
    selectable: tuple[str, ...] = ()
    """Fields that field selectors may use, beside name and namespace."""
    selected_at: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further names that field selectors may use, each with the paths of the stored object that it stands for: the
    first that is not empty counts."""
    custom: bool = True
    """True for a custom resource; False for a kind that every Kubernetes API server has."""
    verbs: tuple[str, ...] = VERBS
    """Verbs that clients can use on its objects."""
    served: bool = True
    """False for kinds that Rota uses on a Kubernetes cluster and does not serve."""
    stored: Kind | None = None
    """The kind in whose form objects are stored, where this is another version of it."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Top-level fields that have another name in the stored form, and that name. Only for other versions of a kind."""

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def bucket(self) -> str:
        """Return the resource and group, such as `workerpools.rota.dev`: its bucket in the store, and its name in
        errors."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> Kind:
        """Return the kind in whose form objects are stored: itself, unless it is another version of that kind."""
        return self.stored or self

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the subresources that objects can be written through."""
        return (*(("status",) if self.has_status else ()), *(("scale",) if self.scale else ()))

    @property
    def singular(self) -> str:
        return self.name.lower()

    @property
    def api(self) -> Kind:
        """Return the kind itself, so that a kind can be used like a class of objects."""
        return self

    def decode(self, value: bytes) -> dict[str, Any]:
        """Decode JSON to a plain dict. A class of objects decodes to an instance of itself."""
        decoded: dict[str, Any] = msgspec.json.decode(value)
        return decoded

    def key(self, namespace: str, name: str) -> str:
        """Return the store key of an object."""
        return f"{self.storage.bucket}/{namespace}/{name}"

    def __repr__(self) -> str:
        return f"<Kind {self.name}.{self.group or 'core'}>"


KINDS: dict[str, Kind] = {}
"""Every kind that is served, by its name; names are unique across groups here."""

BY_BUCKET: dict[str, Kind] = {}
"""Every kind by its bucket, also those that are not served."""

O = TypeVar("O", bound="type[Object]")  # noqa: E741


def kind(
    plural: str,
    *,
    group: str = GROUP,
    version: str = VERSION,
    namespaced: bool = True,
    short: tuple[str, ...] = (),
    columns: tuple[Column, ...] = (),
    scale: Scale | None = None,
    has_status: bool = True,
    made: bool = False,
    selectable: tuple[str, ...] = (),
    selected_at: Mapping[str, tuple[str, ...]] | None = None,
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = VERBS,
    served: bool = True,
) -> Callable[[O], O]:
    """Register a type in the table of kinds."""

    def enter(type_: O) -> O:
        custom = group == GROUP
        entry = Kind(
            name=type_.__name__,
            plural=plural,
            type=type_,
            group=group,
            version=version,
            namespaced=namespaced,
            short_names=short,
            categories=("rota", *categories) if custom else categories,
            columns=(*columns, AGE),
            scale=scale,
            has_status=has_status,
            made=made,
            selectable=selectable,
            selected_at=selected_at or {},
            custom=custom,
            verbs=verbs,
            served=served,
        )
        assert entry.name not in KINDS, f"two kinds named {entry.name}"
        BY_BUCKET[entry.bucket] = entry
        if served:
            KINDS[entry.name] = entry
        type_.api = entry
        return type_

    return enter
