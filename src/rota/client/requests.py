"""Requests to one server, with credentials and retries.

- A request is retried if it was certainly not carried out: its connection could not be opened, or the server refused it
  with 429 or 503 and a `Retry-After`. The number of attempts and the wait are bounded.
- After 401 the credentials are renewed, if possible, and the request is sent once more.
- A read is also retried if its connection was cut.
- A write that may have been carried out is never retried: the caller gets the error and has to check.
- A WebSocket counts as a write, because it may start something.
- A request that timed out is never retried: the caller has waited long enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from rota.client.answers import refusal, retry_after_seconds
from rota.client.connection import Limits, Response
from rota.client.credentials import Credential
from rota.client.failures import ConnectionCut, CredentialsFailed, Unreachable
from rota.client.heads import head, lines
from rota.client.pool import Pool, Stream
from rota.client.target import Target
from rota.client.websocket import WebSocket

TRIES_MAX = 5
AGAIN_SECONDS_FIRST = 0.1
RETRY_AFTER_SECONDS_MAX = 30.0
"""A server that asks for a longer wait gets no retry."""
HEARTBEAT = "heartbeat"
"""Preference for interim answers as signs of life while the server works on an answer."""

Sleep = Callable[[float], Awaitable[None]]
R = TypeVar("R", Response, "Response | Stream", "Response | WebSocket")

_DEFAULTS = {"Accept": "application/json", "Content-Type": "application/json"}


class Requests:
    """Sends requests to a server, with credentials and retries. Errors are `ApiError`."""

    def __init__(self, target: Target, limits: Limits, *, sleep: Sleep = asyncio.sleep) -> None:
        self._target = target
        self._sleep = sleep
        self._credential: Credential | None = None
        self._pool = Pool(target.endpoint, None, limits)
        at = target.endpoint
        near = at.socket_path or at.host in ("localhost", "127.0.0.1", "::1")
        # Compression pays over a network only.
        coding = "" if near else "Accept-Encoding: gzip\r\n"
        self._start = f"Host: {at.authority}\r\nUser-Agent: rota-client\r\n{coding}"

    async def request(
        self, method: str, path: str, body: bytes = b"", *, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request. Returns the whole answer."""
        return await self._answered(method, self._head(method, path, body, headers), body, self._pool.request)

    async def once(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        patience_seconds: float = 0,
    ) -> Response:
        """Send a request once: the caller decides whether a retry is safe.

        The answer may take `patience_seconds`.
        """
        if patience_seconds:
            headers = {**(headers or {}), "Prefer": HEARTBEAT}

        async def send(request: bytes) -> Response:
            return await self._pool.request(request, patience_seconds)

        return await self._answered(method, self._head(method, path, body, headers), body, send, tries_max=1)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        patience_seconds: float = 0,
    ) -> AsyncIterator[Stream]:
        """Send a request, and read the answer piece by piece.

        Between two pieces the server may be silent for `patience_seconds`.
        """

        async def send(request: bytes) -> Response | Stream:
            stream = await self._pool.stream(request, patience_seconds)
            if stream.status < 300:
                return stream
            try:
                return await stream.whole()
            finally:
                stream.close()

        stream = await self._answered(method, self._head(method, path, body, headers), body, send)
        assert isinstance(stream, Stream)
        try:
            yield stream
        finally:
            stream.close()

    async def upload(self, path: str, body: AsyncIterator[bytes], type_: str) -> Response:
        """Send a PUT with a body that is made while it is sent. Never retried: the source of the body may be gone."""
        said = {"Content-Type": type_, "Transfer-Encoding": "chunked", "Expect": "100-continue"}

        async def send(request: bytes) -> Response:
            response, took = await self._pool.upload(request, body)
            if took and response.status >= 300:
                raise refusal(response)
            return response

        return await self._answered("PUT", self._head("PUT", path, None, said), b"", send, tries_max=1)

    @asynccontextmanager
    async def websocket(
        self, path: str, *, headers: Mapping[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> AsyncIterator[WebSocket]:
        """Open a WebSocket until the end of the block."""
        upgrade = self._pool.upgrade(protocols)
        said = {**(headers or {}), **upgrade.headers}

        async def send(request: bytes) -> Response | WebSocket:
            return await self._pool.websocket(request, upgrade)

        websocket = await self._answered("WEBSOCKET", self._head("GET", path, b"", said), b"", send)
        assert isinstance(websocket, WebSocket)
        try:
            yield websocket
        except BaseException:
            websocket.abort()
            raise
        else:
            await websocket.close()

    async def close(self) -> None:
        await self._pool.close()

    async def _answered(
        self, method: str, head: str, body: bytes, send: Callable[[bytes], Awaitable[R]], *, tries_max: int = TRIES_MAX
    ) -> R:
        tries, renewed = 0, False
        while True:
            tries += 1
            credential = await self._target.credentials.current()
            if credential is not self._credential:
                self._show(credential)
            try:
                response = await send((head + self._shown).encode("ascii") + body)
            except (Unreachable, ConnectionCut) as failure:
                if tries >= tries_max or (isinstance(failure, ConnectionCut) and method != "GET"):
                    raise
                await self._sleep(AGAIN_SECONDS_FIRST * 2 ** (tries - 1))
                continue
            if isinstance(response, WebSocket) or response.status < 300:
                return response
            assert isinstance(response, Response)
            if response.status == 401 and not renewed and self._target.credentials.refuse(credential):
                renewed = True
                continue
            wait = retry_after_seconds(response.headers) if response.status in (429, 503) else None
            if wait is None or wait > RETRY_AFTER_SECONDS_MAX or tries >= tries_max:
                raise refusal(response)
            await self._sleep(wait)

    def _head(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None) -> str:
        """Return the head of a request without the credentials. `body` is None if it is made while it is sent."""
        said = _DEFAULTS | {name.title(): value for name, value in headers.items()} if headers else _DEFAULTS
        if body == b"":
            said = {name: value for name, value in said.items() if name != "Content-Type"}
        length = f"Content-Length: {len(body)}\r\n" if body or (body is not None and method != "GET") else ""
        return head(method, f"{self._target.path}{path}") + self._start + lines(said.items()) + length

    def _show(self, credential: Credential) -> None:
        """Use a credential from now on."""
        said = [*credential.headers, *([("Authorization", f"Bearer {credential.token}")] if credential.token else ())]
        try:
            shown = lines(said)
        except ValueError:
            raise CredentialsFailed(
                "the token holds characters that no token has; is its file the right one?"
            ) from None
        known = self._credential
        if self._target.tls is not None and (known is None or known.certificate != credential.certificate):
            self._pool.use(self._target.tls.context(credential.certificate))
        self._credential = credential
        self._shown = f"{shown}\r\n"
