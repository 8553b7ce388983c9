"""The connected runners: the last report of each, and a way to send to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec import Raw
from msgspec.json import Decoder

from rota.api.problems import NOT_JSON
from rota.client.websocket import Closed, WebSocket
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Outcome, storable
from rota.runtime.runner.journal import PENDING_MAX
from rota.runtime.runner.messages import (
    FRAME_BYTES,
    Acknowledge,
    Assign,
    Began,
    Called,
    Ended,
    FromRunner,
    Jobs,
    Report,
    Returned,
    ToRunner,
    encode,
    frames,
    from_runner,
    held,
)

BAD_MESSAGE = 1008
REPLACED = 4001
TOO_SLOW = 4002
"""Codes with which a stream is closed: a message was not understood; a newer stream has replaced it; the runner does
not read what is sent to it.
"""
RETURN_SECONDS_MAX = 10.0
"""Seconds that a disconnected runner has to come back before it counts as gone. Its process is watched anyway."""
BUFFERED_BYTES_MAX = 32 * 1024 * 1024
"""The most bytes that wait for one runner. Beyond, its stream is closed."""

FRAME_CHARACTERS_MAX = 2 * FRAME_BYTES
"""The largest frame with more than one message. Runners keep to half of it."""
MESSAGES_AT_ONCE = 200
"""Messages of one runner that are handled before those of others get a turn."""

_parts = Decoder(list[Raw]).decode
JobNews = Jobs | Began | Returned


class Outbox:
    """Sends to one stream. The messages of one iteration of the event loop are sent as one frame."""

    def __init__(self, stream: WebSocket) -> None:
        self._stream = stream
        self._waiting: list[bytes] = []
        self._bytes = 0
        stream.before_close = self.flush

    def send(self, message: ToRunner) -> bool:
        """Queue a message. Returns False if the stream is closed. Closes it if the runner is too slow."""
        if self._stream.closed is not None:
            return False
        content = encode(message)
        if self._bytes + len(content) + self._stream.unsent_bytes > BUFFERED_BYTES_MAX:
            self._waiting.clear()
            self._stream.start_closing(TOO_SLOW, f"more than {BUFFERED_BYTES_MAX} bytes wait to be read")
            return False
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(content)
        self._bytes += len(content)
        return True

    def flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        try:
            for frame in frames(waiting):
                self._stream.send(frame)
        except Closed:
            pass  # The server repeats what is needed when the runner is back.


class Runners:
    """All runners of a server. Each instance has one stream: the newest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._streams: dict[Subject, WebSocket] = {}
        self._outboxes: dict[Subject, Outbox] = {}
        self._reports: dict[Subject, Report] = {}
        self._ends: dict[Subject, dict[str, Outcome]] = {}
        """The outcomes that came on the present stream of each runner, and are not acknowledged."""
        self._outdated: set[Subject] = set()
        self._listeners: list[Callable[[Subject], None]] = []
        self._outcome_listeners: list[Callable[[Subject, Outcome], None]] = []
        self._job_listeners: list[Callable[[Subject, JobNews], None]] = []
        self._call_listeners: list[Callable[[Subject, Called], None]] = []

    def report(self, subject: Subject) -> Report | None:
        """Return the last report of a runner, or None if it is not connected."""
        return self._reports.get(subject)

    def outcomes(self, subject: Subject) -> list[Outcome]:
        """Return the outcomes that a runner has sent, and that are not acknowledged. It sends each once on a stream."""
        return list(self._ends.get(subject, {}).values())

    def stream(self, subject: Subject) -> WebSocket | None:
        """Return the stream of a runner. On another stream than before, everything has to be sent again."""
        return self._streams.get(subject)

    def is_outdated(self, subject: Subject) -> bool:
        """Report whether the runner of an instance speaks another version of the protocol, and must be replaced."""
        return subject in self._outdated

    def may_return(self) -> float:
        """Return the seconds left in which runners may reconnect after the start of the server."""
        return self._began + RETURN_SECONDS_MAX - self._clock()

    def send(self, subject: Subject, message: ToRunner) -> bool:
        """Send a message to a runner. Returns False if it is not connected."""
        outbox = self._outboxes.get(subject)
        if outbox is None or not outbox.send(message):
            return False
        if isinstance(message, Acknowledge):
            self._ends.get(subject, {}).pop(message.id, None)
        report = self._reports.get(subject)
        if isinstance(message, Assign) and report is not None:
            self._reports[subject] = held(report, message.job.id)
        return True

    def listen(self, listener: Callable[[Subject], None]) -> Callable[[], None]:
        """Call `listener` for each runner that connects, disconnects or reports. Return a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_outcomes(self, listener: Callable[[Subject, Outcome], None]) -> Callable[[], None]:
        """Call `listener` with the outcomes of jobs. Return a function that removes it."""
        self._outcome_listeners.append(listener)
        return lambda: self._outcome_listeners.remove(listener)

    def on_job_news(self, listener: Callable[[Subject, JobNews], None]) -> Callable[[], None]:
        """Call `listener` with jobs that begin or are returned, and the jobs of new streams. Return its removal."""
        self._job_listeners.append(listener)
        return lambda: self._job_listeners.remove(listener)

    def on_call_ends(self, listener: Callable[[Subject, Called], None]) -> Callable[[], None]:
        """Call `listener` with the ends of calls. Return a function that removes it."""
        self._call_listeners.append(listener)
        return lambda: self._call_listeners.remove(listener)

    def turn_away(self, subject: Subject) -> None:
        """Note that the runner of an instance tried to connect with another version of the protocol."""
        if subject not in self._outdated:
            self._outdated.add(subject)
            self._notify(subject)

    def forget(self, subject: Subject) -> None:
        """Forget an instance that is gone."""
        self._outdated.discard(subject)

    async def serve(self, subject: Subject, stream: WebSocket) -> None:
        """Serve one stream until it ends."""
        before = self._streams.get(subject)
        self._streams[subject] = stream
        self._outboxes[subject] = Outbox(stream)
        self._reports.pop(subject, None)
        self._ends.pop(subject, None)
        self._outdated.discard(subject)
        if before is not None:
            before.start_closing(REPLACED, "another stream of this instance took its place")
        try:
            async for text in stream:
                try:
                    said = _messages(text)
                except (*NOT_JSON, TooMuch) as error:
                    await stream.close(BAD_MESSAGE, str(error)[:100])
                    return
                for number, message in enumerate(said, 1):
                    if self._streams.get(subject) is stream:
                        self._handle(subject, message)
                    if number % MESSAGES_AT_ONCE == 0:
                        await asyncio.sleep(0)  # Others are served between.
                if len(self._ends.get(subject, ())) > PENDING_MAX:
                    await stream.close(BAD_MESSAGE, f"more than {PENDING_MAX} outcomes are not acknowledged")
                    return
        except Closed:
            pass
        finally:
            if self._streams.get(subject) is stream:
                del self._streams[subject], self._outboxes[subject]
                self._reports.pop(subject, None)
                self._ends.pop(subject, None)
                self._notify(subject)

    def _handle(self, subject: Subject, message: FromRunner) -> None:
        if isinstance(message, Ended):
            outcome = storable(message.outcome, time.time())
            self._ends.setdefault(subject, {})[outcome.id] = outcome
            for listener in tuple(self._outcome_listeners):
                listener(subject, outcome)
        elif isinstance(message, Called):
            for called in tuple(self._call_listeners):
                called(subject, message)
        elif isinstance(message, Report):
            self._reports[subject] = message
            self._notify(subject)
        else:
            for news in tuple(self._job_listeners):
                news(subject, message)

    def _notify(self, subject: Subject) -> None:
        for listener in tuple(self._listeners):
            listener(subject)


class TooMuch(ValueError):  # noqa: N818
    """A frame has more messages than a runner puts into one."""


def _messages(text: str | bytes) -> list[FromRunner]:
    """Parse a frame. Raises TooMuch, and errors of msgspec. Only a frame with a single message may be large."""
    if len(text) > FRAME_CHARACTERS_MAX and len(_parts(text)) > 1:
        raise TooMuch("many messages are in a frame that is larger than those of a runner")
    return from_runner.decode(text)
