"""One connection to the keeper: requests out, answers and events in."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rota.runtime.keeper import protocol
from rota.runtime.keeper.messages import (
    Event,
    ExecExited,
    ExitRecord,
    KeeperError,
    KeeperGone,
    Snapshot,
    all_events,
    answers,
)

_RECEIVE_BYTES = 262144
# Past this the reader is too slow: the connection is closed, and the next one begins with a snapshot.
_EVENTS_MAX = 65536
# Exits of commands that came before `exit_of` was called; nobody calls it if the caller was cancelled.
UNCLAIMED_EXITS_MAX = 1024

T = TypeVar("T")


class Connection:
    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._execs: dict[str, asyncio.Future[ExitRecord]] = {}
        self._unclaimed: dict[str, ExitRecord] = {}
        self._outgoing: deque[tuple[bytes, list[int]]] = deque()
        self.events: asyncio.Queue[Event | None] = asyncio.Queue(_EVENTS_MAX)
        self.is_open = True
        self._reading = asyncio.create_task(self._read())

    async def ask(self, verb: str, fields: Mapping[str, Any], kind: type[T], descriptors: Sequence[int] = ()) -> T:
        number = next(self._numbers)
        line = msgspec.json.encode({"id": number, "verb": verb, **fields}) + b"\n"
        if len(line) > protocol.REQUEST_BYTES_MAX:
            raise KeeperError("BadRequest", f"the request has more than {protocol.REQUEST_BYTES_MAX} bytes")
        if not self.is_open:
            raise KeeperGone
        answer = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        try:
            self._send(line, descriptors)
            return msgspec.json.decode(await answer, type=kind)
        finally:
            self._pending.pop(number, None)

    def exit_of(self, name: str) -> asyncio.Future[ExitRecord]:
        """Return the exit of a command, which may have arrived before this call. Call it once for each command."""
        asked: asyncio.Future[ExitRecord] = asyncio.get_running_loop().create_future()
        record = self._unclaimed.pop(name, None)
        if record is not None:
            asked.set_result(record)
        elif self.is_open:
            self._execs[name] = asked
        else:
            asked.set_exception(KeeperGone())
            asked.exception()  # mark as retrieved: the caller may be gone
        return asked

    def _exited(self, name: str, how: ExitRecord) -> None:
        asked = self._execs.pop(name, None)
        if asked is None:
            self._unclaimed[name] = how
            if len(self._unclaimed) > UNCLAIMED_EXITS_MAX:
                del self._unclaimed[next(iter(self._unclaimed))]
        elif not asked.done():
            asked.set_result(how)

    def _send(self, line: bytes, descriptors: Sequence[int]) -> None:
        """Queue a line without waiting: a caller that is cancelled during a send would leave half a line behind."""
        self._outgoing.append((line, [os.dup(descriptor) for descriptor in descriptors]))
        if len(self._outgoing) == 1:
            self._pump()

    def _pump(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._outgoing:
                line, descriptors = self._outgoing[0]
                sent = socket.send_fds(self._stream, [line], descriptors) if descriptors else self._stream.send(line)
                _close(descriptors)
                if sent < len(line):
                    self._outgoing[0] = (line[sent:], [])
                else:
                    self._outgoing.popleft()
        except BlockingIOError:
            loop.add_writer(self._stream, self._pump)
            return
        except OSError:
            self._lost()
            return
        loop.remove_writer(self._stream)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        rest = b""
        try:
            while data := await loop.sock_recv(self._stream, _RECEIVE_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._handle(line)
        except (OSError, msgspec.MsgspecError, asyncio.QueueFull):
            pass
        finally:
            self._lost()

    def _handle(self, line: bytes) -> None:
        answer = answers.decode(line)
        if answer.event is not None:
            event = all_events.decode(line)
            if isinstance(event, ExecExited):
                self._exited(event.exec, event.exit)
                return
            if isinstance(event, Snapshot):
                while not self.events.empty():  # the snapshot replaces them
                    self.events.get_nowait()
            self.events.put_nowait(event)
            return
        waiting = self._pending.get(answer.id or 0)
        if waiting is None or waiting.done():
            return
        if answer.error is not None:
            waiting.set_exception(KeeperError(answer.error.reason, answer.error.message))
        else:
            waiting.set_result(answer.ok)

    def _lost(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        asyncio.get_running_loop().remove_writer(self._stream)
        self._reading.cancel()
        self._stream.close()
        for _, descriptors in self._outgoing:
            _close(descriptors)
        self._outgoing.clear()
        waiters: list[asyncio.Future[Any]] = [*self._pending.values(), *self._execs.values()]
        for waiting in waiters:
            if not waiting.done():
                waiting.set_exception(KeeperGone())
                waiting.exception()  # mark as retrieved: the caller may be gone
        if self.events.full():
            self.events.get_nowait()
        self.events.put_nowait(None)

    async def close(self) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        self._lost()


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
