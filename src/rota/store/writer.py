"""The thread that writes: whatever was accepted while the last commit ran goes into the next. There is no timer.

It owns the connection. It answers by scheduling one callback per commit on the loop; nothing else crosses the threads
but the inbox. Any error is the end: after a failed commit nobody can say what is on the disk, so the thread says so
and takes nothing more.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread

from rota.store import sql
from rota.store.compaction import Policy
from rota.store.core import Group
from rota.store.model import Event

COMMIT_ROWS_MAX = 2048
COMMIT_BYTES_MAX = 8 * 1024 * 1024
COMPACT_STEP_REVISIONS = 512

Append = Callable[[sqlite3.Connection, Sequence[Event]], None]


class Stop:
    """In the inbox: commit what came before, then end."""


class CompactTo:
    """In the inbox: compact up to this revision, in steps, between commits."""

    def __init__(self, revision: int) -> None:
        self.revision = revision


Message = list[Group] | CompactTo | Stop


class Writer:
    def __init__(
        self,
        connection: sqlite3.Connection,
        policy: Policy,
        append: Append,
        *,
        compacted: int,
        published: Callable[[list[Group]], None],
        moved: Callable[[int], None],
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._connection = connection
        self._policy = policy
        self._append = append
        self._compacted = compacted
        self._target = compacted
        self._published = published
        self._moved = moved
        self._ended = ended
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._waiting: list[Group] = []  # taken from the inbox, too many for one commit
        self._stopping = False
        # A process that ends without closing its store loses nothing: it is a crash, which the file survives.
        self._thread = Thread(target=self._run, name="rota-store-writer", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    def send(self, message: Message) -> None:
        self._inbox.put(message)

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            while not (self._stopping and not self._waiting):
                self._turn()
        except BaseException as error:
            failure = error
        try:
            # Also rolls back what was not committed. After a failure this may fail as well, and adds nothing to it.
            self._connection.close()
        except sqlite3.Error as error:
            failure = failure or error
        self._tell(self._ended, failure)

    def _turn(self) -> None:
        """One commit, one step of compaction, or both."""
        groups = self._take()
        if groups:
            events = [row[0] for group in groups for row in group.rows]
            self._append(self._connection, events)
            self._policy.note(events[-1].rev, sum((event.prev is not None) + event.deleted for event in events))
            self._target = max(self._target, self._policy.target())
            self._tell(self._published, groups)
        if self._target > self._compacted and not self._stopping:
            upto = min(self._target, self._compacted + COMPACT_STEP_REVISIONS)
            sql.compact(self._connection, self._compacted, upto)
            self._compacted = upto
            self._policy.compacted(upto)
            self._tell(self._moved, upto)

    def _take(self) -> list[Group]:
        """The groups of the next commit. Waits for some unless there is other work."""
        idle = not self._waiting and self._target <= self._compacted
        try:
            self._receive(self._inbox.get(block=idle))
            while True:
                self._receive(self._inbox.get_nowait())
        except Empty:
            pass
        rows = size = count = 0
        for group in self._waiting:
            rows += len(group.rows)
            size += group.size
            if count and (rows > COMMIT_ROWS_MAX or size > COMMIT_BYTES_MAX):
                break
            count += 1
        taken = self._waiting[:count]
        del self._waiting[:count]
        return taken

    def _receive(self, message: Message) -> None:
        if isinstance(message, list):
            self._waiting += message
        elif isinstance(message, CompactTo):
            self._target = max(self._target, message.revision)
        else:
            self._stopping = True

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop was closed without closing the store: nobody is left to tell.
            self._stopping = True
