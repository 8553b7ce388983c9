"""What a caller may ask for beside the object itself."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rota.api import Kind
from rota.api.core import PolicyRule
from rota.registry.errors import unprocessable
from rota.registry.shared import Shared

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
    """On whose behalf fields are owned."""
    dry_run: bool = False
    """Do everything but store it."""
    field_validation: FieldValidation = "Warn"
    """What to do about unknown fields: refuse, warn, or drop them silently."""
    force: bool = False
    """Of apply: take fields over from their owners."""
    restricted: bool = False
    """The writer may not ask for what reaches the host."""
    user: str = ""
    """Of a restricted writer: who it is."""
    held: tuple[PolicyRule, ...] = ()
    """Of a restricted writer with a Role: its rules, beyond which it can write no Role."""
    uid: str = ""
    """Of create, in this process: the identity of what is made. Empty: a new one."""
    with_status: bool = False
    """Of create, in this process: it has a status from the beginning."""
    duplicates: tuple[str, ...] = ()
    """Paths of fields that were sent twice, of which the last counts: refused or warned of as unknown ones are."""

    def __post_init__(self) -> None:
        _check(self.field_validation, ("Strict", "Warn", "Ignore"), "fieldValidation")
        if len(self.manager.encode()) > MANAGER_BYTES_MAX or not self.manager.isprintable():
            raise unprocessable(f"fieldManager: Invalid value: it has at most {MANAGER_BYTES_MAX} printable characters")


class DeleteOptions(msgspec.Struct, frozen=True):
    """Options of delete."""

    propagation: Propagation = ""
    """What happens to the objects that this one owns. Empty: as its finalizers say, else in the background."""
    uid: str | None = None
    """Delete only if it has this uid."""
    resource_version: str | None = None
    """Delete only if it is at this version."""
    dry_run: bool = False
    restricted: bool = False
    """Whoever deletes it may not ask for what reaches the host."""

    def __post_init__(self) -> None:
        _check(self.propagation, ("", "Background", "Foreground", "Orphan"), "propagationPolicy")


class ListOptions(msgspec.Struct, frozen=True):
    """Options of list."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    """Items at most; 0: all."""
    continue_: str = ""
    """Where the previous page ended."""
    resource_version: str = ""
    resource_version_match: Literal["", "Exact", "NotOlderThan"] = ""

    def __post_init__(self) -> None:
        _check(self.resource_version_match, ("", "Exact", "NotOlderThan"), "resourceVersionMatch")


class WatchOptions(msgspec.Struct, frozen=True):
    """Options of watch."""

    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    """Watch from here. Empty or 0: begin with what there is."""
    bookmarks: bool = False
    """Say from time to time how far the watch is."""
    send_initial_events: bool | None = None
    """Begin with what there is, then mark the end of that by a bookmark."""


class Operation(msgspec.Struct, frozen=True):
    """One write."""

    verb: Verb
    """`delete_collection` is written alone. The body of `amend` is an `Amendment`, that of `cast` a `Cast`, that of
    `decided` what `prepare` has decided: all three only in the process of the registry."""
    kind: Kind
    namespace: str
    name: str = ""
    body: Any = None
    options: WriteOptions = WriteOptions()
    delete: DeleteOptions = DeleteOptions()
    """Of the deletions, instead of `options`."""
    subresource: str = ""
    patch_type: PatchType = "merge"
    select: ListOptions = ListOptions()
    """Of `delete_collection`: which objects."""
    joined: bool = False
    """Where each is written by itself, in the process of the registry: all or none with the one before."""

    @property
    def dry_run(self) -> bool:
        return self.delete.dry_run if self.verb in ("delete", "delete_collection") else self.options.dry_run


class Answer(msgspec.Struct, frozen=True):
    """What a write came to: the object as it is stored, as JSON."""

    value: bytes
    revision: int = 0
    warnings: tuple[str, ...] = ()
    created: bool = False
    """Whether an apply made the object."""
    gone: bool = False
    """Whether the object no longer exists after this."""


class Listing(msgspec.Struct, frozen=True):
    """A page of a list: the objects as they are stored, as JSON."""

    items: list[bytes]
    revision: int
    continue_: str = ""
    remaining: int | None = None


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: bytes
    revision: int
    shared: Shared | None = None
    """Work on the same event that other watches have done; None: it is of this watch alone."""
