"""Tasks for one real runner, told to it by hand."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Job, Outcome
from rota.runtime.runner.messages import Acknowledge, Assign, Cancel, ToRunner
from tests.workers.running import SUBJECT, Site

SECONDS_MAX = 30.0


class Errands:
    """The jobs of a runner, and the outcomes that it reports. Nothing is acknowledged unless a test does."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.effects = folder / "effects"
        self.log = folder / "task.log"
        self.outcomes: list[Outcome] = []
        self._news = asyncio.Event()
        self._end = site.runners.on_outcomes(self._heard)

    def close(self) -> None:
        self._end()

    def _heard(self, subject: Subject, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._news.set()

    async def reopen(self) -> None:
        """The gateway comes back after it was closed."""
        await self.site.reopen()
        self._end = self.site.runners.on_outcomes(self._heard)

    def assign(self, id_: str, script: str, **more: Any) -> None:
        given: dict[str, Any] = {"env": {"ROTA_ATTEMPT": id_}, "cwd": "repo", "log": str(self.log), **more}
        self._send(Assign(Job(id=id_, kind="command", argv=("sh", "-c", script), **given)))

    def cancel(self, id_: str) -> None:
        self._send(Cancel(id_))

    def acknowledge(self, id_: str) -> None:
        self._send(Acknowledge(id_))

    def _send(self, message: ToRunner) -> None:
        assert self.site.runners.send(SUBJECT, message)

    async def outcome(self, id_: str, number: int = 1) -> Outcome:
        """Return the outcome of an attempt, when it was reported so many times."""
        async with asyncio.timeout(SECONDS_MAX):
            while len(found := [one for one in self.outcomes if one.id == id_]) < number:
                self._news.clear()
                await self._news.wait()
        return found[-1]

    async def run(self, id_: str, script: str, **more: Any) -> Outcome:
        """From its beginning until the worker is free again."""
        self.assign(id_, script, **more)
        outcome = await self.outcome(id_)
        self.acknowledge(id_)
        await self.site.until("Idle", lambda report: not report.holder)
        return outcome

    def effect(self, then: str = "") -> str:
        """A script that leaves a line for its attempt."""
        return f'echo "$ROTA_ATTEMPT" >> {self.effects}; {then}'

    def done(self) -> list[str]:
        return self.effects.read_text().split() if self.effects.exists() else []

    async def terminate(self) -> None:
        """As a keeper asks it to end; returns when it has."""
        assert self.site.process is not None
        self.site.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS_MAX):
            await self.site.process.wait()

    async def restart(self) -> None:
        """It is started again, with what it left, and comes back to its gateway."""
        await self.site.start()
        await self.site.until("Waiting", lambda report: report.has_task)
        self.site.configure()
