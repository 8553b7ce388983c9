"""One command and its client: data passes both ways at the pace of the slower side, and both end together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.api.problems import NOT_JSON
from rota.client.channels import GONE
from rota.client.websocket import Closed, WebSocket
from rota.runtime.interface import Execution, NotRunning, Runtime, Subject
from rota.runtime.keeper.client import KeeperError
from rota.server.streams import End, Size, Streams

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""Numbers of channels."""
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
END_OF_INPUT = b"\x04"
"""The end-of-file character of a terminal."""
CLEAR_UP_SECONDS_MAX = 10.0
"""Time for a killed command to be gone."""
DRAIN_SECONDS_MAX = 3600.0
"""Time for a client to read the rest of the output. A dead client is detected by the heartbeat."""

log = logging.getLogger(__name__)


class ExecRequest(NamedTuple):
    """A command and its streams."""

    command: tuple[str, ...]
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool
    term: str
    size: Size


KILLED = 128 + signal.SIGKILL
"""The exit code of a killed command."""


class _Resize(msgspec.Struct, rename="pascal"):
    width: int = msgspec.field(default=0)
    height: int = msgspec.field(default=0)


class ExecSession:
    """Serves one client. When it returns, the command has ended in any case."""

    def __init__(
        self,
        runtime: Runtime,
        subject: Subject,
        container: str,
        wanted: ExecRequest,
        env: Mapping[str, str],
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_ending` returns whether the instance is ending: a killed command is then attributed to that."""
        self._is_ending = is_ending
        self._runtime = runtime
        self._subject = subject
        self._container = container
        self._wanted = wanted
        self._env = env
        self._streams = Streams(wanted.stdin, wanted.stdout, wanted.stderr)

    async def serve(self, websocket: WebSocket) -> None:
        wanted, streams = self._wanted, self._streams
        try:
            if wanted.tty:
                streams.open_terminal(wanted.size)
            else:
                streams.open_pipes()
            try:
                execution = await self._start()
            except (NotRunning, KeeperError, OSError) as error:
                self._send_status(websocket, _failure(f"the command cannot be started: {error}"))
            else:
                streams.close_theirs()
                await self._run(websocket, execution)
        finally:
            streams.close()
        await websocket.close(seconds_max=DRAIN_SECONDS_MAX)

    async def _start(self) -> Execution:
        wanted = self._wanted
        env = {**self._env, "TERM": wanted.term} if wanted.tty else self._env
        starting = asyncio.ensure_future(
            self._runtime.exec(
                self._subject, self._container, wanted.command, env=env, streams=self._streams.theirs, tty=wanted.tty
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The command may have been started even so.
            with contextlib.suppress(Exception):
                await _kill(await asyncio.wait_for(starting, CLEAR_UP_SECONDS_MAX))
            raise

    async def _run(self, websocket: WebSocket, execution: Execution) -> None:
        running = asyncio.ensure_future(execution.wait())
        feeding = asyncio.ensure_future(self._feed(websocket))
        showing = [asyncio.ensure_future(self._show(websocket, *one)) for one in self._streams.outputs.items()]
        try:
            # An empty message shows the client that the command runs.
            websocket.send(bytes((STDOUT,)))
            await asyncio.wait((running, feeding, websocket.lost), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                if feeding.done():
                    feeding.result()  # Raises the error if this side failed and the client is still there.
                return
            for end in self._streams.outputs.values():
                end.end_soon()
            await self._finish(websocket, showing)
            self._send_status(websocket, _ended(running, is_ending=self._is_ending()))
        finally:
            for task in (feeding, *showing):
                task.cancel()
            await asyncio.gather(feeding, *showing, return_exceptions=True)
            if not running.done():
                await _kill(execution)
                await asyncio.wait((running,), timeout=CLEAR_UP_SECONDS_MAX)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _finish(self, websocket: WebSocket, showing: Sequence[asyncio.Future[None]]) -> None:
        """Send the rest of the output, as long as the client is there."""
        left: asyncio.Future[Any] = asyncio.gather(*showing)
        await asyncio.wait((left, websocket.lost), return_when=asyncio.FIRST_COMPLETED)
        if left.done():
            left.result()
        else:
            left.cancel()
            raise Closed(1006)

    # Bytes.

    async def _show(self, websocket: WebSocket, channel: int, end: End) -> None:
        wanted = self._wanted.stdout if channel == STDOUT else self._wanted.stderr
        while data := await end.read():
            if wanted:
                websocket.send(b"%c%b" % (channel, data))
                await websocket.drain()

    async def _feed(self, websocket: WebSocket) -> None:
        """Pass input of the client to the command, until the client goes away."""
        try:
            while True:
                await self._take(await websocket.receive())
        except Closed:
            return

    async def _take(self, message: str | bytes) -> None:
        if isinstance(message, str) or not message:
            return
        channel, data = message[0], message[1:]
        stdin, terminal = self._streams.stdin, self._streams.terminal
        if channel == STDIN and stdin is not None:
            await self._write(stdin, data)
        elif channel == RESIZE and terminal is not None:
            with contextlib.suppress(*NOT_JSON):
                size = msgspec.json.decode(data, type=_Resize)
                terminal.resize(Size(size.width & 0xFFFF, size.height & 0xFFFF))
        elif channel == CLOSE and data == bytes((STDIN,)) and stdin is not None:
            self._streams.stdin = None
            if stdin is terminal:
                await self._write(stdin, END_OF_INPUT)
            else:
                stdin.close()

    async def _write(self, stdin: End, data: bytes) -> None:
        try:
            await stdin.write(data)
        except OSError:
            # The command has closed its input. The rest is dropped.
            self._streams.stdin = None
            if stdin is not self._streams.terminal:
                stdin.close()

    @staticmethod
    def _send_status(websocket: WebSocket, status: dict[str, Any]) -> None:
        websocket.send(bytes((ERROR,)) + msgspec.json.encode(status))


async def _kill(execution: Execution) -> None:
    """Kill a command. It may have ended already."""
    with contextlib.suppress(KeeperError, OSError, TimeoutError):
        await asyncio.wait_for(execution.signal(signal.SIGKILL), CLEAR_UP_SECONDS_MAX)


def _ended(running: asyncio.Future[int], *, is_ending: bool) -> dict[str, Any]:
    """Return the end of a command, as Kubernetes encodes it."""
    try:
        code = running.result()
    except (KeeperError, OSError) as error:
        return _failure(f"what became of the command is not known: {error or 'its keeper is gone'}")
    if code == KILLED and is_ending:
        return {**_failure("the command was ended with its instance"), "reason": GONE, "code": 410}
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _failure(message: str) -> dict[str, Any]:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}
