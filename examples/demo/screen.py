"""The output of the demo: lines, coloured on a terminal, and lines for observed changes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from rota.api import Claim, Instance, Schedule, Task, WorkerPool
from rota.client import Update

STYLES = {"call": "cyan", "tick": "magenta", "task": "green", "claim": "yellow", "pool": "blue", "worker": "blue"}
WORD_CHARS = 7
RESULT_CHARS_MAX = 120


class Screen:
    """Prints whole lines, whichever tasks print at the same time."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._last: dict[str, str] = {}

    def say(self, text: str = "", style: str = "") -> None:
        self.console.print(Text(text, style))

    def chapter(self, text: str) -> None:
        self.say()
        self.say(text, "bold")

    def typed(self, command: Sequence[str]) -> None:
        self.say(f"  $ {shlex.join(command)}", "bold cyan")

    def wrote(self, text: str) -> None:
        for line in text.splitlines():
            self.say(f"    {line}", "dim")

    def change(self, word: str, about: str, what: str) -> None:
        """Print a change of an object, unless it is the last one printed of it."""
        if self._last.get(f"{word} {about}") != what:
            self._last[f"{word} {about}"] = what
            self.console.print(Text.assemble("  ", (f"{word:<{WORD_CHARS}}", STYLES[word]), f"{about}: {what}"))


class Watching:
    """Prints changes in the demo's namespace. Subscribe its methods to caches."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.is_closing = False
        """True while the demo deletes its objects, which is not printed."""

    def pool(self, update: Update[WorkerPool]) -> None:
        status = update.new.status if update.new is not None else None
        if status is not None and status.replicas and not self.is_closing:
            self._screen.change("pool", update.key.name, f"{status.ready_replicas} of {status.replicas} workers ready")

    def worker(self, update: Update[Instance]) -> None:
        """Print restarts of a worker only."""
        new = update.new
        if new is None or new.status is None or self.is_closing:
            return
        before = update.old.status.restarts if update.old is not None and update.old.status is not None else 0
        if new.status.restarts > (before or 0):
            self._screen.change("worker", update.key.name, f"ended, and is started again ({new.status.restarts})")

    def claim(self, update: Update[Claim]) -> None:
        status = update.new.status if update.new is not None else None
        if status is not None and status.phase in ("Bound", "Released"):
            self._screen.change("claim", update.key.name, f"{status.phase}, {status.instance_name}")

    def task(self, update: Update[Task]) -> None:
        task, status = update.new, update.new.status if update.new is not None else None
        if task is None or status is None or self.is_closing or status.phase in (None, "Waiting", "Queued"):
            return
        ticks = [one.name for one in task.metadata.owner_references if one.kind == Schedule.api.name]
        if ticks and task.over():
            took = f" on {status.instance_name}" if status.instance_name else ""
            self._screen.change("tick", ticks[0], f"{status.phase}{took}{_result(task)}  [{task.metadata.name}]")
        elif not ticks and task.spec.function is None:
            where = f" on {status.instance_name}" if status.instance_name else ""
            self._screen.change("task", task.metadata.name, f"{status.phase}{where}{_result(task)}")


def _result(task: Task) -> str:
    status = task.status
    if status is None or not task.over():
        return ""
    if status.phase != "Succeeded":
        return f": {status.message or status.reason}"
    if status.result is None:
        return ""
    text = status.result if isinstance(status.result, str) else json.dumps(status.result)
    return f" → {text.strip()[:RESULT_CHARS_MAX]}"
