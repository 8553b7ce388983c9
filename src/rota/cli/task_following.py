"""Follow a task on the terminal: its output, a line with its progress, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from rota.api import Task
from rota.api.table import duration
from rota.cli import INTERRUPTED
from rota.cli.command import complain, explained
from rota.cli.naming import reference
from rota.cli.output import Part, note, print_line
from rota.cli.patience import AWAY_SECONDS_MAX, Patience
from rota.cli.session import FAILED
from rota.cli.status_line import StatusLine
from rota.cli.task_output import Lines, forms_of, output_of
from rota.cli.task_waiting import report_causes
from rota.cli.tasks import ending, exit_code, is_over, progress, status_of
from rota.client import Client

Object = dict[str, Any]


class Follower:
    """Follows one task until it is over. Ctrl-C cancels the task; a second Ctrl-C stops following."""

    def __init__(self, client: Client, task: Object) -> None:
        self._client = client
        self._task = task
        self._name = task["metadata"]["name"]
        self._own_name = reference(Task.api, self._name)
        self._since = time.monotonic()
        self._reported: list[Part] = []
        self._status_line = StatusLine(self._parts)
        self._patience = Patience(self._status_line.cleared, seconds_max=AWAY_SECONDS_MAX)
        self._following: asyncio.Task[None] | None = None
        self._cancelling: asyncio.Task[None] | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._has_left = False
        self._is_asked = False
        """True once the server has accepted the cancellation."""

    async def run(self) -> int:
        """Return the exit code."""
        self._following = asyncio.create_task(self._follow())
        waiting = report_causes(self._client, self._name, self._is_waiting, self._status_line.cleared)
        self._reporting = asyncio.create_task(waiting)
        with self._interrupts():
            async with self._status_line:
                try:
                    await self._following
                except asyncio.CancelledError:
                    if not self._has_left:
                        raise
                finally:
                    await self._stop()
        if self._has_left:
            note(self._left_as())
            return INTERRUPTED
        if not is_over(self._task):
            complain(f"{self._own_name} is gone: somebody deleted it")
            return FAILED
        print_line(*ending(self._task), stream=sys.stderr)
        return exit_code(self._task)

    def _is_waiting(self) -> bool:
        return self._cancelling is None and status_of(self._task).get("phase") in (None, "Waiting", "Queued")

    def _left_as(self) -> str:
        again = f"`rota logs -f task/{self._name}` follows it again"
        if self._is_asked:
            return f"{self._own_name} was asked to end, and is left to itself; {again}"
        return f"{self._own_name} could not be asked to end, and goes on: `rota cancel task/{self._name}` asks; {again}"

    async def _follow(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch())
                group.create_task(self._show())
        except BaseExceptionGroup as group_of_errors:
            raise group_of_errors.exceptions[0] from None

    async def _stop(self) -> None:
        begun = [task for task in (self._following, self._cancelling, self._reporting) if task is not None]
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)

    # Output.

    async def _watch(self) -> None:
        meta = self._task["metadata"]
        async with contextlib.aclosing(forms_of(self._client, meta["name"], meta["uid"], self._patience)) as forms:
            async for task in forms:
                self._task = task
                now = progress(task)
                if now == self._reported:
                    continue
                self._reported, self._since = now, time.monotonic()
                if not self._status_line.is_live and status_of(task).get("phase") and not is_over(task):
                    note(f"{self._own_name}: {''.join(text for text, _ in now)}")

    async def _show(self) -> None:
        lines = Lines()
        async with contextlib.aclosing(output_of(self._client, self._name, self._patience)) as pieces:
            async for piece in pieces:
                self._write(lines.split(piece))
        self._write(lines.end())

    def _write(self, lines: list[str]) -> None:
        if lines:
            with self._status_line.cleared():
                sys.stdout.write("".join(f"{one}\n" for one in lines))
                sys.stdout.flush()

    def _parts(self) -> list[Part]:
        seconds = duration(time.monotonic() - self._since)
        asked = [(", to be cancelled", "")] if self._cancelling is not None else []
        return [(self._own_name, "bold"), ("  ", ""), *progress(self._task), *asked, (f"  {seconds}", "dim")]

    # Ctrl-C.

    @contextlib.contextmanager
    def _interrupts(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _interrupted(self) -> None:
        assert self._following is not None
        if self._cancelling is None:
            self._cancelling = asyncio.create_task(self._cancel())
        else:
            self._has_left = True
            self._following.cancel()

    async def _cancel(self) -> None:
        with self._status_line.cleared():
            note(f"{self._own_name} is being cancelled; Ctrl-C again leaves it to itself")
        try:
            await self._client.patch(Task.api, self._name, {"spec": {"cancel": True}})
            self._is_asked = True
        except Exception as error:
            _, message = explained(error)
            with self._status_line.cleared():
                complain(f"it cannot be cancelled: {message}")
