"""Wait until tasks are over: a bar on a terminal, a line for each task elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rota.api import Task
from rota.api.table import duration
from rota.cli.command import complain
from rota.cli.following import Key, follow_named
from rota.cli.missing_names import complain_missing
from rota.cli.naming import reference
from rota.cli.output import Part, note, print_line
from rota.cli.patience import AWAY, Patience
from rota.cli.session import FAILED
from rota.cli.status_line import StatusLine
from rota.cli.tasks import ending, failure, is_over, progress, status_of
from rota.client import Client

Object = dict[str, Any]

BAR_LENGTH = 24
FULL, EMPTY = "━", "─"
GONE = "Gone"
WORDS = {"Succeeded": "succeeded", "Failed": "failed", "Cancelled": "cancelled", GONE: "gone", "Running": "running"}
STUCK = "DependencyCycle"
"""The reason of a task that waits until a person acts. With any other reason, a dependency may still come."""
STYLES = {"Succeeded": "green", "Failed": "red", "Cancelled": "yellow", GONE: "red"}


class TaskWait:
    """Tasks that are waited for."""

    def __init__(self, client: Client, keys: Sequence[Key]) -> None:
        self._client = client
        self._left: dict[Key, Object | None] = dict.fromkeys(keys)
        self._phases: dict[Key, str] = dict.fromkeys(keys, "")
        self._began = time.monotonic()
        self._status_line = StatusLine(self._progress)
        self._patience = Patience(self._status_line.cleared)
        self._stuck: set[Key] = set()
        """Tasks that cannot go on by themselves and were reported."""
        # Beside a bar, a line for each success is too much.
        self._prints_all = not (self._status_line.is_live and sys.stdout.isatty() and len(keys) > 1)

    async def until_over(self, deadline: float) -> int:
        """Return the exit code: 0 if all have succeeded. The deadline is by the clock of the event loop."""
        async with self._status_line:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._follow()
        if self._left and (doubt := self._patience.doubt):
            complain(f"{doubt}\n{len(self._left)} of {len(self._phases)} tasks are in doubt")
            return AWAY
        for (_, name), task in self._left.items():
            how = "".join(text for text, _ in progress(task or {}))
            complain(f"{reference(Task.api, name)} is not over in time; it is {how}")
        counts = Counter(self._phases.values())
        if not self._prints_all:
            seconds = duration(time.monotonic() - self._began)
            print_line(*_counted(counts), (f" in {seconds}", ""), stream=sys.stderr)
        return 0 if counts["Succeeded"] == len(self._phases) else FAILED

    async def _follow(self) -> None:
        keys = dict.fromkeys(self._phases)
        following = self._patience.follow(lambda: follow_named(self._client, Task.api, keys))
        async with contextlib.aclosing(following) as changes:
            async for at, task in changes:
                if at in self._left:
                    await self._take(at, task)
                if not self._left:
                    return

    async def _take(self, at: Key, task: Object | None) -> None:
        was_there = self._left[at] is not None
        self._left[at] = task
        self._phases[at] = (status_of(task).get("phase") or "") if task is not None else GONE
        if task is not None and not is_over(task):
            self._report_stuck(at, task)
            return
        del self._left[at]
        if self._phases[at] == "Succeeded" and not self._prints_all:
            return
        with self._status_line.cleared():
            if task is None and was_there:
                complain(f"{reference(Task.api, at[1])} is gone")
            elif task is None:
                await complain_missing(self._client, Task.api, at[1])
            elif self._phases[at] != "Succeeded":
                complain(failure(task))
            else:
                print_line(*ending(task))

    def _report_stuck(self, at: Key, task: Object) -> None:
        """Report a task that cannot go on by itself, once."""
        if status_of(task).get("reason") != STUCK:
            self._stuck.discard(at)
        elif at not in self._stuck:
            self._stuck.add(at)
            with self._status_line.cleared():
                how = "".join(text for text, _ in progress(task))
                note(f"{reference(Task.api, at[1])}: {how}")

    def _progress(self) -> list[Part]:
        counts, total = Counter(self._phases.values()), len(self._phases)
        done = sum(counts[phase] for phase in STYLES)
        seconds = duration(time.monotonic() - self._began)
        return [*bar(counts, total), (f"  {done}/{total}", "bold"), (f"  {seconds}  ", "dim"), *_counted(counts)]


def bar(counts: Counter[str], total: int) -> list[Part]:
    """Draw how many of all tasks are over, by outcome."""
    parts: list[Part] = []
    before = 0
    for phase, style in STYLES.items():
        # The ends are rounded, not the lengths: together they are never longer than the bar.
        until = before + counts[phase]
        parts.append((FULL * (until * BAR_LENGTH // total - before * BAR_LENGTH // total), style))
        before = until
    return [*parts, (EMPTY * (BAR_LENGTH - before * BAR_LENGTH // total), "dim")]


def _counted(counts: Counter[str]) -> list[Part]:
    parts: list[Part] = []
    for phase, word in WORDS.items():
        if counts[phase]:
            parts += [(f"{counts[phase]} {word}", STYLES.get(phase, "")), (", ", "")]
    waiting = sum(count for phase, count in counts.items() if phase not in WORDS)
    if waiting:
        parts += [(f"{waiting} waiting", ""), (", ", "")]
    return parts[:-1]
