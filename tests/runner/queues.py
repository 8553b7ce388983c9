"""A queue of jobs with a real box, and what it sends."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rota.runtime.composing import AGENT
from rota.runtime.runner.box import Box
from rota.runtime.runner.jobqueue import JobPlace, JobQueue, Message
from rota.runtime.runner.jobs import Job, Outcome
from rota.runtime.runner.messages import Began, Ended, Returned
from tests.workers.apart import apart

SECONDS_MAX = 30.0


class Queue:
    """The jobs of a worker that is always ready, unless a test says that it is not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent: list[Message] = []
        self.is_ready = True
        self._news = asyncio.Event()
        (folder / "repo").mkdir(exist_ok=True)
        self.box = Box((sys.executable, *AGENT), {"PATH": os.environ["PATH"]}, folder / "note")
        self.jobs = JobQueue(folder / "journal", self._changed, self._send, self._place)

    def _place(self) -> JobPlace | None:
        return JobPlace(self.box, str(self.folder)) if self.is_ready else None

    def _changed(self) -> None:
        if self.jobs.has_next and not self.jobs.is_busy and self.is_ready:
            self.jobs.begin(JobPlace(self.box, str(self.folder)))
        self._news.set()

    def _send(self, message: Message) -> None:
        self.sent.append(message)
        self._news.set()

    def assign(self, id_: str, script: str = "true", **more: Any) -> None:
        effect = f"echo {id_} >> {self.folder}/effects; {script}"
        given: dict[str, Any] = {"env": {}, "cwd": "repo", "argv": ("sh", "-c", effect), "kind": "command", **more}
        self.jobs.assign(Job(id=id_, **given))

    def stuck(self, id_: str) -> None:
        """A job that ends when it is let go."""
        self.assign(id_, f"until test -e {self.folder}/go; do sleep 0.01; done")

    def let_go(self) -> None:
        (self.folder / "go").touch()

    async def until(self, what: Callable[[], Any]) -> Any:
        """Returns when something is so that is said by a message, or by an effect of a job."""
        async with asyncio.timeout(SECONDS_MAX):
            while not (found := what()):
                self._news.clear()
                try:
                    async with asyncio.timeout(0.05):
                        await self._news.wait()
                except TimeoutError:
                    continue
        return found

    async def ended(self, *ids: str) -> list[Outcome]:
        """Their outcomes, when all of them were sent."""
        await self.until(lambda: set(ids) <= {one.id for one in self.outcomes()})
        return [one for one in self.outcomes() if one.id in ids]

    def outcomes(self) -> list[Outcome]:
        return [one.outcome for one in self.sent if isinstance(one, Ended)]

    def returned(self) -> list[str]:
        return [one.id for one in self.sent if isinstance(one, Returned)]

    def began(self) -> list[str]:
        return [one.id for one in self.sent if isinstance(one, Began)]

    def effects(self) -> list[str]:
        path = self.folder / "effects"
        return path.read_text().split() if path.exists() else []


@asynccontextmanager
async def queue_in(folder: Path) -> AsyncIterator[Queue]:
    made = Queue(folder)
    await made.box.start()
    try:
        yield made
    finally:
        made.jobs.close()
        await made.box.stop()


def with_queue(test: Callable[[Queue], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        @apart
        async def in_a_process() -> None:
            async with queue_in(tmp_path) as queue:
                await test(queue)

        in_a_process()

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run
