"""One end of a WebSocket, on a transport of asyncio's."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, cast

from rota.client.websocket import framing
from rota.client.websocket.framing import Framing, Role, Violation

MESSAGES_WAITING_MAX = 64
"""Messages that came and were not received, above which no more is read."""
BYTES_WAITING_MAX = 1024 * 1024
FRAMES_PER_TURN_MAX = 1000
"""Frames that are taken in one turn of the loop; then others go on first."""
CONTROLS_PER_SECOND_MAX = 100
"""Pings and pongs. Both ends need one in many seconds."""
WRITE_BUFFER_BYTES = 256 * 1024
"""Bytes on their way to the other end above which `drain` waits."""
TOGETHER_BYTES = 64 * 1024
"""So much is kept back at most to go out with what is sent next."""
UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""An end for which more than this waits, because nobody drains, is cut off."""
CLOSE_SECONDS_MAX = 5.0
"""How long an end that is told of the close may take to agree."""
LINGER_SECONDS = 1.0
"""What comes after a violation is still taken, and thrown away: to cut at once may lose what says why."""


class Heartbeat(NamedTuple):
    """When a sign of life is asked for, and when it is too late."""

    ping_seconds: float
    silence_seconds_max: float


HEARTBEAT = Heartbeat(15.0, 45.0)
HEARTBEAT_LOCAL = Heartbeat(60.0, 150.0)
"""On a Unix socket the kernel tells of a process that died: only one that hangs has to be found out."""
PAUSED_PING_SECONDS = 2.0
"""An end that does not read cannot see the other go, but when it writes. So it does, often."""
CLIENT_LATER = 1.3
"""Clients ask later than servers do, so that one of both is enough."""


class Closed(ConnectionError):  # noqa: N818
    """There is no more to receive, and nothing can be sent. `ABNORMAL`: it was cut without a word."""

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
        """`may_hold`: told how many bytes are kept of what came, and says whether there is memory for them."""
        self.protocol = protocol
        """What both ends have agreed to speak."""
        self.before_close: Callable[[], None] = _nothing
        """Called before this end closes it, while it can still send."""
        self._loop = asyncio.get_running_loop()
        self._is_client = role == "client"
        self._framing = Framing(role, message_bytes_max)
        self._heartbeat = heartbeat
        self._waiting_bytes_max = waiting_bytes_max
        self._on_lost = on_lost
        self._may_hold = may_hold
        self._has_more = False  # frames that are taken in the next turn
        self._controls = 0
        self._controls_since = self._loop.time()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._unsent: list[bytes] = []
        """What is sent in one turn of the loop goes out together."""
        self._unsent_bytes = 0
        self._waiting: deque[str | bytes] = deque()
        self._waiting_bytes = 0
        self._receiver: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._reading_paused = False
        self._closed: Closed | None = None
        self._close_sent = False
        self._deaf = False
        self._heard_at = self._loop.time()
        self._pulse: asyncio.TimerHandle | None = None
        self._pulse_due = 0.0
        self._limit: asyncio.TimerHandle | None = None
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing is left of the connection."""

    # For its user.

    @property
    def closed(self) -> Closed | None:
        """How it ended, once it has. There may still be messages to receive."""
        return self._closed

    @property
    def unsent_bytes(self) -> int:
        """How much of what was sent the other end has not taken."""
        return self._unsent_bytes + self._transport.get_write_buffer_size()

    async def receive(self) -> str | bytes:
        """The next message. Raises Closed after the last."""
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
        """All messages, to the end in good order. Raises Closed at any other end."""
        while True:
            try:
                message = await self.receive()
            except Closed as closed:
                if closed.is_normal:
                    return
                raise
            yield message

    def send(self, message: str | bytes) -> None:
        """Send a message, some time. Raises Closed when there is no one to send it to."""
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
        """End it. Returns when the connection is gone: when the other end has read all that was sent, and agreed."""
        self.start_closing(code, reason, seconds_max=seconds_max)
        try:
            await asyncio.shield(self.lost)
        finally:
            self.abort()

    def start_closing(self, code: int, reason: str = "", *, seconds_max: float = CLOSE_SECONDS_MAX) -> None:
        """Tell the other end that this is the end. It may take so long to agree."""
        before, self.before_close = self.before_close, _nothing
        before()
        if self._say_close(code, reason):
            self._end(Closed(code, reason))
            self._cut_after(seconds_max)
            self._waiting.clear()
            self._waiting_bytes = 0
            self._may_hold(self._held)
            if self._reading_paused:
                # The answer to it comes after what was not read.
                self._read_on()

    def abort(self) -> None:
        """Cut it at once."""
        self._transport.abort()

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._set_pulse()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        if self._deaf:
            return
        self._framing.feed(data)
        if not self._has_more:
            self._take()

    def _take(self) -> None:
        """Take what has come, so many frames at a time."""
        if self._deaf or self.lost.done():
            return
        had_more, self._has_more = self._has_more, False
        try:
            for _ in range(FRAMES_PER_TURN_MAX):
                event = self._framing.take()
                if event is None:
                    break
                self._happened(event)
            else:
                self._has_more = True
            if not self._may_hold(self._held):
                raise Violation(framing.TRY_LATER, "there is no memory for what you send now; try again later")
        except Violation as violation:
            self._deaf = True
            self._framing.forget()
            self._may_hold(self._held)
            self._end(Closed(violation.code, violation.reason))
            self._say_close(violation.code, violation.reason)
            self._cut_after(LINGER_SECONDS)
            if had_more:
                self._resume_reading()
            return
        if self._has_more:
            if not had_more and not self._reading_paused:
                self._transport.pause_reading()
            self._loop.call_soon(self._take)
        elif not self._reading_paused and self._is_full():
            self._reading_paused = True
            if not had_more:
                self._transport.pause_reading()
            self._set_pulse()
        elif had_more and not self._reading_paused:
            self._resume_reading()

    @property
    def _held(self) -> int:
        return self._framing.held + self._waiting_bytes

    def connection_lost(self, error: Exception | None) -> None:
        if self._has_more:
            with contextlib.suppress(Violation):
                while (event := self._framing.take()) is not None:
                    self._happened(event)
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

    # What came.

    def _happened(self, event: framing.Event) -> None:
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
        # To answer one that does not read would be to keep the answers for it.
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
        self._heard_at = self._loop.time()
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
        """The first reason stays."""
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
        """Both have said it now. It is the server that closes the connection."""
        self._say_close(code, reason)
        if not self._is_client and not self._transport.is_closing():
            self._transport.close()
        self._cut_after(CLOSE_SECONDS_MAX)

    def _cut_after(self, seconds: float) -> None:
        if self._limit is None:
            self._limit = self._loop.call_later(seconds, self.abort)

    # Signs of life. One timer: it is set anew when it has come.

    def _set_pulse(self) -> None:
        if self._pulse is not None:
            self._pulse.cancel()
        now, seconds = self._loop.time(), self._heartbeat.ping_seconds * (CLIENT_LATER if self._is_client else 1)
        due, late = self._heard_at + seconds, self._heard_at + self._heartbeat.silence_seconds_max
        if self._reading_paused:
            due = now + min(seconds, PAUSED_PING_SECONDS)
        elif due <= now:
            due = min(now + seconds, late) if late > now else now + seconds
        self._pulse_due = due
        self._pulse = self._loop.call_at(due, self._on_pulse)

    def _on_pulse(self) -> None:
        # While this process did not run itself, it could hear nobody: a laptop that slept, a machine that was busy.
        self._heard_at += max(0.0, self._loop.time() - self._pulse_due)
        silent = self._loop.time() - self._heard_at
        if silent >= self._heartbeat.silence_seconds_max and not self._reading_paused:
            self._end(Closed(framing.ABNORMAL, f"the other end gave no sign of life for {silent:.0f} s"))
            self.abort()
            return
        # An end that does not read does not hear, and is not asked: it has to be heard by itself.
        due = self._reading_paused or silent >= self._heartbeat.ping_seconds
        if due and not self._close_sent and self._writable is None:
            self._transport.write(self._framing.ping())
        self._set_pulse()


def _nothing() -> None:
    """Where nobody has more to send."""
