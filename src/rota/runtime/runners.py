"""The runners that are connected: what each last said of itself, and how to tell it something."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from rota.client.websocket import Closed, WebSocket
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.messages import (
    Acknowledge,
    Assign,
    Called,
    Ended,
    Report,
    ToRunner,
    encode,
    from_runner,
    held,
)

BAD_MESSAGE = 1008
REPLACED = 4001
"""Codes with which a stream is closed: it said what is not understood; a newer one took its place."""
RETURN_SECONDS_MAX = 10.0
"""How long a runner that was there may take to come back before it counts as gone. Its process is seen to anyway."""


class Runners:
    """All runners of a server. One stream for each instance: the newest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._streams: dict[Subject, WebSocket] = {}
        self._reports: dict[Subject, Report] = {}
        self._ends: dict[Subject, dict[str, Outcome]] = {}
        """What was told on the stream of each, and nobody has acknowledged."""
        self._listeners: list[Callable[[Subject], None]] = []
        self._outcome_listeners: list[Callable[[Subject, Outcome], None]] = []
        self._call_listeners: list[Callable[[Subject, Called], None]] = []

    def report(self, subject: Subject) -> Report | None:
        """What a runner that is connected said last; None: it is not connected."""
        return self._reports.get(subject)

    def outcomes(self, subject: Subject) -> list[Outcome]:
        """How tasks of a runner ended, for whoever was not there to hear it: on one stream it says so once."""
        return list(self._ends.get(subject, {}).values())

    def stream(self, subject: Subject) -> WebSocket | None:
        """What it is told on. Another one than before has been told nothing yet."""
        return self._streams.get(subject)

    def may_return(self) -> float:
        """For how long it is no news that a runner is not connected: they all come back when the server does."""
        return self._began + RETURN_SECONDS_MAX - self._clock()

    def send(self, subject: Subject, message: ToRunner) -> bool:
        """Tell a runner something; whether it is there to be told."""
        stream = self._streams.get(subject)
        if stream is None:
            return False
        try:
            stream.send(encode(message).decode())
        except Closed:
            return False
        if isinstance(message, Acknowledge):
            self._ends.get(subject, {}).pop(message.id, None)
        report = self._reports.get(subject)
        if isinstance(message, Assign) and report is not None and report.phase in ("Idle", "Held"):
            self._reports[subject] = held(report, message.job.id)
        return True

    def listen(self, heard: Callable[[Subject], None]) -> Callable[[], None]:
        """Be told of every runner that comes, goes or says something new. Returns how to end that."""
        self._listeners.append(heard)
        return lambda: self._listeners.remove(heard)

    def hear_outcomes(self, heard: Callable[[Subject, Outcome], None]) -> Callable[[], None]:
        """Be told how tasks ended. Returns how to end that."""
        self._outcome_listeners.append(heard)
        return lambda: self._outcome_listeners.remove(heard)

    def hear_calls(self, heard: Callable[[Subject, Called], None]) -> Callable[[], None]:
        """Be told how calls ended. Returns how to end that."""
        self._call_listeners.append(heard)
        return lambda: self._call_listeners.remove(heard)

    async def serve(self, subject: Subject, stream: WebSocket) -> None:
        """The life of one stream."""
        before = self._streams.get(subject)
        self._streams[subject] = stream
        self._reports.pop(subject, None)
        self._ends.pop(subject, None)
        if before is not None:
            before.start_closing(REPLACED, "another stream of this instance took its place")
        try:
            async for text in stream:
                try:
                    said = from_runner.decode(text)
                except msgspec.MsgspecError as error:
                    await stream.close(BAD_MESSAGE, str(error)[:100])
                    return
                if self._streams.get(subject) is not stream:
                    continue
                if isinstance(said, Ended):
                    self._ends.setdefault(subject, {})[said.outcome.id] = said.outcome
                    for heard in tuple(self._outcome_listeners):
                        heard(subject, said.outcome)
                elif isinstance(said, Called):
                    for told in tuple(self._call_listeners):
                        told(subject, said)
                else:
                    self._reports[subject] = said
                    self._tell(subject)
        except Closed:
            pass
        finally:
            if self._streams.get(subject) is stream:
                del self._streams[subject]
                self._reports.pop(subject, None)
                self._ends.pop(subject, None)
                self._tell(subject)

    def _tell(self, subject: Subject) -> None:
        for heard in tuple(self._listeners):
            heard(subject)
