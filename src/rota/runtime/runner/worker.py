"""The worker of a runner: it prepares the storage, keeps a box ready for jobs and claims, and resets both."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from rota.api.pool import WorkspaceFile
from rota.runtime import workspace
from rota.runtime.runner.box import SIGNALLED, Box, BoxCommand, BoxLost
from rota.runtime.runner.function_calls import CannotLoad, FunctionCalls
from rota.runtime.runner.jobqueue import JobPlace, JobQueue
from rota.runtime.runner.messages import BoxPlace, Configure, FromRunner, Report, WorkspaceSource
from rota.runtime.runner.standard_streams import Capture

log = logging.getLogger(__name__)

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 2.0, 300.0
"""Seconds between two attempts to prepare a worker, growing from the first to the second value."""
SETUP_SECONDS_MAX = 3600.0
OUTPUT_BYTES_MAX = 64 * 1024
"""The most bytes of a set-up command's output that are kept, from its end, for the error message."""
HOME_FILE_MODE = "0600"
HAS_PROGRAM = ("/bin/sh", "-c", 'command -v "$1" || { echo "$PATH"; exit 1; }', "sh")
"""Exits with 0 if the program named by the next argument exists, else prints the PATH that was searched."""
PROGRAM_SECONDS_MAX = 30.0
REF_FRESH_SECONDS = 10.0
"""A task may use a tree without asking the origin if its ref was known to be at the tree's commit so recently."""
REFRESH_SECONDS_MAX = 10.0
"""The most seconds that a task waits for the origin to answer where its ref is now."""


class Worker:
    """One worker: run `live` until it is cancelled. It carries out requests one after the other.

    `changed` is called when `report` may have changed.
    """

    def __init__(self, run: int, home: Path, note: Path, changed: Callable[[], None]) -> None:
        self.send: Callable[[FromRunner], None] = lambda message: None
        """Sends a message to the server, or drops it if there is no stream."""
        self.jobs = JobQueue(
            note.parent / "journal", self._on_jobs_changed, lambda message: self.send(message), self._place_of_following
        )
        self._state = Report(run, "Waiting")
        """The report of the worker when no job holds it. It is Idle while jobs run in a prepared worker."""
        self._report_changed = changed
        self._home = home
        self._note = note
        self._box: Box | None = None
        self._place: BoxPlace | None = None
        """The place that the box was made for."""
        self._configuration: Configure | None = None
        self._changed = asyncio.Event()
        self._used_by: Literal["", "job", "claim"] = ""
        """The kind of holder that has used the worker since the worker was prepared."""
        self._is_released = self._is_setting_up = self._is_waiting = False
        self._claimed_by = ""
        """The claim that gets the worker once its box is cleared."""
        self._made: workspace.Prepared | None = None
        """The record of the tree, with its commit. It stays while a holder uses the tree."""
        self._must_renew = False
        """True if the next job waits until the tree is at the commit to which its ref points now."""
        self._has_program: tuple[Box, str] | None = None
        """The box in which the program of an agent was found, and the program."""
        self._main: BoxCommand | None = None
        self._main_id = ""
        self.calls = FunctionCalls(lambda called: self.send(called), self._changed.set)
        self.exit_code: int | None = None
        """The exit code of the main command once it has ended."""

    @property
    def report(self) -> Report:
        """The state of the worker. A job holds it until its outcome is acknowledged, even during the reset after it."""
        holder = self.jobs.holder or (self.jobs.next_id() if self._must_renew else "")
        if not holder or self._state.holder:
            return self._state
        phase = "Held" if self._state.phase in ("Idle", "Resetting") else self._state.phase
        return msgspec.structs.replace(self._state, phase=phase, holder=holder, has_task=True)

    def configure(self, configuration: Configure) -> None:
        if self._configuration is None or self._configuration.digest != configuration.digest:
            self._configuration = configuration
            # Cleared at once: if this one fails and the last one is sent again, that has to be a change.
            said = self._state
            self._set_state(configured="", reason=said.reason, message=said.message, said=said.said)
            self.jobs.limit_to_one(configuration.reset == "Recreate")
            self._changed.set()

    def hold(self, id_: str) -> None:
        if self._claimed_by:
            # The box is being cleared for a claim. The server repeats the hold until it is reported.
            self._claimed_by = id_
        elif self.report.phase == "Idle" and self._configuration is not None:
            if self._configuration.reset != "Keep":
                # From now on the tree must be made again, also by a runner that comes after this one.
                _forget(self._configuration)
            self._used_by = "claim"
            if self.jobs.close_interpreters():
                # Code of tasks may still run in an interpreter: the claim gets the worker when that has ended.
                self._claimed_by = id_
                self._changed.set()
            else:
                self._set_state(phase="Held", holder=id_)

    def release(self) -> None:
        if self._state.holder:
            self._is_released = True
            self._changed.set()

    def acknowledge(self, id_: str) -> None:
        self.jobs.acknowledge(id_)
        if not self.jobs.holder:
            self._report_changed()
            if self._used_by and self._configuration is not None and self._configuration.reset == "Recreate":
                self._changed.set()

    def _on_jobs_changed(self) -> None:
        """Begin the next job, or wake `live` if something has to be prepared before."""
        if self.jobs.trouble is not None or not (self._is_waiting and self._is_ready_for_jobs()):
            self._changed.set()
        else:
            self._begin_next()
        self._report_changed()

    def _is_ready_for_jobs(self) -> bool:
        """Report whether a job runs, or could begin without preparation."""
        configuration, box = self._configuration, self._box
        if self.jobs.is_busy:
            return True
        if configuration is None or box is None or box.lost.is_set() or self._state.phase != "Idle":
            return False
        if self._place != configuration.place or self._state.configured != configuration.digest:
            return False
        if not self._used_by:
            return True
        if not box.is_as_started():
            return False
        # A job leaves no process running. With reset Keep, the next one gets what it left on the disk.
        return configuration.reset == "Keep" and not configuration.main and _is_open(configuration.place)

    def _place_of_following(self) -> JobPlace | None:
        """Return the place for a job that follows another one, or None if something has to be prepared before."""
        return self._next_place() if self._is_waiting and self._is_ready_for_jobs() else None

    def _begin_next(self, note: str | None = None) -> None:
        """Begin the next job if there is one and nothing has to be prepared. `note`: the result of renewing a tree."""
        if self.jobs.has_next and not self.jobs.is_busy and self._is_ready_for_jobs():
            place = self._next_place(note)
            if place is not None:
                self.jobs.begin(place)
                self._report_changed()

    def _next_place(self, note: str | None = None) -> JobPlace | None:
        configuration, box = self._configuration, self._box
        assert configuration is not None and box is not None
        if note is None and self._is_outdated(configuration):
            # The job holds the worker, and begins when the tree is current.
            self._must_renew = True
            self._changed.set()
            return None
        if configuration.reset != "Keep":
            _forget(configuration)
        self._used_by = "job"
        commit = self._made.commit if self._made is not None else ""
        return JobPlace(box, configuration.place.inside, commit, note or "")

    def _set_state(self, **fields: object) -> None:
        new = msgspec.structs.replace(self._state, **{"reason": "", "message": "", "said": "", **fields})
        if new != self._state:
            self._state = new
            self._report_changed()

    async def live(self) -> None:
        """Prepare, reset and serve until the main command ends. Raises OSError if the journal cannot be written."""
        failures = 0
        try:
            while True:
                if self.jobs.trouble is not None:
                    raise self.jobs.trouble
                configuration = self._configuration
                if configuration is None:
                    await self._changed.wait()
                    self._changed.clear()
                    continue
                self._changed.clear()
                wait: float | None = None
                try:
                    if self._claimed_by:
                        await self._clear_for_claim(configuration)
                    if self._must_renew:
                        await self._renew(configuration)
                    await self._make_ready(configuration)
                    failures = 0
                    if self.exit_code is not None:
                        return
                    self._begin_next()
                except workspace.MustReplace as error:
                    self._give_up_task(error)
                    self._set_state(phase="Broken", reason="MustReplace", message=str(error))
                except (workspace.WorkspaceError, BoxLost, TimeoutError, OSError) as error:
                    self._give_up_task(error)
                    wait = min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2**failures)
                    failures += 1
                    reason = error.reason if isinstance(error, workspace.WorkspaceError) else "BoxFailed"
                    said = error.said if isinstance(error, CannotLoad) else ""
                    self._set_state(
                        phase="Failed", reason=reason, message=str(error) or type(error).__name__, said=said
                    )
                await self._wait_for_change(wait)
        finally:
            await self._stop_box()
            self.jobs.close()

    async def _clear_for_claim(self, configuration: Configure) -> None:
        """Kill the interpreters that ran tasks, and give the worker to the claim."""
        try:
            if self._box is not None:
                await self._box.clear([self._main_id] if self._main is not None else [])
        except BoxLost:
            await self._stop_box()
            await self._start_box(configuration)
        id_, self._claimed_by = self._claimed_by, ""
        self._set_state(phase="Held", holder=id_)

    def _is_outdated(self, configuration: Configure) -> bool:
        """Report whether the ref may have moved since the tree was made. False with reset Keep, or a commit as ref."""
        source, made = configuration.workspace, self._made
        if source is None or made is None or configuration.reset == "Keep" or workspace.is_fixed(source.spec.ref):
            return False
        return not 0 <= time.time() - made.known < REF_FRESH_SECONDS

    async def _renew(self, configuration: Configure) -> None:
        """Begin the next task on the commit of its ref now, or on the present tree if the origin does not answer."""
        source = configuration.workspace
        spec = source.spec if source is not None else None
        is_as_configured = self._place == configuration.place and self._box is not None and not self._box.lost.is_set()
        made = workspace.prepared(Path(configuration.place.record), spec, _home_files(configuration))
        note = (
            await self._renewed(source, made) if is_as_configured and source is not None and made is not None else None
        )
        if note is None:
            # No process may run in a tree that is removed.
            _forget(configuration)
            await self._stop_box()
            await self._prepare(configuration)
            await self._start_box(configuration)
            await self._check_program(configuration)
        self._must_renew = False
        self._begin_next(note or "")

    async def _renewed(self, source: WorkspaceSource, made: workspace.Prepared) -> str | None:
        """Return a note for the task if it can use the present tree (empty: the tree is current), else None."""
        mirror = workspace.Mirror(self._home, network=_network(source))
        try:
            async with asyncio.timeout(REFRESH_SECONDS_MAX):
                of = workspace.Source(source.spec.repo, source.scope, source.secret)
                now = await mirror.current(of, source.spec.ref, since=time.time() - REF_FRESH_SECONDS)
        except (workspace.WorkspaceError, TimeoutError, OSError) as error:
            why = str(error) or f"no answer within {REFRESH_SECONDS_MAX:.0f} s"
            known = f"{time.time() - made.known:.0f} s ago" if made.known else "when it was prepared"
            ref = source.spec.ref or "the default branch"
            return f"its tree is of {made.commit[:12]}, which was {ref} {known}; it may have moved since: {why}"
        finally:
            await mirror.close()
        if (now.commit, now.branch) != (made.commit, made.branch):
            return None
        self._made = made._replace(known=time.time())
        return ""

    def _give_up_task(self, error: Exception) -> None:
        """End the next task as WorkerLost if its tree could not be made. The server tries it again."""
        if self._must_renew:
            self._must_renew = False
            self.jobs.give_up_next(f"its tree could not be made: {error}")

    async def _wait_for_change(self, seconds: float | None) -> None:
        """Wait for a request, the end of the box or of the main command, or until the time has passed."""
        waits: list[asyncio.Future[Any]] = [asyncio.create_task(self._changed.wait())]
        if self._box is not None and not self._box.lost.is_set():
            waits.append(asyncio.create_task(self._box.lost.wait()))
        ended: list[asyncio.Future[Any]] = [self._main.ended] if self._main is not None else []
        self._is_waiting = True
        try:
            await asyncio.wait([*waits, *ended], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_waiting = False
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _make_ready(self, configuration: Configure) -> None:
        """Prepare or reset the worker, unless it is ready or held."""
        place = configuration.place
        record, files = Path(place.record), _home_files(configuration)
        source = configuration.workspace
        spec = source.spec if source is not None else None
        if self._has_ended():
            return
        is_lost = self._box is not None and self._box.lost.is_set()
        if is_lost and self._state.holder:
            # The claim that holds it has lost its processes.
            self._is_released = True
        if self.jobs.is_busy or (self._state.holder and not self._is_released):
            return  # A holder uses it.
        if self._used_by == "job" and configuration.reset == "Recreate" and self.jobs.holder:
            return  # It is not reset before the server has the outcome.
        if self._used_by and configuration.reset != "Keep":
            # The reset policy of the current configuration counts, not that at the beginning of the hold.
            _forget(configuration)
        self._made = made = workspace.prepared(record, spec, files)
        # A tree is not kept if its holder has made it inaccessible to the next one.
        is_prepared = made is not None and _is_open(place)
        if is_prepared and not is_lost and self._can_keep_box(configuration):
            await self._check_program(configuration)
            await self._load_handler(configuration)
            self._free(configuration)
            return
        # Reported before anything is done, so that no holder is given the worker from here on.
        self._set_state(phase="Resetting" if self._used_by else "Preparing")
        await self.calls.drain()
        # No process may run in a tree that is removed, nor one of a holder beside the next holder.
        await self._stop_box()
        if not is_prepared:
            await self._prepare(configuration)
        await self._start_box(configuration)
        await self._check_program(configuration)
        await self._load_handler(configuration)
        self._free(configuration)

    async def _prepare(self, configuration: Configure) -> None:
        """Empty the storage and make the tree."""
        place, source = configuration.place, configuration.workspace
        spec = source.spec if source is not None else None
        mirror = workspace.Mirror(self._home, network=_network(source))
        try:
            self._made = await workspace.prepare(
                mirror,
                spec,
                Path(place.folder),
                lambda argv, tree: self._set_up(configuration, argv),
                source=workspace.Source(spec.repo, source.scope, source.secret) if source and spec else None,
                home_files=_home_files(configuration),
                uid=place.uid,
                record=Path(place.record),
            )
        finally:
            await mirror.close()

    async def _check_program(self, configuration: Configure) -> None:
        """Raise WorkspaceError unless the box has the program of its agent. Each box is checked once."""
        box, program = self._box, configuration.program
        if not program or box is None or self._has_program == (box, program):
            return
        found = await self._run(box, configuration, (*HAS_PROGRAM, program), PROGRAM_SECONDS_MAX)
        if found.code != 0:
            where = "its tree" if "/" in program else found.output.strip()
            fix = "" if "/" in program else ": install it there for all users, or name its folder by PATH in env"
            raise workspace.WorkspaceError("ProgramNotFound", f"a worker finds no program {program} in {where}{fix}")
        self._has_program = box, program

    async def _load_handler(self, configuration: Configure) -> None:
        """Load the handler, if the worker is a function's."""
        if configuration.handler is not None and self._box is not None:
            tree = f"{configuration.place.inside}/{workspace.TREE}"
            await self.calls.start(self._box, configuration.handler, tree)

    def _can_keep_box(self, configuration: Configure) -> bool:
        """Report whether the box is as configured, and free of traces of a holder."""
        if configuration.main:
            # The main command is not restarted for new settings. It is restarted after a hold, whatever else is kept: a
            # holder could have left something in it, or beside it, for the next one.
            return self._main is not None and not self._used_by
        # A job leaves no process running. It may have changed the limits that the next one inherits.
        box = self._box
        if box is None or self._place != configuration.place or self._used_by == "claim":
            return False
        return box.is_as_started()

    def _free(self, configuration: Configure) -> None:
        self._is_released, self._used_by = False, ""
        self._set_state(phase="Idle", holder="", configured=configuration.digest)

    async def finish(self) -> None:
        """End the worker: calls finish, a running job is ended, and the main command gets SIGTERM."""
        await self.calls.finish()
        await self.jobs.finish()
        main = self._main
        if main is not None and self._box is not None:
            with contextlib.suppress(BoxLost):
                await self._box.signal(self._main_id, signal.SIGTERM)
                await asyncio.shield(main.ended)
                self._has_ended()

    def _has_ended(self) -> bool:
        """Report whether the main command has ended by itself, and store its exit code."""
        if self._main is None or not self._main.ended.done():
            return False
        main, self._main = self._main, None
        if main.ended.exception() is not None:
            return False  # It was lost with its box, and is started again with the next one.
        code = main.ended.result()
        if main.error:
            log.error("%s", main.error)
        self.exit_code = code if code >= 0 else SIGNALLED - code
        return True

    async def _start_box(self, configuration: Configure) -> None:
        if self._box is None:
            place = configuration.place
            self._box, self._place = Box(place.argv, place.env, self._note), place
            try:
                await self._box.start()
            except BaseException:
                await self._stop_box()
                raise
        if configuration.main and self._main is None and not self._is_setting_up:
            cwd = configuration.cwd or f"{configuration.place.inside}/{workspace.TREE}"
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._main_id, self._main = await self._box.run(
                    configuration.main, env={}, cwd=cwd, streams=(nothing, 1, 2)
                )
            finally:
                os.close(nothing)

    async def _stop_box(self) -> None:
        self.calls.close()
        box, self._box, self._main = self._box, None, None
        if box is not None:
            try:
                await box.stop()
            except BoxLost as error:
                raise workspace.MustReplace(str(error)) from None

    async def _set_up(self, configuration: Configure, argv: Sequence[str]) -> workspace.Finished:
        """Run the set-up command in the box, and kill what it leaves running."""
        self._is_setting_up = True
        try:
            await self._start_box(configuration)
        finally:
            self._is_setting_up = False
        assert self._box is not None
        return await self._run(self._box, configuration, argv, SETUP_SECONDS_MAX)

    async def _run(
        self, box: Box, configuration: Configure, argv: Sequence[str], seconds_max: float
    ) -> workspace.Finished:
        """Run a command in the tree, and kill what it leaves running."""
        said = bytearray()

        def take(data: bytes) -> None:
            said.extend(data)
            del said[:-OUTPUT_BYTES_MAX]

        capture = Capture(take, box.uid)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            cwd = f"{configuration.place.inside}/{workspace.TREE}"
            streams = (nothing, capture.writing, capture.writing)
            _, command = await box.run(argv, env={}, cwd=cwd, streams=streams)
            capture.started()
            async with asyncio.timeout(seconds_max):
                code = await command.ended
            await box.clear([self._main_id] if self._main is not None else [])
            capture.drain()
        finally:
            os.close(nothing)
            capture.close()
        return workspace.Finished(code, command.error or said.decode(errors="replace"))


def _is_open(place: BoxPlace) -> bool:
    return workspace.is_open(place.folder, (workspace.TREE, workspace.HOME))


def _network(source: WorkspaceSource | None) -> workspace.GitNetwork:
    return workspace.GitNetwork(source.network, source.egress) if source is not None else workspace.GitNetwork()


def _home_files(configuration: Configure) -> list[WorkspaceFile]:
    return [
        WorkspaceFile(path=path, content=content, mode=HOME_FILE_MODE)
        for path, content in sorted(configuration.home_files.items())
    ]


def _forget(configuration: Configure) -> None:
    """Remove the record of the prepared tree, so that the tree is made again."""
    Path(configuration.place.record).unlink(missing_ok=True)
