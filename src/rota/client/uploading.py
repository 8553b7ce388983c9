"""A request whose body is sent as it is made, on a connection of its own.

The server is asked first whether it wants the body, so that a refusal costs nothing. It is never sent again: what it is
made of may be gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httptools

from rota.client.answers import refusal
from rota.client.connection import Headers, Response
from rota.client.failures import BadAnswer, ConnectionCut, NoServer, TimedOut, Unreachable
from rota.client.target import Target

CONNECT_SECONDS_MAX = 10.0
ANSWER_SECONDS_MAX = 300.0
"""After the last byte the server may still have work to do."""
TAKE_SECONDS_MAX = 90.0
"""A server that takes nothing for this long hangs."""
ANSWER_BYTES_MAX = 1024 * 1024
READ_BYTES = 64 * 1024


async def upload(target: Target, path: str, body: AsyncIterator[bytes], headers: Mapping[str, str]) -> Response:
    """Put a body at a path, which is percent-encoded. Refusals are `ApiError`."""
    credential = await target.credentials.current()
    reader, writer = await _connected(target, credential.certificate)
    try:
        at = target.endpoint
        host = "localhost" if at.socket_path else f"{at.host}:{at.port}"
        said = {
            "Host": host,
            "User-Agent": "rota-client",
            **headers,
            **dict(credential.headers),
            **({"Authorization": f"Bearer {credential.token}"} if credential.token else {}),
            "Transfer-Encoding": "chunked",
            "Expect": "100-continue",
            "Connection": "close",
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        writer.write(f"PUT {target.path}{path} HTTP/1.1\r\n{lines}\r\n".encode("ascii"))
        response = await _exchange(_Answer(reader, at.url), writer, body)
    except (ConnectionResetError, BrokenPipeError) as error:
        raise ConnectionCut(f"the connection to {target.endpoint.url} was cut: {error}") from None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if response.status >= 300:
        raise refusal(response)
    return response


async def _exchange(answer: _Answer, writer: asyncio.StreamWriter, body: AsyncIterator[bytes]) -> Response:
    first = await answer.next(TAKE_SECONDS_MAX)
    if first.status != 100:
        return first
    answering = asyncio.ensure_future(answer.next(None))
    sending = asyncio.ensure_future(_send(writer, body))
    try:
        # A server that answers before it has all wants no more of it.
        await asyncio.wait((answering, sending), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done() and sending.exception() is None:
            await asyncio.wait((answering,), timeout=ANSWER_SECONDS_MAX)
        elif not answering.done() and isinstance(sending.exception(), ConnectionError):
            # It may have said why it has hung up.
            await asyncio.wait((answering,), timeout=CONNECT_SECONDS_MAX)
        if sending.done() and not isinstance(error := sending.exception(), ConnectionError | None):
            raise error
        if not answering.done():
            raise TimedOut(f"{answer.place} has the whole body, and says nothing: it hangs, or is out of reach")
        return answering.result()
    finally:
        for task in (answering, sending):
            task.cancel()
        await asyncio.gather(answering, sending, return_exceptions=True)


async def _send(writer: asyncio.StreamWriter, body: AsyncIterator[bytes]) -> None:
    async for piece in body:
        if piece:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            try:
                async with asyncio.timeout(TAKE_SECONDS_MAX):
                    await writer.drain()
            except TimeoutError:
                raise TimedOut(f"the server took nothing for {TAKE_SECONDS_MAX:g} s") from None
    writer.write(b"0\r\n\r\n")
    await writer.drain()


class _Answer:
    """Answers on a connection: `100 Continue`, and the real one."""

    def __init__(self, reader: asyncio.StreamReader, place: str) -> None:
        self.place = place
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Headers = []
        self._body = b""
        self._whole: list[Response] = []

    async def next(self, seconds_max: float | None) -> Response:
        while not self._whole:
            try:
                async with asyncio.timeout(seconds_max):
                    data = await self._reader.read(READ_BYTES)
            except TimeoutError:
                raise TimedOut(f"{self.place} said nothing for {seconds_max:g} s") from None
            if not data:
                raise ConnectionCut(f"the connection to {self.place} was cut before the answer was complete")
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError as error:
                raise BadAnswer(f"{self.place} does not answer in HTTP/1.1: {error}") from None
        return self._whole.pop(0)

    # What the parser tells.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > ANSWER_BYTES_MAX:
            raise BadAnswer(f"the answer of {self.place} is larger than {ANSWER_BYTES_MAX} bytes")

    def on_message_complete(self) -> None:
        self._whole.append(Response(self._parser.get_status_code(), self._headers, self._body))
        self._headers, self._body = [], b""


async def _connected(target: Target, certificate: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    at = target.endpoint
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            if at.socket_path:
                return await asyncio.open_unix_connection(at.socket_path)
            tls: Any = target.tls.context(certificate) if target.tls is not None else None
            name = (at.server_name or at.host) if tls is not None else None
            return await asyncio.open_connection(at.host, at.port, ssl=tls, server_hostname=name)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        if at.socket_path:
            raise NoServer(f"no Rota server is running at {at.socket_path}: start one with `rota start`") from None
        raise Unreachable(f"cannot connect to {at.url}: {error}") from None
    except OSError as error:
        raise Unreachable(f"cannot connect to {at.url}: {error or 'it is out of reach'}") from None
