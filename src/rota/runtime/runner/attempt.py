"""One run of a job in a box: write its files, run it, clear the box, and collect its outcome."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rota.runtime.runner.box import SIGNALLED, Box, BoxCommand, signal_name
from rota.runtime.runner.findings import Findings
from rota.runtime.runner.interpreters import Interpreters
from rota.runtime.runner.job_files import FileNotPlaced, JobFiles
from rota.runtime.runner.jobs import MESSAGE_BYTES_MAX, RESULT_BYTES_MAX, Job, Outcome, Reason, refusal, shortened
from rota.runtime.runner.standard_streams import Capture, input_file
from rota.runtime.runner.stopping import Stop
from rota.runtime.runner.tasklog import TaskLog

log = logging.getLogger(__name__)

NOTHING = "null"
"""The JSON result of a function that returns None."""
CALL_TRIES_MAX = 5
"""The most attempts to make a call that is not begun: its tree changed, or its interpreter was killed at its start."""
NOT_CALLED = "not called: the files of its tree change faster than they are loaded"


class End(NamedTuple):
    """The exit of a job, or the error that prevented its start."""

    code: int | None
    """The exit code, or the negative number of the signal that ended the job. None: it did not start."""
    error: str = ""
    result: str = ""


class Attempt:
    """Runs a job once. `outcome` can be called at any time, also after the box is lost."""

    def __init__(
        self,
        box: Box,
        job: Job,
        stop: Stop,
        files: JobFiles,
        interpreters: Callable[[], Interpreters],
        capture: Capture | None = None,
    ) -> None:
        """`capture`: the output pipe of the last job. It is reused unless something was written to it since."""
        self._box = box
        self._job = job
        self._stop = stop
        self._files = files
        self._interpreters = interpreters
        self._end: End | None = None
        self._started: BoxCommand | None = None
        self._findings = Findings(job.parse)
        self._log: TaskLog | None = None
        self._has_log = bool(job.log)
        if capture is None or not capture.resume(self._on_output):
            capture = Capture(self._on_output, box.uid)
        self._capture = capture
        self._is_output_free = False
        """True if no other process has the write end of the pipe open."""

    def close(self) -> Capture | None:
        """Close the log. Return the pipe if the next job can use it, or close it and return None."""
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
        """Run the job, and return when none of its processes is left. Raises BoxLost when some cannot be ended.

        `kept` returns the commands of the box that run on.
        """
        if self._job.note:
            self._write(f"[rota: {self._job.note}]\n".encode())
        # Files of an earlier job, whose runner was killed.
        await self._files.remove(self._box)
        problem = refusal(self._job)
        if not problem and self._job.files:
            try:
                await self._files.put(self._box, home, self._job.files)
            except FileNotPlaced as error:
                problem = str(error)
        if problem:
            self._end = End(None, problem)
        elif self._stop.why is None:
            await (self._run_command() if self._job.kind == "command" else self._call_function())
        self._stop.over()
        if not self._box.is_clear(kept(), alone=True):
            await self._box.clear(kept(), alone=True)
        self._store_exit()
        self._capture.drain()
        self._findings.close()
        await self._files.remove(self._box)

    def outcome(self, started: float, ended: float) -> Outcome:
        """Return the outcome as far as it is known. Until the job has ended, its reason is WorkerLost."""
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
                    says += [f"it was ended by {signal_name(-end.code)}"]
                says += [end.error or findings.error or findings.last_lines()]
                if not any(says):
                    says += [f"exit code {end.code}, and no output"]
        return "\n".join(filter(None, (*findings.notes, *says)))

    # Running it.

    async def _run_command(self) -> None:
        job = self._job
        self._start_timeout()
        output = self._capture.writing
        with input_file(job.stdin.encode()) as standard_input:
            id_, command = await self._box.run(
                job.argv, env=job.env, cwd=job.cwd, streams=(standard_input, output, output)
            )
        self._capture.started()
        self._started = command
        await self._wait_for_end(id_, command.ended)
        self._store_exit()

    def _store_exit(self) -> None:
        """Store the exit of the command if it has ended."""
        if self._started is not None and self._started.ended.done():
            self._end = End(self._started.ended.result(), self._started.error)

    async def _call_function(self) -> None:
        job = self._job
        self._start_timeout()
        interpreters = self._interpreters()
        for tried in range(1, CALL_TRIES_MAX + 1):
            with input_file(job.stdin.encode()) as standard_input:
                streams = standard_input, self._capture.writing
                id_, replied = await interpreters.call(
                    job.argv[0], job.argv[1:], env=job.env, cwd=job.cwd, streams=streams
                )
            await self._wait_for_end(id_, replied)
            reply = replied.result() if replied.done() else None
            # An interpreter that was asked to end is in no known state.
            interpreters.done(reply if self._stop.why is None else None)
            is_stale = reply is not None and reply.stale
            if reply is not None and not is_stale:
                self._end = End(reply.code, reply.error, reply.result or "")
            elif reply is not None and tried == CALL_TRIES_MAX:
                self._end = End(reply.code, reply.error or NOT_CALLED)
            self._is_output_free = interpreters.is_in_use(id_)
            if not is_stale or self._stop.why is not None:
                return

    def _start_timeout(self) -> None:
        """Start the timeout of the job. Called before any request to the box, which may not answer."""
        if self._job.timeout_seconds is not None:
            self._stop.after(self._job.timeout_seconds)

    async def _wait_for_end(self, id_: str, ended: asyncio.Future[Any]) -> None:
        """Wait until `ended`, or until the grace of a stop request is over. Sends SIGTERM at the first stop request."""
        is_asked = False
        while not ended.done() and await self._stop.wait(ended):
            if self._stop.why is not None and not is_asked and not ended.done():
                is_asked = True
                await self._box.signal(id_, signal.SIGTERM)

    def _on_output(self, data: bytes) -> None:
        self._write(data)
        self._findings.feed(data)

    def _write(self, data: bytes) -> None:
        """Append to the log. The first write creates the file, because most jobs of a busy worker write nothing."""
        if self._log is None and self._has_log:
            self._log = _opened(self._job.log)
            self._has_log = self._log is not None
        if self._log is not None:
            self._log.write(data)


def _opened(path: str) -> TaskLog | None:
    try:
        return TaskLog(Path(path))
    except OSError as error:
        # A task does not fail because its log cannot be written.
        log.warning("%s cannot be written: %s", path, error.strerror)
        return None
