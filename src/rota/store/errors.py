"""Errors of stores. Every message says what happened and what to do next."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.store.model import Entry


class StoreError(Exception):
    """Base of the errors of this package."""


class Conflict(StoreError):  # noqa: N818
    """A write expected another revision than the current one. `actual` is the current entry, or None."""

    def __init__(self, key: str, actual: Entry | None) -> None:
        there = f"it is at revision {actual.rev}" if actual else "it does not exist"
        super().__init__(f"{key}: the write expected another revision, {there}; read it again and retry")
        self.key = key
        self.actual = actual


class Gone(StoreError):  # noqa: N818
    """The history from `revision` on is compacted. `compacted` is the oldest revision that is kept."""

    def __init__(self, revision: int, compacted: int) -> None:
        super().__init__(f"revision {revision} is gone, history is kept from {compacted} on; list again")
        self.revision = revision
        self.compacted = compacted


class FutureRevision(StoreError):  # noqa: N818
    """A requested revision is above that of the store."""

    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} is in the future, the store is at {current}")
        self.revision = revision
        self.current = current


class StoreBusy(StoreError):  # noqa: N818
    """Too many writes are accepted and not durable yet. This write was not accepted."""


class StoreStopped(StoreError):  # noqa: N818
    """The store takes no writes any more: it was closed, or a commit failed."""


class StoreFull(StoreError):  # noqa: N818
    """The disk takes no writes at present. This write was not kept; writes succeed again once the disk takes them."""


class WatchClosed(StoreError):  # noqa: N818
    """The watch was closed, or its store was."""


class StoreHeld(StoreError):  # noqa: N818
    """Another process has the file open. `pid` is 0 when it could not be read."""

    def __init__(self, path: str | PathLike[str], pid: int) -> None:
        holder = f"process {pid}" if pid else "another process"
        super().__init__(f"{path} is in use by {holder}; stop that process first, or use another file")
        self.path = path
        self.pid = pid


class StoreCorrupt(StoreError):  # noqa: N818
    """The file is damaged, or is not a store."""

    def __init__(self, path: str | PathLike[str], found: str) -> None:
        super().__init__(f"{path} is damaged or not a Rota store: {found}; restore a backup, or move the file away")
        self.path = path
        self.found = found


class StoreVersion(StoreError):  # noqa: N818
    """The file was written by a newer Rota."""

    def __init__(self, path: str | PathLike[str], version: int, newest: int) -> None:
        known = f"this Rota knows formats up to {newest}"
        super().__init__(f"{path} has format {version}, {known}; upgrade Rota, or restore an older backup")
        self.path = path
        self.version = version
