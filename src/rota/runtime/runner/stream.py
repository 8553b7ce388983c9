"""A runner's stream to its gateway. It is opened again when it breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from rota.api.problems import NOT_JSON
from rota.client.failures import NoServer
from rota.client.upgrading import connect_unix
from rota.client.websocket import Closed, WebSocket
from rota.runtime.runner.function_calls import FunctionCalls
from rota.runtime.runner.jobqueue import JobQueue
from rota.runtime.runner.messages import (
    PROTOCOL,
    Acknowledge,
    Assign,
    Call,
    Cancel,
    CancelCall,
    Configure,
    Ended,
    FromRunner,
    Hold,
    Release,
    Report,
    ToRunner,
    Withdraw,
    encode,
    frames,
    held,
    says_more,
    to_runner,
)

log = logging.getLogger(__name__)

RECONNECT_SECONDS_MIN, RECONNECT_SECONDS_MAX = 0.02, 2.0


class StreamUser(Protocol):
    """The interface of a worker to its stream: it receives messages, and has a report."""

    jobs: JobQueue
    calls: FunctionCalls
    send: Callable[[FromRunner], None]

    @property
    def report(self) -> Report: ...

    def configure(self, configuration: Configure) -> None: ...

    def hold(self, id_: str) -> None: ...

    def release(self) -> None: ...

    def acknowledge(self, id_: str) -> None: ...


class Stream:
    """The stream of one runner. Each connection begins with the report, the pending outcomes and the jobs."""

    def __init__(self, gateway: Path, instance: str, token: str) -> None:
        self._gateway = gateway
        self._target = f"/v1/stream/{quote(instance)}"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._news = asyncio.Event()
        self._unsent: list[FromRunner] = []
        """Messages of the current iteration of the event loop. They are sent as one frame."""
        self._known: Report | None = None
        """The report that the server has, computed from the messages in both directions."""

    def wake(self) -> None:
        """Have the report sent if it has changed."""
        self._news.set()

    async def run(self, worker: StreamUser) -> None:
        pause = RECONNECT_SECONDS_MIN
        while True:
            try:
                socket = await connect_unix(
                    str(self._gateway), self._target, headers=self._headers, protocols=(PROTOCOL,)
                )
            except (OSError, TimeoutError) as error:
                # That no server answers is no news. A server that refuses may not know the instance.
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

    async def _serve(self, socket: WebSocket, worker: StreamUser) -> None:
        self._known = None
        self._unsent = [*map(Ended, worker.jobs.pending()), worker.jobs.listed()]
        worker.send = self._send
        sending = asyncio.create_task(self._send_all(socket, worker), name="sending")
        try:
            async for text in socket:
                try:
                    messages = to_runner.decode(text)
                except NOT_JSON as error:
                    # Sent by a gateway of another version.
                    log.warning("a message of the gateway is not understood: %s", error)
                    continue
                for message in messages:
                    self._handle(worker, message)
        finally:
            worker.send = lambda message: None
            worker.calls.abandon()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def _handle(self, worker: StreamUser, message: ToRunner) -> None:
        match message:
            case Assign():
                if self._known is not None:
                    self._known = held(self._known, message.job.id)
                worker.jobs.assign(message.job)
                self._news.set()
            case Acknowledge():
                worker.acknowledge(message.id)
            case Withdraw():
                worker.jobs.withdraw(message.ids)
            case Cancel():
                worker.jobs.cancel(message.id)
            case Configure():
                worker.configure(message)
            case Hold():
                worker.hold(message.id)
            case Release():
                worker.release()
            case Call():
                worker.calls.call(message)
            case CancelCall():
                worker.calls.cancel(message.id)

    def _send(self, message: FromRunner) -> None:
        self._unsent.append(message)
        self._news.set()

    async def _send_all(self, socket: WebSocket, worker: StreamUser) -> None:
        while True:
            self._news.clear()
            messages, self._unsent = self._unsent, []
            report = worker.report
            if self._known is None or says_more(report, self._known):
                self._known = report
                messages.insert(0, report)
            for frame in frames(map(encode, messages)):
                socket.send(frame)
                await socket.drain()
            await self._news.wait()
