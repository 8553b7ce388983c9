"""Requests about claims."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from rota.api import Claim
from rota.api.problems import NOT_JSON
from rota.client.claims.failures import NoneFree
from rota.client.failures import ConnectionCut, NoServer, Unreachable
from rota.client.http import HttpBackend
from rota.registry import ApiError

AWAY_SECONDS_MAX = 15.0
"""Seconds for which requests are retried while a server that was reached before is away: it may be restarting."""
AGAIN_SECONDS_FIRST = 0.05
AGAIN_SECONDS_MAX = 1.0
WAIT_SECONDS_MAX = 86400
"""The longest time that a claim may wait."""
GRACE_SECONDS = 30.0
"""Time for a server to answer once it has decided that nothing is free."""

R = TypeVar("R")


class ClaimAnswer(NamedTuple):
    """The answer to a request for a claim."""

    claim: Claim
    token: str
    """Empty if the claim has no instance."""
    is_new: bool
    """True if the request created the claim."""


class _WireAnswer(msgspec.Struct):
    claim: msgspec.Raw
    token: str = ""


class ClaimRequest(msgspec.Struct, rename="camel", omit_defaults=True):
    """The body of a request for a claim."""

    name: str
    priority: int = 0
    wait_seconds: int | None = None
    lease_seconds: int | None = None
    images: Mapping[str, str] = {}
    env: list[dict[str, str]] = []
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


_answer = msgspec.json.Decoder(_WireAnswer)


class Gateway:
    """The claims of a namespace on one server. Each request is sent once."""

    def __init__(self, backend: HttpBackend, namespace: str) -> None:
        self.backend = backend
        self.namespace = namespace

    async def open(self, pool: str, wanted: ClaimRequest) -> ClaimAnswer:
        """Request a claim. Raises NoneFree."""
        waits = WAIT_SECONDS_MAX if wanted.wait_seconds is None else wanted.wait_seconds
        path = f"/v1/pools/{_part(self.namespace)}/{_part(pool)}/claims"
        try:
            return await self._asked("POST", path, msgspec.json.encode(wanted), waits + GRACE_SECONDS)
        except ApiError as error:
            if error.code == 429:
                raise NoneFree(error.message, float((error.details or {}).get("retryAfterSeconds", 1))) from None
            raise

    async def get(self, name: str) -> Claim:
        return (await self._asked("GET", self._path(name))).claim

    async def renew(self, name: str) -> Claim:
        return (await self._asked("POST", f"{self._path(name)}/renew")).claim

    async def release(self, name: str) -> Claim:
        return (await self._asked("DELETE", self._path(name))).claim

    def _path(self, name: str) -> str:
        return f"/v1/claims/{_part(self.namespace)}/{_part(name)}"

    async def _asked(
        self, method: str, path: str, body: bytes | None = None, patience_seconds: float = 0
    ) -> ClaimAnswer:
        response = await self.backend.once(method, path, body, patience_seconds=patience_seconds)
        try:
            answer = _answer.decode(response.body)
            return ClaimAnswer(Claim.decode(bytes(answer.claim)), answer.token, response.status == 201)
        except NOT_JSON as error:
            place = self.backend.target.endpoint.url
            raise ApiError(502, "BadGateway", f"{place} does not answer as Rota's gateway does: {error}") from None


def _part(text: str) -> str:
    return quote(text, safe="")


def whole_seconds(name: str, value: float | None) -> int | None:
    """Round a number of seconds up, as it is sent."""
    if value is None:
        return None
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: {value!r} is no number of seconds")
    return math.ceil(value)


async def retry_while_away(call: Callable[[], Awaitable[R]], check: Callable[[], None] = lambda: None) -> R:
    """Send a request that may be repeated. Retry it until the server is back or `check` raises."""
    return await _retry(call, check, (Unreachable, NoServer, ConnectionCut))


async def retry_until_sent(call: Callable[[], Awaitable[R]], check: Callable[[], None]) -> R:
    """Send a request that must not be repeated. Retry it only while nothing was sent, until `check` raises."""
    return await _retry(call, check, (Unreachable, NoServer))


async def _retry(call: Callable[[], Awaitable[R]], check: Callable[[], None], away: tuple[type[Exception], ...]) -> R:
    clock = asyncio.get_running_loop().time
    until, pause = clock() + AWAY_SECONDS_MAX, AGAIN_SECONDS_FIRST
    while True:
        check()
        try:
            return await call()
        except away:
            if clock() + pause > until:
                raise
        except ApiError as error:
            if error.code != 503 or clock() + pause > until:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, AGAIN_SECONDS_MAX)
