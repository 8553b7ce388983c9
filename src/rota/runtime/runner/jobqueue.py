"""The jobs of a worker: a queue, the job that runs, and the outcomes that the server has not acknowledged.

- Jobs begin in the order in which they were assigned, one at a time. The next one begins when the outcome of the last
  is written, and does not wait for its acknowledgement.
- A job that has begun is never begun again. One that is queued, running or known to have ended is not queued again.
- A job that has not begun can be withdrawn. A job that is withdrawn or not accepted is returned.
- Outcomes are synced in groups while jobs follow each other, and sent after that. The last of them is synced at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.runtime.runner.box import Box, BoxLost
from rota.runtime.runner.executor import Executor
from rota.runtime.runner.jobs import Job, Outcome
from rota.runtime.runner.journal import Journal, JournalFull, NoSpace
from rota.runtime.runner.messages import BEGAN_SECONDS, Began, Ended, Jobs, Returned
from rota.runtime.runner.stopping import GRACE_SECONDS
from rota.runtime.workspace import HOME

log = logging.getLogger(__name__)

JOBS_QUEUED_MAX = 64
"""The most jobs that wait to begin. Further jobs are returned."""
ENDS_SYNCED_TOGETHER = 4
SYNC_SECONDS_MAX = 0.002
"""Bounds on outcomes that are synced together while jobs follow each other: their number and the time."""
FAREWELL_SECONDS_MAX = 1.0
"""The most seconds for which a runner that has to end waits for each acknowledgement."""

Message = Began | Ended | Returned


class JobPlace(NamedTuple):
    """The box and the tree in which a job runs."""

    box: Box
    inside: str
    """The path of the worker's folder in the box."""
    commit: str = ""
    """The commit of the box's tree."""
    note: str = ""
    """A note for people on the tree, for instance that it may be outdated."""


class JobQueue:
    """All jobs of one worker.

    `changed` is called when a job could begin and when none runs any more; `send` with messages for the server. `place`
    is called before a job that follows another one without a pause. It returns None if something has to be prepared
    before.
    """

    def __init__(
        self,
        folder: Path,
        changed: Callable[[], None],
        send: Callable[[Message], None],
        place: Callable[[], JobPlace | None],
    ) -> None:
        self._journal = Journal(folder)
        self._executor = Executor(self._journal, self._record)
        self._changed = changed
        self._send = send
        self._place = place
        self._queued: dict[str, Job] = {}
        self._cancelled: set[str] = set()
        """Queued jobs that are cancelled. Each ends when it becomes the first of the queue."""
        self._work: asyncio.Task[None] | None = None
        self._running = ""
        self._has_begun = self._is_single = self._is_ending = False
        self._began = 0.0
        self._began_timer: asyncio.TimerHandle | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._is_enough = asyncio.Event()
        """Set when enough outcomes are written to sync them together."""
        self._acknowledged = asyncio.Event()
        self.trouble: OSError | None = None
        """The error of the journal, if it cannot be written: nothing may run any more, and the runner has to end."""

    @property
    def has_next(self) -> bool:
        return bool(self._queued)

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    @property
    def holder(self) -> str:
        """The running job, else the oldest job whose outcome is not acknowledged; empty if there is neither."""
        return self._running or self._journal.oldest_pending()

    def next_id(self) -> str:
        """Return the id of the next job; empty if there is none."""
        return next(iter(self._queued), "")

    def pending(self) -> list[Outcome]:
        """Return the outcomes that are on disk and not acknowledged."""
        return self._journal.pending()

    def listed(self) -> Jobs:
        return Jobs(self._running, tuple(self._queued))

    # Requests of the server.

    def assign(self, job: Job) -> None:
        """Append a job to the queue, unless the runner has had it already. A job that finds no room is returned."""
        if job.id == self._running or job.id in self._queued or self._journal.is_known(job.id):
            return
        if self._is_ending or len(self._queued) >= self._room():
            self._send(Returned(job.id))
            return
        self._queued[job.id] = job
        self._changed()

    def withdraw(self, ids: Iterable[str]) -> None:
        """Return those jobs to the server that have not begun."""
        for id_ in ids:
            if self._queued.pop(id_, None) is not None:
                self._cancelled.discard(id_)
                self._send(Returned(id_))
        self._changed()

    def cancel(self, id_: str) -> None:
        """End a job. A queued job ends, without running, when it becomes the first of the queue."""
        if id_ in self._queued:
            self._cancelled.add(id_)
        else:
            self._executor.cancel(id_, GRACE_SECONDS)

    def acknowledge(self, id_: str) -> None:
        self._journal.acknowledged(id_)
        self._acknowledged.set()

    def limit_to_one(self, is_single: bool) -> None:
        """Set whether the worker is for a single job. If so, all other jobs are returned."""
        self._is_single = is_single
        self.withdraw(list(self._queued)[self._room() :])

    def _room(self) -> int:
        """Return how many jobs the queue may hold."""
        if not self._is_single:
            return JOBS_QUEUED_MAX
        return 0 if self._has_begun else 1

    # Running.

    def begin(self, place: JobPlace) -> None:
        """Begin the next job. Other jobs follow without a pause as long as the callback `place` returns a place."""
        assert self._queued and not self.is_busy
        job = self._pop()
        self._work = asyncio.create_task(self._run_all(job, place), name="jobs")

    def give_up_next(self, why: str) -> None:
        """End the next job as WorkerLost, because this worker cannot begin it."""
        if self._queued:
            job = self._pop()
            now = time.time()
            try:
                self._record(Outcome(job.id, "WorkerLost", now, now, message=why))
            except NoSpace:
                self._send(Returned(job.id))
            self._running = ""
            self._sync()
            self._changed()

    async def warm(self, box: Box) -> None:
        await self._executor.warm(box)

    def close_interpreters(self) -> bool:
        """Close the interpreters. Return whether there were any; their processes end when the box is cleared."""
        return self._executor.close_interpreters()

    def _pop(self) -> Job:
        job = self._queued.pop(next(iter(self._queued)))
        self._running, self._has_begun = job.id, True
        if self._is_single:
            self.limit_to_one(True)
        return job

    async def _run_all(self, job: Job, place: JobPlace) -> None:
        going: JobPlace | None = place
        while going is not None:
            await self._run(job, going)
            # The worker decides whether another job may begin as if none ran.
            self._running = ""
            may_go_on = bool(self._queued) and self.trouble is None and not self._is_ending
            going = self._place() if may_go_on else None
            if going is not None:
                job = self._pop()
        self._sync()
        self._changed()

    async def _run(self, job: Job, place: JobPlace) -> None:
        # The server does not know the folder of the box.
        cwd = os.path.join(place.inside, job.cwd)
        job = msgspec.structs.replace(job, cwd=cwd, commit=place.commit, note=place.note)
        if job.id in self._cancelled:
            self._cancelled.discard(job.id)
            self._executor.cancel(job.id, GRACE_SECONDS)
        self._began = time.time()
        if self._began_timer is None:
            self._watch_beginning(BEGAN_SECONDS)
        try:
            await self._executor.run(place.box, job, home=f"{place.inside}/{HOME}")
        except BoxLost:
            pass  # The outcome is in the journal.
        except JournalFull as error:
            log.error("a job is not begun: %s", error)
            self._send(Returned(job.id))
        except OSError as error:
            self.trouble = error

    def _watch_beginning(self, seconds: float) -> None:
        self._began_timer = asyncio.get_running_loop().call_later(min(seconds, BEGAN_SECONDS), self._report_beginning)

    def _report_beginning(self) -> None:
        """Send `Began` for a job that has run long enough. One timer serves all jobs, so short jobs cost nothing."""
        self._began_timer = None
        left = self._began + BEGAN_SECONDS - time.time()
        if self._running and left > 0:
            self._watch_beginning(left)
        elif self._running:
            self._send(Began(self._running, self._began))

    # Outcomes.

    def _record(self, outcome: Outcome) -> None:
        """Write an outcome to the journal. It is synced at once, or with those of further jobs if any are queued."""
        self._journal.write_end(outcome)
        if not self._queued:
            self._sync()
        elif self._syncing is None:
            self._syncing = asyncio.create_task(self._sync_together(), name="sync")
        elif self._journal.unsynced >= ENDS_SYNCED_TOGETHER:
            self._is_enough.set()

    def _sync(self) -> None:
        """Sync the journal now. Blocks the event loop."""
        try:
            outcomes = self._journal.sync()
        except OSError as error:
            self._fail(error)
        else:
            self._send_outcomes(outcomes)

    async def _sync_together(self) -> None:
        """Sync outcomes in groups while jobs follow each other."""
        try:
            while self._journal.unsynced:
                # With one job left there is nothing to wait for: its end is synced at once.
                if self._journal.unsynced < ENDS_SYNCED_TOGETHER and len(self._queued) > 1:
                    self._is_enough.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(SYNC_SECONDS_MAX):
                            await self._is_enough.wait()
                if self._journal.unsynced:
                    self._send_outcomes(await self._journal.sync_aside())
        except OSError as error:
            self._fail(error)
        finally:
            self._syncing = None

    def _send_outcomes(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._send(Ended(outcome))

    def _fail(self, error: OSError) -> None:
        self.trouble = error
        self._changed()

    # The end.

    async def finish(self) -> None:
        """End the running job as WorkerLost. Return when the server has all outcomes, or does not acknowledge them."""
        self._is_ending = True
        self.withdraw(list(self._queued))
        if self._work is not None and not self._work.done():
            self._executor.give_up(GRACE_SECONDS)
            await asyncio.wait((self._work,))
        while self.pending():
            self._acknowledged.clear()
            try:
                async with asyncio.timeout(FAREWELL_SECONDS_MAX):
                    await self._acknowledged.wait()
            except TimeoutError:
                return

    def close(self) -> None:
        if self._began_timer is not None:
            self._began_timer.cancel()
        for task in (self._work, self._syncing):
            if task is not None:
                task.cancel()
        self._executor.close()
        self._journal.close()
