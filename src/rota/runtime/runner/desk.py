"""The tasks of a worker: the one that it has, the one that comes next, and those whose end is not known elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from rota.runtime.runner.box import Box, BoxLost
from rota.runtime.runner.executor import Executor
from rota.runtime.runner.jobs import Job, Outcome
from rota.runtime.runner.journal import Journal, JournalFull
from rota.runtime.runner.stopping import GRACE_SECONDS
from rota.runtime.workspace import HOME

log = logging.getLogger(__name__)

FAREWELL_SECONDS_MAX = 1.0
"""How long a runner that is to end waits for somebody to take down what it has to say."""


class Desk:
    """One task at a time. `changed` is called when there is something to begin, or something has ended."""

    def __init__(self, folder: Path, changed: Callable[[], None]) -> None:
        self._journal = Journal(folder)
        self._executor = Executor(self._journal)
        self._changed = changed
        self._next: Job | None = None
        self._running: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self.trouble: OSError | None = None
        """Why nothing can be written down any more: then nothing may be run, and the runner has to end."""

    @property
    def has_next(self) -> bool:
        return self._next is not None

    @property
    def is_busy(self) -> bool:
        return self._running is not None and not self._running.done()

    def pending(self) -> list[Outcome]:
        """What has ended, until that is acknowledged."""
        return self._journal.pending()

    def assign(self, job: Job) -> None:
        """It is begun when its turn comes; one that was begun before is told of again instead."""
        if not self._journal.is_known(job.id):
            self._next = job
        self._changed()

    def cancel(self, id_: str) -> None:
        self._executor.cancel(id_, GRACE_SECONDS)

    def acknowledge(self, id_: str) -> None:
        self._journal.acknowledged(id_)
        self._heard.set()

    def next_id(self) -> str:
        """The id of the one that comes next; empty: there is none."""
        return self._next.id if self._next is not None else ""

    def give_up_next(self, why: str) -> None:
        """The one that comes next cannot be begun by this worker: it has lost it."""
        job, self._next = self._next, None
        assert job is not None and not self.is_busy
        started = self._journal.begun(job.id)
        self._journal.ended(Outcome(job.id, "WorkerLost", started, time.time(), message=why))
        self._changed()

    def begin(self, box: Box, inside: str, *, commit: str = "", note: str = "") -> str:
        """Begin the next one, in a box that sees the worker's folder at `inside`; its id.

        `commit`: that of the tree. `note`: what people should know of that.
        """
        job, self._next = self._next, None
        assert job is not None and not self.is_busy
        # Whoever assigned it does not know where that is.
        job = msgspec.structs.replace(job, cwd=os.path.join(inside, job.cwd), commit=commit, note=note)
        self._running = asyncio.create_task(self._run(box, job, f"{inside}/{HOME}"), name="task")
        return job.id

    async def warm(self, box: Box) -> None:
        await self._executor.warm(box)

    async def _run(self, box: Box, job: Job, home: str) -> None:
        try:
            await self._executor.run(box, job, home=home)
        except BoxLost:
            pass  # The journal says what became of it.
        except JournalFull as error:
            log.error("a task is not begun: %s", error)
        except OSError as error:
            self.trouble = error
        self._changed()

    async def finish(self) -> None:
        """This process is to end: what runs has lost its worker, and somebody is told so."""
        if self.is_busy:
            self._executor.give_up(GRACE_SECONDS)
            assert self._running is not None
            await asyncio.wait((self._running,))
        while self.pending():
            self._heard.clear()
            try:
                async with asyncio.timeout(FAREWELL_SECONDS_MAX):
                    await self._heard.wait()
            except TimeoutError:
                return

    def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
        self._executor.close()
        self._journal.close()
