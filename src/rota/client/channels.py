"""The client's end of a command in an instance: a WebSocket with Kubernetes' subprotocol `v5.channel.k8s.io`.

Each message is the number of a channel followed by its bytes. `rota.server.streams` describes the channels.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from urllib.parse import quote, urlencode

import msgspec

from rota.api.problems import NOT_JSON
from rota.client.failures import ConnectionCut
from rota.client.websocket import Closed, WebSocket

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""Numbers of channels."""
COMMAND_BYTES_MAX = 60 * 1024
"""Bytes of a command with its options, which are sent in the head of a request."""
INPUT_PIECE_BYTES = 64 * 1024
EXIT_CODE = re.compile(r"[0-9]{1,3}")
GONE = "Gone"
"""The reason of a `Status` when the instance of a command ended."""

Show = Callable[[int, bytes], Awaitable[None]]
"""Takes output of a channel. The next piece comes when it returns."""


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] = []


class _ExitStatus(msgspec.Struct):
    """The end of a command, as Kubernetes encodes it."""

    status: str = ""
    message: str = ""
    reason: str = ""
    details: _Details | None = None


class ExecFailed(Exception):  # noqa: N818 - says what became of it
    """The command could not be run, or its end is unknown."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        """`GONE` if its instance ended while it ran."""


def path(
    namespace: str,
    instance: str,
    command: Sequence[str],
    *,
    stdin: bool,
    stderr: bool = True,
    container: str = "",
    terminal: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the path and query that run a command. `terminal` are the options of a terminal, if it is to have one."""
    asked = [("container", container), ("stdin", _flag(stdin)), ("stdout", "true"), ("stderr", _flag(stderr))]
    query = urlencode([*asked, *terminal, *(("command", word) for word in command)], errors="surrogateescape")
    if len(query) > COMMAND_BYTES_MAX:
        why = f"the command has {len(query)} bytes as it is sent, and at most {COMMAND_BYTES_MAX} are"
        raise ValueError(f"{why}: give it as standard input, or write it to a file and run that")
    return f"/v1/exec/{quote(namespace, safe='')}/{quote(instance, safe='')}?{query}"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def resize(websocket: WebSocket, columns: int, lines: int) -> None:
    """Report a new size of the terminal."""
    with contextlib.suppress(Closed):
        websocket.send(bytes((RESIZE,)) + msgspec.json.encode({"Width": columns, "Height": lines}))


async def carry(websocket: WebSocket, show: Show, stdin: AsyncIterator[bytes] | None = None) -> int:
    """Pass input and output until the command ends. Returns its exit code.

    Raises ExecFailed, and ConnectionCut if the connection ends before the command is known to have ended.
    """
    status = b""
    feeding = asyncio.ensure_future(_feed(websocket, stdin)) if stdin is not None else None
    if feeding is not None:
        # If the source of the input fails, the command would wait for it for ever.
        feeding.add_done_callback(lambda task: websocket.abort() if _failed(task) else None)
    try:
        async for message in websocket:
            if isinstance(message, str) or len(message) < 2:
                continue
            if message[0] in (STDOUT, STDERR):
                await show(message[0], message[1:])
            elif message[0] == ERROR:
                status = message[1:]
    except Closed as closed:
        if not status and not (feeding is not None and _failed(feeding)):
            raise ConnectionCut(f"the command was ended: {closed}") from None
    finally:
        if feeding is not None:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
    if not status and feeding is not None and _failed(feeding):
        feeding.result()
    if not status:
        assert websocket.closed is not None
        raise ConnectionCut(f"the command was ended: {websocket.closed.reason or 'the server closed the connection'}")
    return exit_code(status)


def _failed(task: asyncio.Future[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


async def _feed(websocket: WebSocket, stdin: AsyncIterator[bytes]) -> None:
    with contextlib.suppress(Closed):
        async for data in stdin:
            for start in range(0, len(data), INPUT_PIECE_BYTES):
                websocket.send(bytes((STDIN,)) + data[start : start + INPUT_PIECE_BYTES])
                await websocket.drain()
        websocket.send(bytes((CLOSE, STDIN)))


def exit_code(status: bytes) -> int:
    """Return the exit code in a `Status`. Raises ExecFailed."""
    try:
        ended = msgspec.json.decode(status, type=_ExitStatus)
    except NOT_JSON:
        raise ExecFailed("what became of the command is not known: the server says it in another way") from None
    if ended.status == "Success":
        return 0
    for cause in ended.details.causes if ended.details is not None else ():
        if cause.reason == "ExitCode" and EXIT_CODE.fullmatch(cause.message):
            return int(cause.message)
    raise ExecFailed(ended.message or "the command failed", ended.reason)
