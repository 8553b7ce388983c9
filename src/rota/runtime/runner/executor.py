"""Runs jobs in a box, one after the other. No job is lost or run twice.

- A job that was begun is never begun again: to run it once more returns its outcome, also after kill -9.
- When its outcome is returned, all its processes have ended, its files are gone and the outcome is in the journal.
- Its standard output and standard error are in its log at once, in the order in which they were written.
- When its first process has ended, the other processes that it started are killed without grace.
- While the disk is full, a job waits to begin, and one that has ended waits for its outcome to be written.
- A job whose time is up or that is cancelled is sent SIGTERM, and is killed after its grace.

A box that is lost, or cannot be cleared, is stopped before the outcome becomes known: so nothing of the job runs on.
Then BoxLost is raised. The outcome is in the journal, or is returned when the same job is run once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from rota.runtime.runner.attempt import Attempt
from rota.runtime.runner.box import Box, BoxLost
from rota.runtime.runner.interpreters import Interpreters
from rota.runtime.runner.job_files import JobFiles
from rota.runtime.runner.jobs import Job, Outcome
from rota.runtime.runner.journal import Journal, NoSpace
from rota.runtime.runner.standard_streams import Capture
from rota.runtime.runner.stopping import Stop

log = logging.getLogger(__name__)

EARLY_MAX = 64
"""The most cancellations that are remembered for jobs which have not arrived yet."""
SPACE_SECONDS = 0.2
"""Seconds between two tries to write on a full disk."""

T = TypeVar("T")


class RunningJob(NamedTuple):
    stop: Stop
    outcome: asyncio.Future[Outcome]


class Executor:
    """Runs the jobs of one runner, one at a time."""

    def __init__(self, journal: Journal, record: Callable[[Outcome], None] | None = None) -> None:
        """`record` writes an outcome to the journal. If it is None, each outcome is synced before it is returned."""
        self._journal = journal
        self._record = record or journal.ended
        self._files = JobFiles(journal.folder)
        self._one_at_a_time = asyncio.Lock()
        self._running: dict[str, RunningJob] = {}
        self._early: dict[str, float] = {}
        self._interpreters: Interpreters | None = None
        self._capture: Capture | None = None
        """The output pipe of the last job, if the next job can use it."""
        self._preparing: asyncio.Task[None] | None = None

    async def run(self, box: Box, job: Job, *, home: str) -> Outcome:
        """Run a job and return its outcome. Raises BoxLost and JournalFull.

        `home`: the path of the home in the box. If this call is cancelled, the job may run on until the box is stopped;
        it has no outcome before that.
        """
        if self._journal.is_known(job.id):
            self._journal.sync()
        known = self._journal.outcome(job.id)
        if known is not None:
            return known
        if job.id in self._running:
            return await asyncio.shield(self._running[job.id].outcome)
        if self._journal.is_known(job.id):
            # An earlier caller began it, was cancelled, and stopped its box.
            return self._journal.lost(job.id)
        running = self._running[job.id] = RunningJob(Stop(), asyncio.get_running_loop().create_future())
        if job.id in self._early:
            running.stop.ask("Cancelled", self._early.pop(job.id))
        try:
            async with self._one_at_a_time:
                outcome = await self._carry_out(box, job, home, running.stop)
            running.outcome.set_result(outcome)
            return outcome
        except BaseException as error:
            running.outcome.set_exception(error if isinstance(error, Exception) else BoxLost("it was given up"))
            running.outcome.exception()  # Mark as retrieved: nobody has to wait for it.
            raise
        finally:
            del self._running[job.id]

    def cancel(self, id_: str, grace_seconds: float) -> None:
        """End a job. A job that arrives later ends at once; a job that has ended keeps its outcome."""
        running = self._running.get(id_)
        if running is not None:
            running.stop.ask("Cancelled", grace_seconds)
        elif not self._journal.is_known(id_):
            self._early[id_] = grace_seconds
            if len(self._early) > EARLY_MAX:
                del self._early[next(iter(self._early))]

    def give_up(self, grace_seconds: float) -> None:
        """End the running job as WorkerLost."""
        for running in self._running.values():
            running.stop.ask("WorkerLost", grace_seconds)

    async def tidy(self, box: Box) -> None:
        """Remove files that a killed runner left in the home. If this fails, the next job does it. Raises BoxLost."""
        await self._files.remove(box)

    async def warm(self, box: Box) -> None:
        """Start interpreters ahead of the first call. Raises BoxLost."""
        await self._warm(box).prepare()

    def close_interpreters(self) -> bool:
        """Close the interpreters. Return whether there were any."""
        had_any = self._interpreters is not None
        self.close()
        return had_any

    def close(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
            self._preparing = None
        if self._interpreters is not None:
            self._interpreters.close()
            self._interpreters = None
        self._close_capture()

    def _close_capture(self) -> None:
        if self._capture is not None:
            self._capture.close()
            self._capture = None

    async def _carry_out(self, box: Box, job: Job, home: str, stop: Stop) -> Outcome:
        if self._preparing is not None:
            await asyncio.wait((self._preparing,))
            self._preparing = None
        started = await _when_there_is_space(lambda: self._journal.begun(job.id))
        if job.kind != "python" or self._interpreters is None or self._interpreters.box is not box:
            self._close_capture()
        capture, self._capture = self._capture, None
        attempt = Attempt(box, job, stop, self._files, lambda: self._warm(box), capture)
        try:
            await attempt.run(home, lambda: self._kept(box))
        except BaseException as error:
            # A call may still run in an interpreter.
            self.close()
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, BoxLost):
                log.exception("a job could not be run to its end")
            await box.stop()
            lost = attempt.outcome(started, time.time())
            await _when_there_is_space(lambda: self._record(lost))
            raise error if isinstance(error, BoxLost) else BoxLost(str(error)) from error
        finally:
            self._capture = attempt.close()
        outcome = attempt.outcome(started, time.time())
        await _when_there_is_space(lambda: self._record(outcome))
        if job.kind == "python" and not self._warm(box).is_prepared():
            # In the background: this job's outcome does not wait for the next job's interpreter.
            self._preparing = asyncio.create_task(self._prepare(box), name="interpreters")
        return outcome

    async def _prepare(self, box: Box) -> None:
        with contextlib.suppress(BoxLost):  # The worker sees `box.lost`.
            await self._warm(box).prepare()

    def _warm(self, box: Box) -> Interpreters:
        if self._interpreters is None or self._interpreters.box is not box:
            self.close()
            self._interpreters = Interpreters(box)
        return self._interpreters

    def _kept(self, box: Box) -> list[str]:
        if self._interpreters is None or self._interpreters.box is not box:
            return []
        return self._interpreters.kept()


async def _when_there_is_space(write: Callable[[], T]) -> T:
    """Write to the journal. Retries while the disk is full, so that no job is lost or run twice."""
    has_said = False
    while True:
        try:
            return write()
        except NoSpace as error:
            if not has_said:
                log.warning("the journal of jobs cannot be written, and is tried again: %s", error)
            has_said = True
        await asyncio.sleep(SPACE_SECONDS)
