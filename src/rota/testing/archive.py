"""An archive in memory, with a bound on its space."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from rota.runtime.archive import ITEM_BYTES_MAX, SORTS, Item, TooLarge, checked
from rota.runtime.instance_log import Place
from rota.runtime.interface import Subject
from rota.runtime.task_logs import UidOf


class MemoryArchive:
    """An archive in memory. Set `space_bytes` to make it full."""

    def __init__(self) -> None:
        self.items: dict[Item, bytes] = {}
        self.space_bytes: int | None = None
        """The space for all items together; None for unbounded."""

    async def put(self, item: Item, content: bytes) -> None:
        checked(item)
        if len(content) > ITEM_BYTES_MAX:
            raise TooLarge(f"{item.owner}: a {item.sort} has at most {ITEM_BYTES_MAX} bytes, not {len(content)}")
        others = sum(len(one) for key, one in self.items.items() if key != item)
        if self.space_bytes is not None and others + len(content) > self.space_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.items[item] = content

    async def get(self, item: Item) -> bytes | None:
        return self.items.get(checked(item))

    async def kept(self, namespace: str, name: str, uid: str) -> Sequence[Item]:
        return [item for item in self._of(namespace, name, uid) if item in self.items]

    async def remove(self, namespace: str, name: str, uid: str) -> None:
        for item in self._of(namespace, name, uid):
            self.items.pop(item, None)

    def _of(self, namespace: str, name: str, uid: str) -> list[Item]:
        return [checked(Item(namespace, name, uid, sort)) for sort in SORTS]

    def drop(self, namespace: str, name: str, uid_of: UidOf) -> None:
        gone = [one for one in self.items if one[:2] == (namespace, name) and uid_of(namespace, name) != one.uid]
        for item in gone:
            del self.items[item]

    def sweep(self, uid_of: UidOf) -> None:
        for item in [one for one in self.items if uid_of(one.namespace, one.name) != one.uid]:
            del self.items[item]

    # Logs.

    def place(self, item: Item) -> str:
        return f"/nowhere/{checked(item).namespace}/{item.owner}.{item.sort}"

    def stream(self, item: Item, begin: int = 0) -> MemoryReader:
        return MemoryReader(self, checked(item), begin)

    def written_bytes(self, item: Item) -> int:
        return len(self.items.get(checked(item), b""))

    def instance_log(
        self,
        subject: Subject,
        container: str,
        lines: int,
        since: tuple[int, int] = (0, 0),
        begin: Place | None = None,
    ) -> MemoryReader:
        """Return an empty log: no process runs here that could write one."""
        return MemoryReader(self, Item(subject.namespace, subject.name, subject.uid, "log"), 0)

    def instance_mark(self, subject: Subject, container: str) -> tuple[int, int] | None:
        return None


class MemoryReader:
    """A reader of an item that may grow."""

    def __init__(self, archive: MemoryArchive, item: Item, at: int) -> None:
        self._archive = archive
        self._item = item
        self._at = at

    def read(self, size: int) -> bytes:
        piece = self._archive.items.get(self._item, b"")[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def position(self, behind: int = 0) -> int:
        return max(0, self._at - behind)

    def close(self) -> None:
        """Do nothing: no file is open."""
