"""The socket at which the agent of a container connects to its runner, and the proof that the peer is the agent.

Anything that runs in the container has the uid of its agent, and may find the socket. Therefore:

- The runner listens only while no agent is connected. Before the first agent has connected, nothing of a tenant ran.
- The first agent is given a key before it is given a command. A runner that was restarted knows the agent by this key.
- An agent without the key is accepted as a new one only when the process of the last agent has ended, as its pidfd
  shows. That process was the first of its namespace: everything else there had ended before.

An agent reconnects only when nothing runs beside it. So a connection also proves that the container is cleared.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import select
import socket
import struct
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rota.api.problems import NOT_JSON
from rota.runtime.private import write_private
from rota.runtime.runner.agent import FIRST, LENGTH_BYTES

HELLO_SECONDS_MAX = 1.0
"""Seconds that a new connection has to identify itself. Other connections wait meanwhile."""
HELLO_BYTES_MAX = 4096
BACKLOG = 16
SOCKET_MODE = 0o666
"""The socket is open to the agent's uid, which differs. The container sees the socket's folder read-only."""
_CREDENTIALS = struct.Struct("3i")


class AgentConnection(NamedTuple):
    """An agent that is connected."""

    control: socket.socket
    pid: int
    """The pid of the agent in its container."""
    uid: int
    is_new: bool
    """True if the agent has no key yet."""


class NotTheAgent(Exception):  # noqa: N818
    """The peer is not the agent, or its identity cannot be verified."""


class AgentSocket:
    """The socket to which the one agent of a container connects. It outlives the boxes, one after the other.

    `key`: the file of the agent's key, which only the runner may read and which must last as long as the container.
    `uid`: the user of the container; None: that of the first peer. `is_first`: the agent is the container's first
    process.
    """

    def __init__(self, path: Path, key: Path, *, uid: int | None = None, is_first: bool = True) -> None:
        self.is_first = is_first
        self._path = path
        self._key_path = key
        self._uid = uid
        self._listening: socket.socket | None = None
        self._waiting: AgentConnection | None = None
        self._process: int | None = None
        """The pidfd of the last agent."""
        try:
            self._key = key.read_text()
        except FileNotFoundError:
            self._key = ""

    def listen(self) -> None:
        """Let an agent connect. Raises OSError."""
        if self._listening is not None:
            return
        self._path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.bind(str(self._path))
            self._path.chmod(SOCKET_MODE)
            listening.listen(BACKLOG)
        except BaseException:
            listening.close()
            raise
        self._listening = listening

    async def connected(self) -> AgentConnection:
        """Return the next connection of the agent. The caller closes it."""
        waiting, self._waiting = self._waiting, None
        return waiting if waiting is not None else await self._accepted()

    async def cleared(self) -> None:
        """Wait until no command of the last agent runs. Call it after the agent's connection was closed."""
        # A copy: its own is closed when another agent has connected.
        process = os.dup(self._process) if self._process is not None else None
        tasks: list[asyncio.Task[Any]] = [accepting := asyncio.create_task(self._accepted())]
        if process is not None:
            tasks.append(asyncio.create_task(_readable(process)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if process is not None:
                os.close(process)
            if not accepting.cancelled():
                self._waiting = accepting.result()

    def remember(self, key: str) -> None:
        """Store the key that an agent was given. Call it before the agent gets a command."""
        write_private(self._key_path, key.encode())
        self._key = key

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.control.close()
            self._waiting = None
        if self._process is not None:
            os.close(self._process)
            self._process = None
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            self._path.unlink(missing_ok=True)

    async def _accepted(self) -> AgentConnection:
        self.listen()
        assert self._listening is not None
        while True:
            # Not `sock_accept`, which loses a connection when it is cancelled.
            await _readable(self._listening.fileno())
            try:
                control, _ = self._listening.accept()
            except BlockingIOError:
                continue
            try:
                async with asyncio.timeout(HELLO_SECONDS_MAX):
                    connection = await self._recognized(control)
            except (NotTheAgent, TimeoutError, OSError):
                control.close()
            except BaseException:
                control.close()
                raise
            else:
                self._stop_listening()
                return connection

    async def _recognized(self, control: socket.socket) -> AgentConnection:
        _, uid, _ = _CREDENTIALS.unpack(control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if self._uid not in (None, uid) or (self.is_first and uid == os.getuid()):
            raise NotTheAgent("another user")
        descriptors: list[int] = []
        try:
            hello = await _hello(control, descriptors)
            connection = self._known(control, uid, hello)
            if self._process is not None:
                os.close(self._process)
            self._process = descriptors.pop() if descriptors else None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._uid = uid
        return connection

    def _known(self, control: socket.socket, uid: int, hello: Any) -> AgentConnection:
        if not isinstance(hello, dict) or not isinstance(hello.get("ready"), int):
            raise NotTheAgent("no agent")
        pid, key = hello["ready"], hello.get("key", "")
        if self.is_first and pid != FIRST:
            raise NotTheAgent("not the first process of its container")
        if self._key and not (isinstance(key, str) and hmac.compare_digest(key.encode(), self._key.encode())):
            if self._process is None or not _is_readable(self._process):
                raise NotTheAgent("the last agent may still run")
            # Nothing of a tenant runs until the new one has a key.
            self._key_path.unlink(missing_ok=True)
            self._key = ""
        return AgentConnection(control, pid, uid, not self._key)


async def _hello(control: socket.socket, descriptors: list[int]) -> Any:
    """Return the first message without reading further. Appends descriptors that come with it."""
    control.setblocking(False)
    arrived, wanted = bytearray(), LENGTH_BYTES
    while len(arrived) < wanted:
        await _readable(control.fileno())
        with contextlib.suppress(BlockingIOError):
            data, more, _, _ = socket.recv_fds(control, wanted - len(arrived), 1, socket.MSG_CMSG_CLOEXEC)
            descriptors += more
            if not data or len(descriptors) > 1:
                raise NotTheAgent("no message")
            arrived += data
        if len(arrived) == LENGTH_BYTES:
            wanted = LENGTH_BYTES + int.from_bytes(arrived, "big")
            if wanted > HELLO_BYTES_MAX:
                raise NotTheAgent("no message")
    try:
        return msgspec.json.decode(arrived[LENGTH_BYTES:])
    except NOT_JSON:
        raise NotTheAgent("no message") from None


async def _readable(descriptor: int) -> None:
    """Wait until a descriptor is readable. A pidfd is readable when its process has ended."""
    ready = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
