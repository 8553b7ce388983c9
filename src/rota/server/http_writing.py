"""Writes the answers to one client, no faster than it reads them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from rota.server.http import Request, Response, Stream, head

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 64 * 1024
"""Unsent bytes above which an answer waits. It goes on when three quarters of them are sent."""


class Writer:
    """Its caller writes one answer after the other, and says when the transport's buffer is full."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._room: asyncio.Future[None] | None = None
        self._full_since = 0.0
        self._stream_task: asyncio.Task[Any] | None = None

    @property
    def is_full(self) -> bool:
        """True while the client has to read before more is written."""
        return self._room is not None

    def full_seconds(self, now: float) -> float:
        return now - self._full_since if self._room is not None else 0.0

    def pause(self) -> None:
        self._room = self._loop.create_future()
        self._full_since = self._loop.time()

    def resume(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def lose(self) -> None:
        """End what waits, because the client went away."""
        if self._room is not None and not self._room.done():
            self._room.set_exception(ConnectionResetError("the client went away"))
            self._room.exception()

    def write(self, request: Request | None, response: Response, *, keep_alive: bool) -> None:
        """Write a small answer at once."""
        start = head(response.status, response.content_type, response.headers, keep_alive)
        self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (start, len(response.body), _body(request, response)))

    async def write_large(self, request: Request, response: Response, *, keep_alive: bool) -> None:
        start = head(response.status, response.content_type, response.headers, keep_alive)
        self._transport.write(b"%bContent-Length: %d\r\n\r\n" % (start, len(response.body)))
        await self._write_by_parts(_body(request, response))

    async def write_stream(self, request: Request, stream: Stream) -> None:
        """Write the chunks as they come. A stream that fails is cut, which shows the client that it is incomplete."""
        start = head(stream.status, stream.content_type, stream.headers, keep_alive=False)
        self._transport.write(start + b"Transfer-Encoding: chunked\r\n\r\n")
        self._stream_task = asyncio.current_task()
        timer = self._loop.call_later(stream.seconds_max, self.end_stream) if stream.seconds_max else None
        is_whole = True
        try:
            async for chunk in stream.chunks:
                assert chunk, "an empty chunk would end the stream"
                if len(chunk) <= WRITE_BUFFER_BYTES:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                else:
                    is_whole = False
                    self._transport.write(b"%x\r\n" % len(chunk))
                    await self._write_by_parts(chunk)
                    self._transport.write(b"\r\n")
                    is_whole = True
                del chunk  # The next one may be hours away.
                if self._room is not None:
                    await self._room
            self._transport.write(b"0\r\n\r\n")
        except asyncio.CancelledError:
            if self._stream_task is not None:
                raise  # It was not `end_stream` that cancelled it.
            if stream.endless and is_whole:
                self._transport.write(b"0\r\n\r\n")
            else:
                self._transport.abort()
        except ConnectionError as error:
            # The source of the stream was cut, or the client.
            log.info("%s %s was cut: %s", request.method, request.path, error)
            self._transport.abort()
        except Exception:
            # The head is sent.
            log.exception("%s %s failed", request.method, request.path)
            self._transport.abort()
        finally:
            self._stream_task = None
            if timer is not None:
                timer.cancel()
            await cast(Any, stream.chunks).aclose()

    def end_stream(self) -> None:
        """End the present stream where it is, if there is one."""
        task, self._stream_task = self._stream_task, None
        if task is not None:
            task.cancel()

    async def _write_by_parts(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(view), WRITE_BUFFER_BYTES):
            self._transport.write(view[start : start + WRITE_BUFFER_BYTES])
            if self._room is not None:
                await self._room


def _body(request: Request | None, response: Response) -> bytes:
    return b"" if request is not None and request.method == "HEAD" else response.body
