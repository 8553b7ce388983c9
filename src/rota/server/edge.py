"""The edge: a port of its own, and so an origin of its own, for content of tenants: functions and webhooks.

It serves nothing of the object API or the gateway, and accepts none of their credentials. A webhook is admitted by its
signature, a call of a function by a key of its namespace unless the function is public; a refusal reveals nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Set
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from rota.api import Task
from rota.control.spawner import Spawning
from rota.control.spawners.hooks import AlreadyDelivered, TaskCreated
from rota.control.spawners.webhook import Ignored
from rota.registry.errors import ApiError
from rota.runtime.descriptors import MOST
from rota.server.addresses import LOOPBACK, is_address
from rota.server.audit import NOBODY, RETRY_SECONDS, Audit
from rota.server.auth import User
from rota.server.calls import OWN, CallHandler
from rota.server.http import Answer, Request, Response
from rota.server.loop_budget import LoopBudget
from rota.server.shares import Shares
from rota.server.shedding import RETRY_SECONDS as SHED_SECONDS
from rota.server.shedding import Shedding

DEFAULT_EDGE_PORT = 7480
EDGE_CONNECTIONS_RESERVED = 32
"""Connections that calls cannot keep busy: they serve health checks, and refuse new callers."""
EDGE_BODY_BYTES_MAX = 1024 * 1024
EDGE_BODIES_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of all bodies that are being read, or whose requests are processed."""
EDGE_ANSWERS_BYTES_MAX = 128 * 1024 * 1024
"""Bytes of unread answers. Clients of the edge are anonymous."""
HOOK_REQUESTS_PER_SECOND = 50.0
HOOK_REQUESTS_BURST = 200.0
"""Requests to one webhook at once, and then per second. Signed and unsigned requests are counted separately."""
PUBLIC_REQUESTS_PER_SECOND = 2_000.0
PUBLIC_REQUESTS_BURST = 4_000.0
"""Requests to one function without a key, at once, and then per second."""
ROUTE_BUCKETS = 1024
"""Buckets in which routes are counted, whether they exist or not. Two routes may share one."""
NOT_SERVED_SECONDS = 1
OF_NAMESPACE = "edge/"
"""The prefix of a namespace among the keys of the loop budget, which are otherwise credentials."""

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
    """Answers the requests of the edge."""

    def __init__(
        self,
        spawning: Callable[[], Spawning | None],
        audit: Audit,
        calling: Callable[[], CallHandler | None] = lambda: None,
        connections_max: int = MOST.edge,
        hosts: Set[str] = frozenset(LOOPBACK),
        shedding: Shedding | None = None,
        loop_budget: LoopBudget | None = None,
    ) -> None:
        """`hosts` are the names by which the edge is reached, also through a proxy."""
        self._hosts = hosts
        self._shedding = shedding or Shedding()
        self._loop_budget = loop_budget or LoopBudget()
        self._spawning = spawning
        self._audit = audit
        self._calling = calling
        self._public_rates = Rates(PUBLIC_REQUESTS_PER_SECOND, PUBLIC_REQUESTS_BURST)
        self._shares = Shares(connections_max, min(EDGE_CONNECTIONS_RESERVED, connections_max // 4))
        self._rates = Rates(HOOK_REQUESTS_PER_SECOND, HOOK_REQUESTS_BURST)
        self._unsigned_rates = Rates(HOOK_REQUESTS_PER_SECOND, HOOK_REQUESTS_BURST)

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        try:
            self._audit.check()
        except ApiError as error:
            if request.path != "/healthz":
                return refusal(error.code, error.message, _retry(RETRY_SECONDS))
        for door in EDGE_ROUTES:
            if (where := door.match(request.path)) is not None:
                if door.methods and request.method not in door.methods:
                    return refusal(405, door.only, ("Allow", ", ".join(door.methods)))
                return door.handler(self, request, **where)
        return refusal(404, "there is nothing here")

    def admit(self, request: Request) -> Response | None:
        """Refuse a request by its head, before its body is read, as far as the head decides."""
        for door in EDGE_ROUTES:
            if (where := door.match(request.path)) is None:
                continue
            if door.methods and request.method not in door.methods:
                return refusal(405, door.only, ("Allow", ", ".join(door.methods)))
            calling = self._calling()
            if door.handler is Edge.call and calling is not None:
                function = calling.find(request, where["namespace"], where["name"])
                if isinstance(function, Response):
                    self._note_stranger(function, "functions", where["namespace"], where["name"])
                    return function
                return self._led_here(request) if function.spec.public else None
            return None
        return refusal(404, "there is nothing here")

    def health(self, request: Request) -> Answer:
        return Response(200, b"ok", "text/plain", SAFE)

    def call(self, request: Request, namespace: str, name: str, below: str) -> Answer | Awaitable[Answer]:
        calling = self._calling()
        if calling is None:
            return refusal(503, "no controllers run in this server", _retry(NOT_SERVED_SECONDS))
        function = calling.find(request, namespace, name)
        if isinstance(function, Response):
            self._note_stranger(function, "functions", namespace, name)
            return function
        if function.spec.public:
            if wrong := self._led_here(request):
                return wrong
            pause = self._public_rates.pause(f"{namespace}/{name}", asyncio.get_running_loop().time())
            if pause:
                return refusal(429, "this function is called too often", _retry(pause))
        if short := self._short():
            return short
        return self._sharing(namespace, calling.call(function, request, f"/{below}"))

    def _led_here(self, request: Request) -> Response | None:
        """Return a refusal if a browser was led here under another name, or by a page of another site.

        Without a key, access to the machine or its network would suffice otherwise.
        """
        host, origin = request.headers.get("host"), request.headers.get("origin")
        if host is not None and not self._is_own(f"//{host}"):
            return refusal(403, "the Host of the request is not this server's: --edge-host adds a name")
        if origin is not None and not self._is_own(origin):
            return refusal(403, "the Origin of the request is not this server's: --edge-host adds a name")
        if origin is None and self._is_embedded(request):
            return refusal(403, "a page of another site led here: open the address itself, or add it by --edge-host")
        return None

    def _is_embedded(self, request: Request) -> bool:
        """Report whether a page of another site embeds a resource of this machine, such as an image, which has no
        Origin.

        Under a name of its own the edge may be embedded.
        """
        if request.headers.get("sec-fetch-site") != "cross-site" or self._is_own(request.headers.get("referer", "")):
            return False
        try:
            name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        except ValueError:
            return True
        return name in LOOPBACK or is_address(name)

    def _is_own(self, url: str) -> bool:
        try:
            name = urlsplit(url).hostname or ""
        except ValueError:
            return False
        return name in self._hosts or (url.startswith("//") and is_address(name))

    def follow(self, request: Request, namespace: str, name: str) -> Answer | Awaitable[Answer]:
        calling = self._calling()
        if calling is None:
            return refusal(503, "no controllers run in this server", _retry(NOT_SERVED_SECONDS))
        is_keyed = calling.has_key(request, namespace)
        # One rate for a namespace limits guesses of names; keyed requests have a rate of their own.
        route = f"{OWN}/{'keyed' if is_keyed else 'calls'}/{namespace}"
        if pause := self._public_rates.pause(route, asyncio.get_running_loop().time()):
            return refusal(429, "calls are asked about too often", _retry(pause))
        if not is_keyed and (wrong := self._led_here(request)):
            return wrong
        return self._loop_budget.steps(f"{OF_NAMESPACE}{namespace}", self._followed(calling, request, namespace, name))

    async def _followed(self, calling: CallHandler, request: Request, namespace: str, name: str) -> Answer:
        answer = await calling.follow(request, namespace, name)
        self._note_stranger(answer, "calls", namespace, name)
        return answer

    def hook(self, request: Request, namespace: str, name: str) -> Answer | Awaitable[Answer]:
        spawning = self._spawning()
        if spawning is None or not spawning.hooks.serves:
            return refusal(503, "no controllers run in this server", _retry(NOT_SERVED_SECONDS))
        # Counted separately, so that unsigned requests do not use up the rate of signed ones.
        is_signed = spawning.hooks.is_signed(namespace, name, request.headers, request.body)
        rates = self._rates if is_signed else self._unsigned_rates
        pause = rates.pause(f"hooks/{namespace}/{name}", asyncio.get_running_loop().time())
        if pause:
            return refusal(429, "this webhook is called too often", _retry(pause))
        if short := self._short():
            return short
        return self._sharing(namespace, self._deliver(spawning, request, namespace, name))

    def _short(self) -> Response | None:
        """Refuse calls and webhooks while there is no disk space, because they create Tasks. The reason is not
        revealed."""
        if not self._shedding.why():
            return None
        return refusal(507, "the server is short of disk space; try again later", _retry(SHED_SECONDS))

    async def _sharing(self, namespace: str, answer: Coroutine[Any, Any, Answer]) -> Answer:
        """Answer, unless the namespace keeps its share of the connections busy already."""
        if not self._shares.has_room(namespace):
            answer.close()
            message = f"{self._shares.of(namespace)} requests to {namespace} are under way, which is its share"
            return refusal(429, message, _retry(NOT_SERVED_SECONDS))
        self._shares.take(namespace)
        try:
            return await self._loop_budget.steps(f"{OF_NAMESPACE}{namespace}", answer)
        finally:
            self._shares.give_back(namespace)

    def _note_stranger(self, answer: Answer, resource: str, namespace: str, name: str) -> None:
        if isinstance(answer, Response) and answer.status == 401:
            self._audit.refused(NOBODY, "authenticate", resource, namespace, name, "", 401, "no key of the namespace")

    async def _deliver(self, spawning: Spawning, request: Request, namespace: str, name: str) -> Answer:
        answer = await spawning.hooks.deliver(namespace, name, request.headers, request.body)
        if isinstance(answer, TaskCreated):
            self._note(namespace, name, answer.task)
            return _said(202, {"task": answer.task})
        if isinstance(answer, AlreadyDelivered):
            return _said(200, {"task": answer.task})
        if isinstance(answer, Ignored):
            return _said(200, {"ignored": answer.why})
        if answer.reason == "Unsigned":
            self._audit.refused(NOBODY, "authenticate", "hooks", namespace, name, "", 401, "no valid signature")
        retry = (_retry(answer.retry_seconds),) if answer.retry_seconds else ()
        return refusal(CODES[answer.reason], answer.message, *retry)

    def _note(self, namespace: str, spawner: str, task: str) -> None:
        maker = User(f"taskspawner/{spawner}", "webhook")
        self._audit.record(maker, "create", Task.api.bucket, namespace, task, "", 202)


class EdgeRoute(NamedTuple):
    """A route of the edge. `who` describes the check of its handler, which comes before anything else."""

    methods: tuple[str, ...]
    """Empty for any."""
    pattern: str
    """`*` stands for the rest of the path."""
    who: str
    only: str
    handler: Callable[..., Answer | Awaitable[Answer]]

    def match(self, path: str) -> dict[str, str] | None:
        wanted, parts = self.pattern.split("/"), path.split("/")
        found: dict[str, str] = {}
        if wanted[-1] == "*":
            wanted, below = wanted[:-1], parts[len(wanted) - 1 :]
            parts = parts[: len(wanted)]
            found["below"] = "/".join(below)
        if len(parts) != len(wanted):
            return None
        for each, part in zip(wanted, parts, strict=True):
            if each.startswith("{"):
                if part in ("", OWN):
                    return None
                found[each[1:-1]] = part
            elif each != part:
                return None
        return found


SIGNATURE = "a signature by the secret of the spawner"
KEY = "a key of the namespace, unless the function is public"
EDGE_ROUTES = (
    EdgeRoute(("GET", "HEAD"), "/healthz", "anybody", "health is read", Edge.health),
    EdgeRoute(("POST",), "/-/hooks/{namespace}/{name}", SIGNATURE, "a webhook is a POST", Edge.hook),
    EdgeRoute(("GET", "HEAD"), "/-/calls/{namespace}/{name}", KEY, "what became of a call is read", Edge.follow),
    EdgeRoute((), "/{namespace}/{name}/*", KEY, "", Edge.call),
)
"""Everything that the edge serves, and who may use it."""


class Rates:
    """Limits the rate of requests to each route, with memory that does not grow with the number of routes."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        # Clients cannot determine which routes share a bucket.
        self._salt = os.urandom(16)
        self._left = [burst] * ROUTE_BUCKETS
        self._since = [0.0] * ROUTE_BUCKETS

    def pause(self, route: str, now: float) -> int:
        """Take one request. Returns 0, or the seconds after which another one is allowed."""
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
    """Return an error as JSON."""
    return _said(code, {"error": message}, *headers)


def _said(code: int, body: dict[str, Any], *headers: tuple[str, str]) -> Response:
    return Response(code, _encode(body) + b"\n", headers=(*SAFE, *headers))


def _retry(seconds: int) -> tuple[str, str]:
    return ("Retry-After", str(seconds))
