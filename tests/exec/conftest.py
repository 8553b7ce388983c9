"""A client of a command's session, and a runtime that runs commands as plain processes of this host."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from rota.client.upgrading import connect_unix
from rota.client.websocket import Closed, WebSocket
from rota.runtime.interface import NotRunning, Runtime, Subject
from rota.server.app import refusal
from rota.server.exec import PROTOCOL
from rota.server.execution import ExecRequest, ExecSession
from rota.server.http_server import HttpServer
from rota.server.streams import Size
from rota.server.upgrade import Upgrade
from tests.server.conftest import server  # noqa: F401 - the same server
from tests.websocket.conftest import pytest_asyncio_loop_factories  # noqa: F401 - the same loops

SUBJECT = Subject("default", "box-0", "uid")


class Running:
    """A command."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    async def wait(self) -> int:
        code = await asyncio.to_thread(self.process.wait)
        return code if code >= 0 else 128 - code

    async def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)


class Host:
    """As much of a runtime as a session needs."""

    def __init__(self) -> None:
        self.started: list[Running] = []
        self.refuses = ""
        self.hold: asyncio.Event | None = None

    async def exec(
        self,
        subject: Subject,
        container: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        tty: bool,
    ) -> Running:
        assert (subject, container) == (SUBJECT, "main")
        if self.refuses:
            raise NotRunning(self.refuses)
        process = subprocess.Popen(
            argv,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env={"PATH": os.environ["PATH"], **env},
            start_new_session=True,
            preexec_fn=_take_terminal if tty else None,
        )
        self.started.append(Running(process))
        if self.hold is not None:
            await self.hold.wait()
        return self.started[-1]

    def end(self) -> None:
        for one in self.started:
            if one.process.poll() is None:
                os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait(60)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Client:
    """A client of a command, with the output that it has read."""

    def __init__(self, websocket: WebSocket) -> None:
        self.websocket = websocket
        self.seen = {1: bytearray(), 2: bytearray(), 3: bytearray()}

    def send(self, channel: int, data: bytes) -> None:
        self.websocket.send(bytes((channel,)) + data)

    async def flood(self) -> None:
        """Send input until no more is taken."""
        # If all of it were taken, this would never give way to its time limit.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                while True:
                    self.send(0, b"x" * 65536)
                    await self.websocket.drain()

    def close_stdin(self) -> None:
        self.websocket.send(b"\xff\x00")

    async def until(self, text: bytes, channel: int = 1) -> None:
        """Go on when this was written."""
        while text not in self.seen[channel]:
            await self._take()

    async def end(self) -> Any:
        """Read to the end. Returns how the command ended."""
        closed: Closed | None = None
        while closed is None:
            try:
                await self._take()
            except Closed as error:
                closed = error
        assert closed.code == 1000
        return msgspec.json.decode(self.seen[3])

    async def code(self) -> int:
        status = await self.end()
        if status["status"] == "Success":
            return 0
        assert status["reason"] == "NonZeroExitCode"
        (cause,) = status["details"]["causes"]
        assert cause["reason"] == "ExitCode"
        return int(cause["message"])

    async def _take(self) -> None:
        message = await self.websocket.receive()
        assert isinstance(message, bytes)
        self.seen[message[0]] += message[1:]


class Site:
    """Sessions on a Unix socket."""

    def __init__(self, folder: Path) -> None:
        self.host = Host()
        self.socket = str(folder / "socket")
        self.wanted = ExecRequest(("true",), True, True, True, False, "xterm", Size(0, 0))
        self.http = HttpServer(lambda request: Upgrade(self._session().serve, PROTOCOL), refusal)

    def _session(self) -> ExecSession:
        return ExecSession(cast(Runtime, self.host), SUBJECT, "main", self.wanted, {})

    @asynccontextmanager
    async def running(self, script: str, **wanted: Any) -> AsyncIterator[Client]:
        """A command, and its client."""
        self.wanted = self.wanted._replace(command=("sh", "-c", script), **wanted)
        websocket = await connect_unix(self.socket, "/", protocols=(PROTOCOL,))
        try:
            yield Client(websocket)
        finally:
            websocket.abort()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.http.listen_unix(made.socket)
    yield made
    await made.http.close(grace_seconds=0)
    made.host.end()
    assert not made.http.connections
