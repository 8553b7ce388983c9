"""Runners in memory: each at the other end of a stream that the hub has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec

from rota.client.websocket import Closed, WebSocket
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import Configure, Hold, Phase, Release, Report, ToRunner, encode, to_runner
from rota.runtime.runners import Runners

ABNORMAL = 1006


class Line:
    """The hub's end of a stream, without a socket."""

    def __init__(self) -> None:
        self.sent: list[ToRunner] = []
        self.is_cut = False
        self.closed: Closed | None = None
        self.unsent_bytes = 0
        self._said: asyncio.Queue[str | None] = asyncio.Queue()

    def say(self, report: Report) -> None:
        self._said.put_nowait(encode([report]).decode())

    def cut(self) -> None:
        self.is_cut = True
        self.closed = Closed(ABNORMAL)
        self._said.put_nowait(None)

    # What the hub does with it.

    def send(self, text: str) -> None:
        if self.is_cut:
            raise Closed(ABNORMAL)
        self.sent += to_runner.decode(text)

    def start_closing(self, code: int, reason: str) -> None:
        self.cut()

    async def __aiter__(self) -> AsyncIterator[str]:
        while (text := await self._said.get()) is not None:
            yield text


class FakeRunner:
    """A runner that says what a test wants, and does nothing by itself."""

    def __init__(self, runners: Runners, subject: Subject, run: int = 0) -> None:
        self._runners = runners
        self._subject = subject
        self.report = Report(run, "Waiting")
        self.told: list[ToRunner] = []
        """On all its streams."""
        self.connect()

    def connect(self) -> None:
        """Anew, if it was before."""
        self.line = Line()
        self.line.sent = self.told
        self._serving = asyncio.create_task(self._runners.serve(self._subject, cast(WebSocket, self.line)))
        self.line.say(self.report)

    def say(self, phase: Phase, **fields: Any) -> None:
        self.report = msgspec.structs.replace(self.report, phase=phase, **fields)
        self.line.say(self.report)

    def cut(self) -> None:
        self.line.cut()

    def be_idle(self) -> None:
        """With what it was told last."""
        self.say("Idle", configured=self.configurations[-1].digest, holder="")

    @property
    def configurations(self) -> list[Configure]:
        return [one for one in self.told if isinstance(one, Configure)]

    @property
    def orders(self) -> list[Hold | Release]:
        return [one for one in self.told if isinstance(one, Hold | Release)]
