"""A connection that has become a WebSocket, and the task that has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from rota.client.websocket import Closed, WebSocket, framing, handshake
from rota.client.websocket.connection import BYTES_WAITING_MAX, HEARTBEAT, HEARTBEAT_LOCAL
from rota.server.holding import Payer

SERVE_END_SECONDS_MAX = 5.0
"""Who has a WebSocket whose client is gone may take this long to notice; then it is cancelled."""

log = logging.getLogger(__name__)


class Upgrade(msgspec.Struct, frozen=True):
    """An answer that makes a WebSocket of the connection. A request that did not ask for one is refused instead."""

    serve: Callable[[WebSocket], Awaitable[None]]
    """Has it until it returns; then it is closed. It is cancelled when it goes on after its client is gone."""
    protocol: str = ""
    """What is spoken, of what the client can speak."""
    message_bytes_max: int = framing.MESSAGE_BYTES_MAX
    waiting_bytes_max: int = BYTES_WAITING_MAX
    payer: Payer | None = None
    """Whose share of the memory it is that is taken by what comes; None: that of who asked."""
    seconds_max: float = 0.0
    """After this time it is ended; 0: never."""
    on_start: Callable[[Callable[[], None]], None] = lambda end: None
    """Told, before anything is sent, how to end it early."""
    on_end: Callable[[], None] = lambda: None
    """Called once, however it ends."""


class Upgraded:
    """Owns the WebSocket and the task. `gone` is called once, when neither is left."""

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
        # Not in the task itself: one that is cancelled before its first step does not run at all.
        self._task.add_done_callback(self._done)

    def finish(self) -> None:
        """The server stops."""
        self.websocket.start_closing(framing.GOING_AWAY, "the server stops")

    def abort(self) -> None:
        self._task.cancel()
        self.websocket.abort()

    async def _serve(self) -> None:
        code, reason = framing.NORMAL, ""
        try:
            # A credential that ended before this first step begins nothing.
            # Whoever has closed it may have sent all that is to be done.
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
        # Whoever is told has this: both would be there until the garbage collector comes.
        gone, self._gone = self._gone, _nothing
        gone()


def _nothing() -> None:
    """Where there is nobody to tell any more."""
