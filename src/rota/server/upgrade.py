"""A connection that has become a WebSocket, and the task that uses it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from rota.client.websocket import Closed, WebSocket, framing, handshake
from rota.client.websocket.connection import BYTES_WAITING_MAX, HEARTBEAT, HEARTBEAT_LOCAL
from rota.server.memory import Payer

SERVE_END_SECONDS_MAX = 5.0
"""Time for the task to notice that its client is gone; then it is cancelled."""

log = logging.getLogger(__name__)


class Upgrade(msgspec.Struct, frozen=True):
    """An answer that turns the connection into a WebSocket. A request that is no upgrade is refused instead."""

    serve: Callable[[WebSocket], Awaitable[None]]
    """Uses the WebSocket. Its return closes the WebSocket; it is cancelled if it goes on after the client is gone."""
    protocol: str = ""
    """The subprotocol, one of those that the client offers."""
    message_bytes_max: int = framing.MESSAGE_BYTES_MAX
    waiting_bytes_max: int = BYTES_WAITING_MAX
    payer: Payer | None = None
    """The payer for the memory of received messages; None for the user of the request."""
    seconds_max: float = 0.0
    """Time after which it is ended; 0 for never."""
    on_start: Callable[[Callable[[], None]], None] = lambda end: None
    """Called before anything is sent, with a function that ends it early."""
    on_end: Callable[[], None] = lambda: None
    """Called once, at the end in any case."""


class Upgraded:
    """Owns the WebSocket and its task. `gone` is called once, when neither is left."""

    def __init__(
        self,
        upgrade: Upgrade,
        headers: Mapping[str, str],
        transport: asyncio.Transport,
        *,
        is_local: bool,
        path: str,
        gone: Callable[[], None],
        may_hold: Callable[[int], bool] = lambda held: True,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._upgrade = upgrade
        self._path = path
        self._gone = gone
        self._timers: list[asyncio.TimerHandle] = []
        self.websocket = WebSocket(
            "server",
            upgrade.protocol,
            heartbeat=HEARTBEAT_LOCAL if is_local else HEARTBEAT,
            message_bytes_max=upgrade.message_bytes_max,
            waiting_bytes_max=upgrade.waiting_bytes_max,
            on_lost=self._lost,
            may_hold=may_hold,
        )
        transport.set_protocol(self.websocket)
        transport.write(handshake.answer(headers, upgrade.protocol))
        self.websocket.connection_made(transport)
        self._is_over = False
        upgrade.on_start(self._time_is_over)
        if upgrade.seconds_max:
            self._timers.append(self._loop.call_later(upgrade.seconds_max, self._time_is_over))
        self._task = self._loop.create_task(self._serve(), name=f"websocket {path}")
        # As a callback, because a task that is cancelled before its first step does not run at all.
        self._task.add_done_callback(self._done)

    def finish(self) -> None:
        """Close the WebSocket because the server stops."""
        self.websocket.start_closing(framing.GOING_AWAY, "the server stops")

    def abort(self) -> None:
        self._task.cancel()
        self.websocket.abort()

    async def _serve(self) -> None:
        code, reason = framing.NORMAL, ""
        try:
            # Skipped if the credential ended before this first step. A closed WebSocket is served, because
            # its client may have sent everything.
            if not self._is_over:
                await self._upgrade.serve(self.websocket)
        except Closed:
            pass
        except Exception:
            log.exception("%s failed", self._path)
            code, reason = framing.SERVER_ERROR, "an error on the server; its log says more"
        await self.websocket.close(code, reason)

    def _time_is_over(self) -> None:
        self._is_over = True
        self.websocket.start_closing(framing.POLICY, "the credential is no longer good, or the time is over")

    def _lost(self) -> None:
        if self._task.done():
            self._end()
        else:
            self._timers.append(self._loop.call_later(SERVE_END_SECONDS_MAX, self._task.cancel))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._upgrade.on_end()
        if self.websocket.lost.done():
            self._end()
        else:
            self.websocket.abort()

    def _end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        # Break a reference cycle, which would last until the garbage collector runs.
        gone, self._gone = self._gone, _nothing
        gone()


def _nothing() -> None:
    """Notify nobody."""
