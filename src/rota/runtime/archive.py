"""Archives: where the logs and results of Tasks, the logs of Instances and the code of Functions are kept.

- An item is kept under its sort and its owner: namespace, name and uid. A namesake that is made later is another owner.
- What was put is durable when `put` returns, and whole or not there at all. A `put` that fails leaves what was there.
- Names are steps of a path and nothing else: others are refused with `UnsafeName`, by every archive alike.
- An item has a bound, whoever puts it.

Never: knows which Tasks there are. Whoever removes says so.
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
    """More than an item may have. Nothing of it is kept."""


class Item(NamedTuple):
    """One thing that is kept of a Task."""

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
    """Return an item whose names are names. Raises `UnsafeName`."""
    step(item.namespace)
    step(f"{item.owner}.{item.sort}")
    return item


class Reader(Protocol):
    """A log, wherever it was left off."""

    def read(self, size: int) -> bytes:
        """What comes next; empty: nothing yet."""
        ...

    def position(self, behind: int = 0) -> int | str:
        """Where somebody goes on who has all that was read but the last bytes."""
        ...

    def close(self) -> None: ...


class Archive(Protocol):
    """Keeps what outlives the worker that made it."""

    async def put(self, item: Item, content: bytes) -> None:
        """Keep an item, in place of what was kept of it. Raises `TooLarge`, and OSError where there is no space."""
        ...

    async def get(self, item: Item) -> bytes | None:
        """Return an item; None: it is not kept."""
        ...

    async def kept(self, namespace: str, name: str, uid: str) -> Sequence[Item]:
        """Return what is kept of one owner."""
        ...

    async def remove(self, namespace: str, name: str, uid: str) -> None:
        """Remove all that is kept of one owner. Nothing there is no error."""
        ...

    def drop(self, namespace: str, name: str, uid_of: UidOf) -> None:
        """There is no Task of this name any more: remove what is left of it, soon. `uid_of` tells of later ones."""
        ...

    def sweep(self, uid_of: UidOf) -> None:
        """Remove, soon, what is left of Tasks that went while nobody saw it."""
        ...

    # Logs, which are read while they are written.

    def place(self, item: Item) -> str:
        """Return what a runner is told of where to write a log. Only the runner takes it apart."""
        ...

    def stream(self, item: Item, begin: int = 0) -> Reader:
        """Read a log from a byte on of all that was ever written to it, and then what comes."""
        ...

    def written_bytes(self, item: Item) -> int:
        """Return how much was ever written to a log."""
        ...

    def instance_log(
        self,
        subject: Subject,
        container: str,
        lines: int,
        since: tuple[int, int] = (0, 0),
        begin: Place | None = None,
    ) -> Reader:
        """Read the log of a container: its last lines, or all from a place on, and then what comes.

        `since`: a mark, before which nothing is read.
        """
        ...

    def instance_mark(self, subject: Subject, container: str) -> tuple[int, int] | None:
        """Return how far the log of a container is written by now; None: there is none."""
        ...


class BlobArchive(Protocol):
    """Keeps bytes by their digest, as `rota.runtime.blobs` describes."""

    blob_bytes_max: int

    def size(self, digest: str) -> int | None: ...

    def keep(self, digest: str) -> bool: ...

    def counted(self, digest: str) -> int: ...

    def left(self) -> int: ...

    async def put(self, digest: str, pieces: AsyncIterator[bytes], share: int | None = None) -> bool: ...

    def read(self, digest: str) -> AsyncIterator[bytes]: ...

    def collect(self, used: Collection[str]) -> list[str]: ...


async def keep_result(archive: Archive, name: str, uid: str, namespace: str, result: str) -> None:
    """Keep the result of a Task: before its status is written, which says that there is one."""
    await archive.put(result_of(namespace, name, uid), result.encode())
