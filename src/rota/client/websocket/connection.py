"""One end of a WebSocket, on an asyncio transport."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import NamedTuple, cast

from rota.client.rounds import STEPS_PER_TURN_MAX, Rounds
from rota.client.websocket import framing
from rota.client.websocket.framing import Framing, Role, Violation

MESSAGES_WAITING_MAX = 64
"""Received messages above which reading pauses."""
BYTES_WAITING_MAX = 1024 * 1024
FRAMES_AT_ONCE_MAX = 16
"""Frames of one connection that are processed when they arrive. Others wait for a turn."""
FRAMES_PER_TURN_MAX = FRAMES_AT_ONCE_MAX * STEPS_PER_TURN_MAX
"""Frames of all connections together that are processed in one turn of the event loop, beside those."""
CONTROLS_PER_SECOND_MAX = 100
"""Pings and pongs. Both ends need one in many seconds."""
WRITE_BUFFER_BYTES = 256 * 1024
"""Unsent bytes above which `drain` waits."""
TOGETHER_BYTES = 64 * 1024
"""Bytes that are held back at most to be sent together."""
UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""Unsent bytes above which the connection is cut, because nobody drains."""
CLOSE_SECONDS_MAX = 5.0
"""Time for the other end to answer a close."""
LINGER_SECONDS = 1.0
"""Time after a violation in which input is read and dropped: an immediate cut may lose the close frame."""


class Heartbeat(NamedTuple):
    """The time before a ping, and the silence after which the other end is given up."""

    ping_seconds: float
    silence_seconds_max: float


HEARTBEAT = Heartbeat(15.0, 45.0)
HEARTBEAT_LOCAL = Heartbeat(60.0, 150.0)
"""On a Unix socket the kernel reports the death of a process: only one that hangs has to be detected."""
PAUSED_PING_SECONDS = 2.0
"""Time between pings while reading is paused. Only a write then shows that the other end is gone."""
CLIENT_LATER = 1.3
"""The factor by which clients wait longer than servers before a ping, so that only one end of a connection sends pings.
"""


class Closed(ConnectionError):  # noqa: N818
    """The connection is closed: nothing more can be received or sent. The code is `ABNORMAL` if it was cut."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"the connection was closed with code {self.code}" + (f": {self.reason}" if self.reason else "")

    @property
    def is_normal(self) -> bool:
        return self.code in (framing.NORMAL, framing.GOING_AWAY, framing.NO_CODE)


class WebSocket(asyncio.Protocol):
    """One end. One task receives; any may send."""

    def __init__(
        self,
        role: Role,
        protocol: str = "",
        *,
        heartbeat: Heartbeat = HEARTBEAT,
        message_bytes_max: int = framing.MESSAGE_BYTES_MAX,
        waiting_bytes_max: int = BYTES_WAITING_MAX,
        on_lost: Callable[[], None] = lambda: None,
        may_hold: Callable[[int], bool] = lambda held: True,
    ) -> None:
        """`may_hold` is called with the number of received bytes that are kept, and returns whether there is memory for
        them."""
        self.protocol = protocol
        """The subprotocol that both ends have agreed on."""
        self.before_close: Callable[[], None] = _nothing
        """Called before this end closes, while it can still send."""
        self._loop = asyncio.get_running_loop()
        self._is_client = role == "client"
        self._framing = Framing(role, message_bytes_max)
        self._heartbeat = heartbeat
        self._waiting_bytes_max = waiting_bytes_max
        self._on_lost = on_lost
        self._may_hold = may_hold
        self._has_more = False  # frames that wait for a turn
        self._gone: Callable[[], None] | None = None  # what is left to do after them, if the other end is gone
        self._controls = 0
        self._controls_since = self._loop.time()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._unsent: list[bytes] = []
        """Messages of one turn of the event loop, which are sent together."""
        self._unsent_bytes = 0
        self._waiting: deque[str | bytes] = deque()
        self._waiting_bytes = 0
        self._receiver: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._reading_paused = False
        self._closed: Closed | None = None
        self._close_sent = False
        self._deaf = False
        self._received_at = self._loop.time()
        self._pulse: asyncio.TimerHandle | None = None
        self._pulse_due = 0.0
        self._limit: asyncio.TimerHandle | None = None
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is gone."""

    # For its user.

    @property
    def closed(self) -> Closed | None:
        """The reason of the close, once it has happened. There may still be messages to receive."""
        return self._closed

    @property
    def unsent_bytes(self) -> int:
        """The number of sent bytes that the other end has not taken."""
        return self._unsent_bytes + self._transport.get_write_buffer_size()

    async def receive(self) -> str | bytes:
        """Return the next message. Raises Closed after the last."""
        while not self._waiting:
            self._check()
            assert self._receiver is None, "one task receives"
            self._receiver = self._loop.create_future()
            try:
                await self._receiver
            finally:
                self._receiver = None
        message = self._waiting.popleft()
        self._waiting_bytes -= len(message)
        self._may_hold(self._held)
        if self._reading_paused and not self._is_full():
            self._read_on()
        return message

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        """Yield all messages until a normal close. Raises Closed at any other end."""
        while True:
            try:
                message = await self.receive()
            except Closed as closed:
                if closed.is_normal:
                    return
                raise
            yield message

    def send(self, message: str | bytes) -> None:
        """Queue a message. Raises Closed if the connection is closed."""
        self._check()
        if not self._unsent:
            self._loop.call_soon(self._flush)
        frame = self._framing.message(message)
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        if self._unsent_bytes > TOGETHER_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._unsent:
            return
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()
        self._unsent_bytes = 0
        if self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self._end(Closed(framing.POLICY, "what is sent is not read"))
            self.abort()

    async def drain(self) -> None:
        """Wait until the other end has taken most of what was sent. Raises Closed.

        Flushes nothing: asyncio's own transport counts its whole buffer at each write, so that a write for each of
        many small messages would take time that grows with their square.
        """
        self._check()
        if self._writable is not None:
            # Several may wait; one that is cancelled must not wake the others.
            await asyncio.shield(self._writable)
            self._check()

    def _check(self) -> None:
        if self._closed is not None:
            raise Closed(self._closed.code, self._closed.reason)

    async def close(
        self, code: int = framing.NORMAL, reason: str = "", *, seconds_max: float = CLOSE_SECONDS_MAX
    ) -> None:
        """Close the connection. Returns once it is gone: the other end has read all and agreed, or time is up."""
        self.start_closing(code, reason, seconds_max=seconds_max)
        try:
            await asyncio.shield(self.lost)
        finally:
            self.abort()

    def start_closing(self, code: int, reason: str = "", *, seconds_max: float = CLOSE_SECONDS_MAX) -> None:
        """Send a close frame. The connection is cut if the other end does not agree within `seconds_max`."""
        before, self.before_close = self.before_close, _nothing
        before()
        if self._say_close(code, reason):
            self._end(Closed(code, reason))
            self._cut_after(seconds_max)
            self._waiting.clear()
            self._waiting_bytes = 0
            self._may_hold(self._held)
            if self._reading_paused:
                # The answer to the close comes after the unread messages.
                self._read_on()

    def abort(self) -> None:
        """Cut the connection at once."""
        self._transport.abort()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._set_ping_timer()

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        if self._deaf:
            return
        self._framing.feed(data)
        if not self._has_more:
            self._take(FRAMES_AT_ONCE_MAX)

    def take_step(self) -> bool:
        """Process some of the frames that wait. Returns whether there are more."""
        self._received_at = self._loop.time()
        if not self._deaf and not self.lost.done():
            self._take(FRAMES_AT_ONCE_MAX)
        else:
            self._has_more = False
        if not self._has_more and self._gone is not None:
            self._gone()
        return self._has_more

    def _take(self, most: int) -> None:
        """Process received frames, a bounded number at a time."""
        had_more, frames_max = self._has_more, self._framing.frames + most
        try:
            while (event := self._framing.take(frames_max)) is not None:
                self._handle(event)
            self._has_more = self._framing.frames >= frames_max
            if not self._may_hold(self._held):
                raise Violation(framing.TRY_LATER, "there is no memory for what you send now; try again later")
        except Violation as violation:
            self._has_more = False
            self._deaf = True
            self._framing.forget()
            self._may_hold(self._held)
            self._end(Closed(violation.code, violation.reason))
            self._say_close(violation.code, violation.reason)
            self._cut_after(LINGER_SECONDS)
            if had_more:
                self._resume_reading()
            return
        if self._has_more and not had_more:
            if not self._reading_paused:
                self._transport.pause_reading()
            Rounds.of(self._loop).wait(self)
        elif not self._has_more and not self._reading_paused and self._is_full():
            self._reading_paused = True
            if not had_more:
                self._transport.pause_reading()
            self._set_ping_timer()
        elif not self._has_more and had_more and not self._reading_paused:
            self._resume_reading()

    @property
    def _held(self) -> int:
        return self._framing.held + self._waiting_bytes

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = partial(self._is_lost, error)
        if not self._has_more:
            self._is_lost(error)

    def _is_lost(self, error: Exception | None) -> None:
        self._gone = None
        self._framing.forget()
        self._may_hold(0)
        self._may_hold = lambda held: True
        self._end(Closed(framing.ABNORMAL, str(error) if error is not None else "the other end is gone"))
        for timer in (self._pulse, self._limit):
            if timer is not None:
                timer.cancel()
        self.resume_writing()
        if not self.lost.done():
            self.lost.set_result(None)
            self._on_lost()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # Received events.

    def _handle(self, event: framing.Event) -> None:
        if isinstance(event, (str, bytes)):
            if self._closed is None:
                self._waiting.append(event)
                self._waiting_bytes += len(event)
                self._wake()
        elif isinstance(event, framing.Close):
            self._end(Closed(event.code, event.reason))
            self._hang_up(event.code, event.reason)
        else:
            self._count_control()
        # Answers to an end that does not read would have to be kept.
        is_read = self._writable is None and not self._transport.is_closing()
        if isinstance(event, framing.Ping) and is_read and not self._close_sent:
            self._transport.write(self._framing.pong(event.payload))

    def _count_control(self) -> None:
        if (now := self._loop.time()) - self._controls_since > 1.0:
            self._controls, self._controls_since = 0, now
        self._controls += 1
        if self._controls > CONTROLS_PER_SECOND_MAX:
            raise Violation(framing.POLICY, f"there are more than {CONTROLS_PER_SECOND_MAX} pings in a second")

    def _is_full(self) -> bool:
        return len(self._waiting) >= MESSAGES_WAITING_MAX or self._waiting_bytes >= self._waiting_bytes_max

    def _read_on(self) -> None:
        self._reading_paused = False
        self._received_at = self._loop.time()
        if not self._has_more:
            self._resume_reading()

    def _resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)

    # The end.

    def _end(self, closed: Closed) -> None:
        """Record the reason of the close. The first one stays."""
        if self._closed is None:
            self._closed = closed
        self._wake()

    def _say_close(self, code: int, reason: str) -> bool:
        if self._close_sent or self._transport.is_closing():
            return False
        self._close_sent = True
        self._flush()
        self._transport.write(self._framing.close(code, reason))
        return True

    def _hang_up(self, code: int, reason: str) -> None:
        """End the connection after both ends have sent a close frame. The server closes the transport."""
        self._say_close(code, reason)
        if not self._is_client and not self._transport.is_closing():
            self._transport.close()
        self._cut_after(CLOSE_SECONDS_MAX)

    def _cut_after(self, seconds: float) -> None:
        if self._limit is None:
            self._limit = self._loop.call_later(seconds, self.abort)

    # Heartbeat, with one timer.

    def _set_ping_timer(self) -> None:
        if self._pulse is not None:
            self._pulse.cancel()
        now, seconds = self._loop.time(), self._heartbeat.ping_seconds * (CLIENT_LATER if self._is_client else 1)
        due, late = self._received_at + seconds, self._received_at + self._heartbeat.silence_seconds_max
        if self._reading_paused:
            due = now + min(seconds, PAUSED_PING_SECONDS)
        elif due <= now:
            due = min(now + seconds, late) if late > now else now + seconds
        self._pulse_due = due
        self._pulse = self._loop.call_at(due, self._on_ping_timer)

    def _on_ping_timer(self) -> None:
        # Time in which this process did not run does not count as silence: a laptop slept, or a machine was busy.
        self._received_at += max(0.0, self._loop.time() - self._pulse_due)
        silent = self._loop.time() - self._received_at
        if silent >= self._heartbeat.silence_seconds_max and not self._reading_paused:
            self._end(Closed(framing.ABNORMAL, f"the other end gave no sign of life for {silent:.0f} s"))
            self.abort()
            return
        # A paused end does not see answers. Its pings only detect a dead connection.
        due = self._reading_paused or silent >= self._heartbeat.ping_seconds
        if due and not self._close_sent and self._writable is None:
            self._transport.write(self._framing.ping())
        self._set_ping_timer()


def _nothing() -> None:
    """Send nothing more."""
