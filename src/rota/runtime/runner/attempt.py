"""One job in a box, from its files to the last of what it left."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rota.runtime.runner.box import Box, Command
from rota.runtime.runner.capture import Capture
from rota.runtime.runner.findings import Findings
from rota.runtime.runner.given import given
from rota.runtime.runner.jobs import MESSAGE_BYTES_MAX, RESULT_BYTES_MAX, Job, Outcome, Reason, refusal, shortened
from rota.runtime.runner.placed import NotPlaced, Placed
from rota.runtime.runner.python_calls import SIGNALLED, Interpreters, name_of
from rota.runtime.runner.stopping import Stop
from rota.runtime.runner.tasklog import TaskLog

log = logging.getLogger(__name__)

NOTHING = "null"
"""What a function that returns nothing returns, as JSON."""
CALL_TRIES_MAX = 5
"""How often a call is tried that did not begin: its tree had changed, or its interpreter was killed as it started."""
NOT_CALLED = "not called: the files of its tree change faster than they are loaded"


class End(NamedTuple):
    """How a job ended by itself, or why it could not begin."""

    code: int | None
    """The signal that ended it as a negative number."""
    error: str = ""
    result: str = ""


class Attempt:
    """Runs a job once. What is known of it is there at every moment, whatever becomes of its box."""

    def __init__(
        self,
        box: Box,
        job: Job,
        stop: Stop,
        placed: Placed,
        interpreters: Callable[[], Interpreters],
        capture: Capture | None = None,
    ) -> None:
        """`capture`: the output of the last job, which can be used for this one."""
        self._box = box
        self._job = job
        self._stop = stop
        self._placed = placed
        self._interpreters = interpreters
        self._end: End | None = None
        self._started: Command | None = None
        self._findings = Findings(job.parse)
        self._log: TaskLog | None = None
        self._has_log = bool(job.log)
        if capture is None or not capture.resume(self._take):
            capture = Capture(self._take, box.uid)
        self._capture = capture
        self._is_output_free = False
        """Nobody but this process has its output open."""

    def close(self) -> Capture | None:
        """End it. Returns its output if that can be used for the next job."""
        self._stop.over()
        kept = self._capture if self._is_output_free and self._capture.is_empty else None
        if kept is None:
            self._capture.close()
        else:
            kept.rest()
        if self._log is not None:
            self._log.close()
            self._log = None
        return kept

    async def run(self, home: str, kept: Callable[[], list[str]]) -> None:
        """Returns when nothing of it is left but what is kept; raises BoxLost when that cannot be had."""
        if self._job.note:
            self._write(f"[rota: {self._job.note}]\n".encode())
        # Of a job whose runner was killed.
        await self._placed.remove(self._box)
        problem = refusal(self._job)
        if not problem and self._job.files:
            try:
                await self._placed.put(self._box, home, self._job.files)
            except NotPlaced as error:
                problem = str(error)
        if problem:
            self._end = End(None, problem)
        elif self._stop.why is None:
            await (self._command() if self._job.kind == "command" else self._call())
        self._stop.over()
        if not self._box.is_clear(kept(), alone=True):
            await self._box.clear(kept(), alone=True)
        self._see()
        self._capture.drain()
        self._findings.close()
        await self._placed.remove(self._box)

    def outcome(self, started: float, ended: float) -> Outcome:
        """As far as it is known."""
        findings, end = self._findings, self._end
        code = None if end is None or end.code is None else end.code if end.code >= 0 else SIGNALLED - end.code
        result = end.result if end is not None and (end.result != NOTHING or not findings.result) else ""
        return Outcome(
            self._job.id,
            self._reason(),
            started,
            max(started, ended),
            exit_code=code,
            message=shortened(self._message(), MESSAGE_BYTES_MAX),
            outputs=findings.outputs,
            result=shortened(result, RESULT_BYTES_MAX) or findings.result,
            usage=findings.usage,
            commit=self._job.commit,
            note=self._job.note,
        )

    def _reason(self) -> Reason:
        if self._stop.why is not None:
            return self._stop.why
        if self._end is None:
            return "WorkerLost"
        is_well = self._end.code == 0 and not self._end.error and not self._findings.has_failed
        return "Succeeded" if is_well else "Failed"

    def _message(self) -> str:
        findings, end = self._findings, self._end
        says: list[str] = []
        match self._reason():
            case "Timeout":
                says += [f"it took longer than {self._job.timeout_seconds:g} s", findings.last_lines()]
            case "Cancelled":
                says += ["it was cancelled"]
            case "WorkerLost":
                says += ["its box was lost", findings.last_lines()]
            case "Failed":
                assert end is not None
                if end.code is not None and end.code < 0:
                    says += [f"it was ended by {name_of(-end.code)}"]
                says += [end.error or findings.error or findings.last_lines()]
                if not any(says):
                    says += [f"exit code {end.code}, and nothing was said"]
        return "\n".join(filter(None, (*findings.notes, *says)))

    # How it runs.

    async def _command(self) -> None:
        job = self._job
        self._limit()
        output = self._capture.writing
        with given(job.stdin.encode()) as standard_input:
            id_, command = await self._box.run(
                job.argv, env=job.env, cwd=job.cwd, streams=(standard_input, output, output)
            )
        self._capture.started()
        self._started = command
        await self._until_the_end(id_, command.ended)
        self._see()

    def _see(self) -> None:
        """How the command ended, if it has."""
        if self._started is not None and self._started.ended.done():
            self._end = End(self._started.ended.result(), self._started.error)

    async def _call(self) -> None:
        job = self._job
        self._limit()
        interpreters = self._interpreters()
        for tried in range(1, CALL_TRIES_MAX + 1):
            with given(job.stdin.encode()) as standard_input:
                streams = standard_input, self._capture.writing
                id_, replied = await interpreters.call(
                    job.argv[0], job.argv[1:], env=job.env, cwd=job.cwd, streams=streams
                )
            await self._until_the_end(id_, replied)
            reply = replied.result() if replied.done() else None
            # One that was told to end is in no known state.
            interpreters.done(reply if self._stop.why is None else None)
            is_stale = reply is not None and reply.stale
            if reply is not None and not is_stale:
                self._end = End(reply.code, reply.error, reply.result or "")
            elif reply is not None and tried == CALL_TRIES_MAX:
                self._end = End(reply.code, reply.error or NOT_CALLED)
            self._is_output_free = interpreters.is_in_use(id_)
            if not is_stale or self._stop.why is not None:
                return

    def _limit(self) -> None:
        """Have its time begin, before anything is asked of the box: that may not answer."""
        if self._job.timeout_seconds is not None:
            self._stop.after(self._job.timeout_seconds)

    async def _until_the_end(self, id_: str, ended: asyncio.Future[Any]) -> None:
        """Returns when it has ended, or has had the time to."""
        is_told = False
        while not ended.done() and await self._stop.wait(ended):
            if self._stop.why is not None and not is_told and not ended.done():
                is_told = True
                await self._box.signal(id_, signal.SIGTERM)

    def _take(self, data: bytes) -> None:
        self._write(data)
        self._findings.feed(data)

    def _write(self, data: bytes) -> None:
        """Append to the log, which is there from the first output on: most jobs of a busy worker write nothing."""
        if self._log is None and self._has_log:
            self._log = _opened(self._job.log)
            self._has_log = self._log is not None
        if self._log is not None:
            self._log.write(data)


def _opened(path: str) -> TaskLog | None:
    try:
        return TaskLog(Path(path))
    except OSError as error:
        # Not the fault of the task, and no reason to lose what it does.
        log.warning("%s cannot be written: %s", path, error.strerror)
        return None
