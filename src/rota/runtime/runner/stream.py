"""A runner's stream to its gateway: kept open, opened again when it breaks, with nothing lost on the way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec

from rota.client.failures import NoServer
from rota.client.websocket import Closed, WebSocket, connect_unix
from rota.runtime.runner.desk import Desk
from rota.runtime.runner.hosting import Hosting
from rota.runtime.runner.messages import (
    PROTOCOL,
    Acknowledge,
    Assign,
    Call,
    Called,
    Cancel,
    CancelCall,
    Configure,
    Ended,
    Hold,
    Release,
    Report,
    encode,
    held,
    to_runner,
)

log = logging.getLogger(__name__)

RECONNECT_SECONDS_MIN, RECONNECT_SECONDS_MAX = 0.02, 2.0


class Works(Protocol):
    """Whoever is told what comes, and says how it is."""

    report: Report
    desk: Desk
    hosting: Hosting
    say: Callable[[Called], None]

    def configure(self, configuration: Configure) -> None: ...

    def hold(self, id_: str) -> None: ...

    def release(self) -> None: ...

    def acknowledge(self, id_: str) -> None: ...


class Stream:
    """One stream. The first thing said on it is the last report: it holds everything that is not yet known there."""

    def __init__(self, gateway: Path, instance: str, token: str) -> None:
        self._gateway = gateway
        self._target = f"/v1/stream/{quote(instance)}"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._news = asyncio.Event()
        self._assigned = ""
        """The last task that came on this stream: that it has the worker then is no news."""

    def wake(self) -> None:
        """There is a new report."""
        self._news.set()

    async def run(self, worker: Works) -> None:
        pause = RECONNECT_SECONDS_MIN
        while True:
            try:
                socket = await connect_unix(
                    str(self._gateway), self._target, headers=self._headers, protocols=(PROTOCOL,)
                )
            except (OSError, TimeoutError) as error:
                # The server is away, which is no news for readers of this log; or it does not know the instance.
                if pause == RECONNECT_SECONDS_MAX and not isinstance(error, NoServer):
                    log.info("the gateway does not answer: %s", error)
                await asyncio.sleep(pause)
                pause = min(RECONNECT_SECONDS_MAX, pause * 2)
                continue
            pause = RECONNECT_SECONDS_MIN
            try:
                await self._serve(socket, worker)
            except Closed:
                pass
            finally:
                socket.abort()
            await asyncio.sleep(pause)

    async def _serve(self, socket: WebSocket, worker: Works) -> None:
        self._assigned = ""
        worker.say = lambda called: _told(socket, called)
        telling = asyncio.create_task(self._tell(socket, worker))
        try:
            async for text in socket:
                try:
                    message = to_runner.decode(text)
                except msgspec.MsgspecError as error:
                    # A gateway of another version; what it wants is not understood, and so not done.
                    log.warning("what the gateway says is not understood: %s", error)
                    continue
                match message:
                    case Configure():
                        worker.configure(message)
                    case Hold():
                        worker.hold(message.id)
                    case Release():
                        worker.release()
                    case Assign():
                        self._assigned = message.job.id
                        worker.desk.assign(message.job)
                    case Cancel():
                        worker.desk.cancel(message.id)
                    case Acknowledge():
                        worker.acknowledge(message.id)
                    case Call():
                        worker.hosting.call(message)
                    case CancelCall():
                        worker.hosting.cancel(message.id)
        finally:
            worker.say = lambda called: None
            worker.hosting.abandon()
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell(self, socket: WebSocket, worker: Works) -> None:
        said: Report | None = None
        told: set[str] = set()
        while True:
            self._news.clear()
            if worker.report != said:
                is_known = said is not None and worker.report == held(said, self._assigned)
                said = worker.report
                if not is_known:
                    socket.send(encode(said).decode())
            # Every end once on each stream: if nobody takes it down, then on the next one.
            pending = {outcome.id: outcome for outcome in worker.desk.pending()}
            for id_ in pending.keys() - told:
                socket.send(encode(Ended(pending[id_])).decode())
            told = set(pending)
            await socket.drain()
            await self._news.wait()


def _told(socket: WebSocket, called: Called) -> None:
    # Who is not there any more has given up all calls.
    with contextlib.suppress(Closed):
        socket.send(encode(called).decode())
