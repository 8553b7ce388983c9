"""Options and results of the verbs."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rota.api import Kind
from rota.api.core import PolicyRule
from rota.registry.errors import unprocessable
from rota.registry.selectors import SharedEvent

FieldValidation = Literal["Strict", "Warn", "Ignore"]
Propagation = Literal["", "Background", "Foreground", "Orphan"]
PatchType = Literal["merge", "json", "strategic"]
Verb = Literal["create", "update", "patch", "apply", "delete", "delete_collection", "amend", "cast", "decided"]


MANAGER_BYTES_MAX = 128


def _check(value: str, choices: tuple[str, ...], name: str) -> None:
    if value not in choices:
        supported = ", ".join(f'"{choice}"' for choice in choices if choice)
        raise unprocessable(f"{name}: Unsupported value: {value!r}: supported values: {supported}")


class WriteOptions(msgspec.Struct, frozen=True):
    """Options of create, update, patch and apply."""

    manager: str = "unknown"
    """The manager that owns the written fields."""
    dry_run: bool = False
    """Decide the write and do not store it."""
    field_validation: FieldValidation = "Warn"
    """The treatment of unknown fields: refuse, warn about, or silently drop them."""
    force: bool = False
    """Apply only: take over fields that others own with different values."""
    restricted: bool = False
    """The writer is not an admin: fields that reach the host are refused (`privileges`)."""
    user: str = ""
    """The name of a restricted writer."""
    held: tuple[PolicyRule, ...] = ()
    """The rules of a restricted writer's Role, which bound the Roles that it may write."""
    uid: str = ""
    """Create only, in this process: the uid of the object. Empty: a new one."""
    with_status: bool = False
    """Create only, in this process: the status is stored too."""
    duplicates: tuple[str, ...] = ()
    """Paths of fields that were sent twice, the last of which counts. They are treated like unknown ones."""

    def __post_init__(self) -> None:
        _check(self.field_validation, ("Strict", "Warn", "Ignore"), "fieldValidation")
        if len(self.manager.encode()) > MANAGER_BYTES_MAX or not self.manager.isprintable():
            raise unprocessable(f"fieldManager: Invalid value: it has at most {MANAGER_BYTES_MAX} printable characters")


class DeleteOptions(msgspec.Struct, frozen=True):
    """Options of delete."""

    propagation: Propagation = ""
    """The deletion of dependents. Empty: by the object's finalizers, else Background."""
    uid: str | None = None
    """A precondition: the object has this uid."""
    resource_version: str | None = None
    """A precondition: the object has this resourceVersion."""
    dry_run: bool = False
    restricted: bool = False
    """The caller is not an admin: see `WriteOptions.restricted`."""
    grace_seconds: int | None = None
    """Seconds to end in, for kinds that take time for that, as a cluster's Pods do; None: the kind's own."""

    def __post_init__(self) -> None:
        _check(self.propagation, ("", "Background", "Foreground", "Orphan"), "propagationPolicy")


class ListOptions(msgspec.Struct, frozen=True):
    """Options of list."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    """Bound on the items of the page; 0 for all."""
    continue_: str = ""
    """The continue token of the previous page."""
    resource_version: str = ""
    resource_version_match: Literal["", "Exact", "NotOlderThan"] = ""

    def __post_init__(self) -> None:
        _check(self.resource_version_match, ("", "Exact", "NotOlderThan"), "resourceVersionMatch")


class WatchOptions(msgspec.Struct, frozen=True):
    """Options of watch."""

    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    """The version to watch from. Empty or 0: begin with the current objects."""
    bookmarks: bool = False
    """Send bookmarks with the position of the watch."""
    send_initial_events: bool | None = None
    """Begin with the current objects, followed by a bookmark if `bookmarks` is set."""


class Operation(msgspec.Struct, frozen=True):
    """A write."""

    verb: Verb
    """The verb; `delete_collection` cannot be batched.

    Only in the process of the registry: `amend` with an `Amendment` as its body, `cast` with a `Cast`, and `decided`
    with a `Decision` that was made earlier.
    """
    kind: Kind
    namespace: str
    name: str = ""
    body: Any = None
    options: WriteOptions = WriteOptions()
    delete: DeleteOptions = DeleteOptions()
    """Options of the deletions, instead of `options`."""
    subresource: str = ""
    patch_type: PatchType = "merge"
    select: ListOptions = ListOptions()
    """The selection of `delete_collection`."""
    joined: bool = False
    """True: written atomically with the previous operation, in a batch that is not atomic. In process only."""

    @property
    def dry_run(self) -> bool:
        return self.delete.dry_run if self.verb in ("delete", "delete_collection") else self.options.dry_run


class Answer(msgspec.Struct, frozen=True):
    """The result of a write: the stored object, as JSON."""

    value: bytes
    revision: int = 0
    warnings: tuple[str, ...] = ()
    created: bool = False
    """True if the write created the object."""
    gone: bool = False
    """True if the object no longer exists."""


class Listing(msgspec.Struct, frozen=True):
    """A page of a list: the stored objects, as JSON."""

    items: list[bytes]
    revision: int
    continue_: str = ""
    remaining: int | None = None


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: bytes
    revision: int
    shared: SharedEvent | None = None
    """Values derived from the event, shared by its watches; None if the event is of one watch alone."""
