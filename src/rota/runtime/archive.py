"""The interface of archives, which keep the logs and results of Tasks, the logs of Instances and the code of Functions.

- An item is kept by its sort and its owner: namespace, name and uid. A later object of the same name is another owner.
- An item is durable when `put` returns, and whole or not there at all. A failed `put` leaves the item before it.
- Names are single steps of a path: every archive refuses others with `UnsafeName`.
- An item has at most `ITEM_BYTES_MAX`.

Never: knows which Tasks exist. The caller decides what is removed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from rota.runtime.instance_log import Place
from rota.runtime.paths import step
from rota.runtime.task_logs import UidOf

if TYPE_CHECKING:
    from rota.runtime.interface import Subject

ITEM_BYTES_MAX = 16 * 1024 * 1024
Sort = Literal["log", "result"]
SORTS: tuple[Sort, ...] = ("log", "result")


class TooLarge(ValueError):  # noqa: N818 - says what is the case
    """The content is larger than ITEM_BYTES_MAX. Nothing of it is kept."""


class Item(NamedTuple):
    """A log or a result of a Task."""

    namespace: str
    name: str
    uid: str
    sort: Sort

    @property
    def owner(self) -> str:
        """The owner within its namespace, as text."""
        return f"{self.name}@{self.uid}"


def log_of(namespace: str, name: str, uid: str) -> Item:
    return Item(namespace, name, uid, "log")


def result_of(namespace: str, name: str, uid: str) -> Item:
    return Item(namespace, name, uid, "result")


def checked(item: Item) -> Item:
    """Return an item after checking its names. Raises `UnsafeName`."""
    step(item.namespace)
    step(f"{item.owner}.{item.sort}")
    return item


class Reader(Protocol):
    """A log that is read piece by piece."""

    def read(self, size: int) -> bytes:
        """Return the next bytes, or none if there are none yet."""
        ...

    def position(self, behind: int = 0) -> int | str:
        """Return the position `behind` bytes before the next read."""
        ...

    def close(self) -> None: ...


class Archive(Protocol):
    """Keeps items that outlive the worker that made them."""

    async def put(self, item: Item, content: bytes) -> None:
        """Keep an item, in place of an earlier one. Raises `TooLarge`, and OSError if there is no space."""
        ...

    async def get(self, item: Item) -> bytes | None:
        """Return an item, or None if it is not kept."""
        ...

    async def kept(self, namespace: str, name: str, uid: str) -> Sequence[Item]:
        """Return the items of an owner."""
        ...

    async def remove(self, namespace: str, name: str, uid: str) -> None:
        """Remove all items of an owner, if any."""
        ...

    def drop(self, namespace: str, name: str, uid_of: UidOf) -> None:
        """Remove the items of a deleted Task in the background.

        `uid_of` returns the uid of the Task that has the name now; its items stay.
        """
        ...

    def sweep(self, uid_of: UidOf) -> None:
        """Remove the items of Tasks that were deleted while no server ran, in the background."""
        ...

    # Logs can be read while they are written.

    def place(self, item: Item) -> str:
        """Return where a runner writes this log. Only the runner interprets the text."""
        ...

    def stream(self, item: Item, begin: int = 0) -> Reader:
        """Read a log from the byte `begin` on, and then follow it. Bytes that were cut from the log count as well."""
        ...

    def written_bytes(self, item: Item) -> int:
        """Return how many bytes were ever written to a log, including those that were cut from it."""
        ...

    def instance_log(
        self,
        subject: Subject,
        container: str,
        lines: int,
        since: tuple[int, int] = (0, 0),
        begin: Place | None = None,
    ) -> Reader:
        """Read the last lines of a container's log, or all from `begin` on, and then follow it.

        `since`: a mark, before which nothing is read.
        """
        ...

    def instance_mark(self, subject: Subject, container: str) -> tuple[int, int] | None:
        """Return a mark of the current end of a container's log, or None if there is no log."""
        ...


class BlobArchive(Protocol):
    """Keeps bytes by their digest. `rota.runtime.blobs` describes the methods."""

    blob_bytes_max: int

    def size(self, digest: str) -> int | None: ...

    def keep(self, digest: str) -> bool: ...

    def counted(self, digest: str) -> int: ...

    def left(self) -> int: ...

    async def put(self, digest: str, pieces: AsyncIterator[bytes], share: int | None = None) -> bool: ...

    def read(self, digest: str) -> AsyncIterator[bytes]: ...

    def collect(self, used: Collection[str]) -> list[str]: ...


async def keep_result(archive: Archive, name: str, uid: str, namespace: str, result: str) -> None:
    """Keep the result of a Task. Call it before writing the status that refers to it."""
    await archive.put(result_of(namespace, name, uid), result.encode())
