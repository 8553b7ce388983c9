"""The edge: its own port, and so its own origin, for everything whose content others control: functions and webhooks.

Nothing of the object API or the gateway is here, and no credential of theirs is good here. A webhook is let in by its
signature, a call of a function by a key of its namespace, unless the function is public; who has none is told nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any

import msgspec

from rota.api import Task
from rota.control.spawner import Spawning
from rota.control.spawners.hooks import Known, Made
from rota.control.spawners.webhook import Ignored
from rota.server.audit import Audit, Line
from rota.server.audit import now as audit_now
from rota.server.calls import Calling
from rota.server.http import Answer, Request, Response
from rota.server.shedding import RETRY_SECONDS, Shedding

DEFAULT_EDGE_PORT = 7480
EDGE_CONNECTIONS_MAX = 512
EDGE_BODY_BYTES_MAX = 1024 * 1024
"""Whoever comes here has not said who they are."""
HOOK_REQUESTS_PER_SECOND = 50.0
HOOK_REQUESTS_BURST = 200.0
"""Requests to one webhook at once, signed or not. Then there are so many a second."""
PUBLIC_REQUESTS_PER_SECOND = 2_000.0
PUBLIC_REQUESTS_BURST = 4_000.0
"""Likewise, requests to one function by whoever has no key."""
ROUTE_BUCKETS = 1024
"""Routes are counted in so many buckets, whether they exist or not; two may share one."""
NOT_SERVED_SECONDS = 1

CODES = {
    "Unsigned": 401,
    "BadBody": 400,
    "TemplateError": 422,
    "InvalidTask": 422,
    "AtLimit": 429,
    "Suspended": 503,
    "NotServed": 503,
    "Busy": 503,
}
SAFE = (("X-Content-Type-Options", "nosniff"),)

_encode = msgspec.json.Encoder().encode


class Edge:
    """What the edge answers."""

    def __init__(
        self,
        spawning: Callable[[], Spawning | None],
        audit: Audit,
        calling: Callable[[], Calling | None] = lambda: None,
        shedding: Shedding | None = None,
    ) -> None:
        self._shedding = shedding or Shedding()
        self._spawning = spawning
        self._audit = audit
        self._calling = calling
        self._public_rates = Rates(PUBLIC_REQUESTS_PER_SECOND, PUBLIC_REQUESTS_BURST)
        self._rates = Rates(HOOK_REQUESTS_PER_SECOND, HOOK_REQUESTS_BURST)

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        match request.path.split("/"):
            case ["", "healthz"] if request.method in ("GET", "HEAD"):
                return Response(200, b"ok", "text/plain", SAFE)
            case ["", "-", "hooks", namespace, name] if namespace and name:
                if request.method != "POST":
                    return refusal(405, "a webhook is a POST", ("Allow", "POST"))
                return self._hook(request, namespace, name)
            case ["", "-", "calls", namespace, name] if namespace and name:
                if request.method not in ("GET", "HEAD"):
                    return refusal(405, "what became of a call is read", ("Allow", "GET, HEAD"))
                return self._follow(request, namespace, name)
            case ["", namespace, name, *below] if namespace and name and namespace != "-":
                return self._call(request, namespace, name, "/" + "/".join(below))
        return refusal(404, "there is nothing here")

    def _call(self, request: Request, namespace: str, name: str, path: str) -> Answer | Awaitable[Answer]:
        calling = self._calling()
        if calling is None:
            return refusal(503, "no controllers run in this server", _retry(NOT_SERVED_SECONDS))
        function = calling.find(request, namespace, name)
        if isinstance(function, Response):
            return function
        if function.spec.public:
            pause = self._public_rates.pause(f"{namespace}/{name}", asyncio.get_running_loop().time())
            if pause:
                return refusal(429, "this function is called too often", _retry(pause))
        return self._short() or calling.call(function, request, path)

    def _follow(self, request: Request, namespace: str, name: str) -> Answer:
        # All of a namespace together: whoever guesses names does not get far.
        pause = self._public_rates.pause(f"calls/{namespace}", asyncio.get_running_loop().time())
        if pause:
            return refusal(429, "calls are asked about too often", _retry(pause))
        calling = self._calling()
        if calling is None:
            return refusal(503, "no controllers run in this server", _retry(NOT_SERVED_SECONDS))
        return calling.follow(request, namespace, name)

    def _hook(self, request: Request, namespace: str, name: str) -> Answer | Awaitable[Answer]:
        pause = self._rates.pause(f"hooks/{namespace}/{name}", asyncio.get_running_loop().time())
        if pause:
            return refusal(429, "this webhook is called too often", _retry(pause))
        spawning = self._spawning()
        if spawning is None:
            return refusal(503, "no controllers run in this server", _retry(NOT_SERVED_SECONDS))
        return self._short() or self._deliver(spawning, request, namespace, name)

    def _short(self) -> Response | None:
        """Calls and webhooks leave a Task: none is taken while there is no space. Whoever asks is told no more."""
        if not self._shedding.why():
            return None
        return refusal(507, "the server is short of disk space; try again later", _retry(RETRY_SECONDS))

    async def _deliver(self, spawning: Spawning, request: Request, namespace: str, name: str) -> Answer:
        answer = await spawning.hooks.deliver(namespace, name, request.headers, request.body)
        if isinstance(answer, Made):
            self._note(namespace, name, answer.task)
            return _said(202, {"task": answer.task})
        if isinstance(answer, Known):
            return _said(200, {"task": answer.task})
        if isinstance(answer, Ignored):
            return _said(200, {"ignored": answer.why})
        retry = (_retry(answer.retry_seconds),) if answer.retry_seconds else ()
        return refusal(CODES[answer.reason], answer.message, *retry)

    def _note(self, namespace: str, spawner: str, task: str) -> None:
        line = Line(
            audit_now(), f"taskspawner/{spawner}", "webhook", "create", Task.api.bucket, namespace, task, "", 202
        )
        self._audit.write(line)


class Rates:
    """How often each route may be asked for. It has no more memory for a million routes than for one."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        # Nobody outside can tell which routes share a bucket.
        self._salt = os.urandom(16)
        self._left = [burst] * ROUTE_BUCKETS
        self._since = [0.0] * ROUTE_BUCKETS

    def pause(self, route: str, now: float) -> int:
        """Take one. Returns 0, or the seconds after which there is one to take."""
        digest = blake2b(route.encode("utf-8", "surrogatepass"), digest_size=4, key=self._salt).digest()
        at = int.from_bytes(digest) % ROUTE_BUCKETS
        left = min(self._burst, self._left[at] + (now - self._since[at]) * self._per_second)
        self._since[at] = now
        if left < 1.0:
            self._left[at] = left
            return max(1, round((1.0 - left) / self._per_second))
        self._left[at] = left - 1.0
        return 0


def refusal(code: int, message: str, *headers: tuple[str, str]) -> Response:
    """Why nothing came of a request."""
    return _said(code, {"error": message}, *headers)


def _said(code: int, body: dict[str, Any], *headers: tuple[str, str]) -> Response:
    return Response(code, _encode(body) + b"\n", headers=(*SAFE, *headers))


def _retry(seconds: int) -> tuple[str, str]:
    return ("Retry-After", str(seconds))
