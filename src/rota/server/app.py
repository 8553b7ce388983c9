"""The requests of a server: authentication, health, discovery, the object API and the gateway."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from rota.api import Cell, Namespace, Role, Secret
from rota.api.reviews import REVIEWS
from rota.registry import ApiError, Registry
from rota.registry.selectors import named
from rota.registry.system import stored_uid
from rota.runtime.descriptors import MOST, Connections
from rota.server import discovery, media, openapi, reviews
from rota.server.audit import NOBODY, Audit
from rota.server.auth import READ, Tokens, User, allows, verbs_of
from rota.server.cells import AUTHORITY, authority_of
from rota.server.finishing import finished
from rota.server.gateway import Gateway
from rota.server.health import Health, is_health
from rota.server.http import (
    Answer,
    Request,
    Response,
    Stream,
)
from rota.server.loop_budget import LoopBudget
from rota.server.memory import Memory, Payer
from rota.server.negotiation import JSON, Negotiated
from rota.server.objects import METHOD, NOT_ALLOWED, NOT_FOUND, Objects, WriteResult, check_possible, verb_of, warned
from rota.server.routing import Route, route
from rota.server.shares import Seats, Shares
from rota.server.shedding import Shedding
from rota.server.signed_tokens import SignedTokens
from rota.server.unread_answers import check_room, payer_of
from rota.server.upgrade import Upgrade
from rota.store import Event

REQUESTS_PER_USER_MAX = 400
"""Requests of one credential that are processed or queued."""
SEATS = 128
"""Lists and writes that are processed at once. Others wait, one credential after the other."""
SEATS_RESERVED = 16
"""Additional seats for admins."""
SEAT_SECONDS_MAX = 20.0
CONNECTIONS_RESERVED = 256
"""Connections that only admins can keep busy: of those over TCP, and of those at the local socket."""
GROWING = frozenset(("create", "update", "patch"))
"""Verbs that take disk space."""
LOCAL_USER = User("local", "admin")
ROLES = f"{Role.api.bucket}/"
CELLS = f"{Cell.api.bucket}/"
NAMESPACES = f"{Namespace.api.bucket}/"
ROLE = "role:"
"""The prefix of a Role's namespace and name among the keys of open streams."""
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
IMPERSONATION = "impersonate-"
"""The prefix of the headers of `kubectl --as`."""

_encode = msgspec.json.Encoder().encode


def refusal(code: int, message: str) -> Response:
    """Return a `Status` for a request that did not reach a verb."""
    reasons = {
        400: "BadRequest",
        401: "Unauthorized",
        403: "Forbidden",
        404: "NotFound",
        405: "MethodNotAllowed",
        408: "Timeout",
        413: "RequestEntityTooLarge",
        429: "TooManyRequests",
        431: "BadRequest",
        500: "InternalError",
        507: "NoSpace",
    }
    return failed(ApiError(code, reasons.get(code, "Unknown"), message))


def failed(error: ApiError, request: Request | None = None) -> Response:
    """Return an error as an answer, in a media type that the client accepts."""
    retry = (error.details or {}).get("retryAfterSeconds")
    headers = (("Retry-After", str(retry)),) if retry else (("Retry-After", "1"),) if error.code == 429 else ()
    body, media_type = media.refused(error, request.headers.get("accept", "") if request is not None else "")
    return Response(error.code, body, media_type, (*headers, *warned(error.warnings)))


def ended_meanwhile() -> ApiError:
    """Return the error for a credential that has ended during a request."""
    return ApiError(401, "Unauthorized", "the credential is no longer good, or another one")


def _nothing() -> None:
    """Do nothing: the stream has not begun."""


class App:
    """Answers the requests of one server. Its state is only the requests and streams under way."""

    def __init__(
        self,
        registry: Registry,
        definitions: Registry,
        tokens: Tokens,
        audit: Audit,
        gateway: Gateway,
        *,
        hosts: frozenset[str],
        server_uid: int,
        authority: Path,
        signed: Sequence[SignedTokens] = (),
        shedding: Shedding | None = None,
        connections: Connections = MOST,
        memory: Memory | None = None,
        loop_budget: LoopBudget | None = None,
    ) -> None:
        """`definitions` holds the CustomResourceDefinitions, `connections` are the limits of connections.

        `authority` is the file with the certificate whose fingerprint cells compare.
        """
        self._shedding = shedding or Shedding()
        self._answers = (memory or Memory()).answers
        self._loop_budget = loop_budget or LoopBudget()
        self._objects = Objects(registry, definitions, self._answers)
        self._tokens = tokens
        self._signed = signed
        self._audit = audit
        self._gateway = gateway
        self._hosts = hosts
        self._server_uid = server_uid
        self._authority = authority
        self._requests: dict[str, int] = {}
        self._seats = Seats(SEATS, SEATS_RESERVED, SEAT_SECONDS_MAX)
        self._remote, self._local = (
            Shares(total, min(CONNECTIONS_RESERVED, total // 4)) for total in (connections.remote, connections.local)
        )
        self._watches: dict[str, dict[object, Callable[[], None]]] = {}
        registry.store.subscribe(self._end_with_objects)
        self.ready = False
        self._health = Health(
            live={"ping": lambda: "", "store": lambda: str(registry.store.ended() or "")},
            ready={
                "startup": lambda: "" if self.ready else "the server is not up yet, or about to end",
                "disk": self._shedding.why,
                **({"audit": lambda: audit.trouble} if audit.required else {}),
            },
        )

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        path = request.path
        if is_health(path):
            return self._health(request) or refusal(404, NOT_FOUND)
        if path == AUTHORITY and request.method == "GET":
            return authority_of(self._authority)
        user = self._authenticated(request)
        if isinstance(user, Response):
            return user
        return self._begun(request, user) if self._loop_budget.may_go(user.share_key) else self._in_turn(request, user)

    def _authenticated(self, request: Request) -> User | Response:
        """Return the user of a request, or the refusal of its credential."""
        try:
            return self._user_or_refusal(request)
        except ApiError as error:
            return failed(error, request)

    def _begun(self, request: Request, user: User) -> Answer | Awaitable[Answer]:
        """Begin a request now. Its further steps stay within the budget of the event loop."""
        answer = self._loop_budget.take(lambda: self._answered(request, user))
        # A stream is no step of a request: it goes on for hours.
        if isinstance(answer, Response | Stream | Upgrade):
            return answer
        return self._loop_budget.steps(user.share_key, answer)

    def _answered(self, request: Request, user: User) -> Answer | Awaitable[Answer]:
        try:
            self._audit.check()
            where = route(request.path)
            if where is not None:
                return self._object(request, where, user)
            return self._other(request, user)
        except ApiError as error:
            return failed(error, request)

    async def _in_turn(self, request: Request, user: User) -> Answer:
        """Answer a request for which this turn of the loop has no time left."""
        if crowded := self._crowded(request, user):
            return crowded
        give_back = self._keep(request, user)
        try:
            async with asyncio.timeout(SEAT_SECONDS_MAX):
                await self._loop_budget.wait(user.share_key)
        except TimeoutError:
            return refusal(429, f"the server was too busy to begin with this for {SEAT_SECONDS_MAX:.0f} seconds")
        finally:
            give_back()
        # The credential may have ended meanwhile.
        known = self._authenticated(request)
        if isinstance(known, Response):
            return known
        answer = self._begun(request, known)
        return answer if isinstance(answer, Response | Stream | Upgrade) else await answer

    def admit(self, request: Request) -> Response | None:
        """Refuse a request by its head, before its body is read, as far as the head decides."""
        if is_health(request.path):
            return refusal(413, "a question about health has no body")
        try:
            user = self._user_or_refusal(request)
            if isinstance(user, Response):
                return user
            where = route(request.path)
            if where is not None:
                self._allowed(request, where, user)
            elif request.path.startswith("/v1/"):
                self._gateway.check(request, user)
        except ApiError as error:
            return failed(error, request)
        return None

    def payer(self, request: Request) -> Payer | None:
        """Return who pays for the memory of a request."""
        return payer_of(request.user) if request.user is not None else None

    # Authentication.

    def _user_or_refusal(self, request: Request) -> User | Response:
        """Return the user of a request, or a refusal: of strangers, and of users with too many unread answers."""
        path = request.path
        if request.peer_uid is None and not self._is_ours(request):
            return refusal(403, "the Host or Origin of the request is not this server's")
        if CONTROL.search(path):
            return refusal(400, "the path of the request has a control character in it: no name has any")
        user = self._user(request)
        if user is None:
            self._note_stranger(request)
            return failed(ApiError(401, "Unauthorized", "Unauthorized"))
        if any(name.startswith(IMPERSONATION) for name in request.headers):
            wanted = request.headers.get(f"{IMPERSONATION}user", "")
            self._audit.refused(user, "impersonate", "users", name=wanted)
            return refusal(403, "nobody acts for somebody else here: leave out --as, and use a token of theirs")
        request.user = user
        if self._answers.used:
            check_room(self._answers, user)
        return user

    def _is_ours(self, request: Request) -> bool:
        """Report whether Host and Origin name this server. Another page or DNS name can lead a browser here."""
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if name.strip("[]").lower() not in self._hosts:
            return False
        origin = request.headers.get("origin")
        return origin is None or origin == f"https://{host}"

    def _user(self, request: Request) -> User | None:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            secret = secret.strip()
            own = next((user for one in self._signed if (user := one.user(secret)) is not None), None)
            return self._tokens.bounded(own) if own is not None else self._tokens.user(secret)
        if request.peer_uid is not None and request.peer_uid in (0, self._server_uid):
            return LOCAL_USER
        return None

    def _note_stranger(self, request: Request) -> None:
        """Record a failed authentication, with the id of an expired token but never with a token."""
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        reason, token_id = "no credential", ""
        if scheme.lower() == "bearer":
            token_id = self._tokens.expired(secret.strip())
            reason = "expired token" if token_id else "unknown token"
        elif scheme:
            reason = "not a bearer token"
        elif request.peer_uid is not None:
            reason = f"user {request.peer_uid} at the local socket"
        stranger = msgspec.structs.replace(NOBODY, token_id=token_id)
        self._audit.refused(stranger, "authenticate", "requests", code=401, reason=reason)

    # The object API.

    def _allowed(self, request: Request, where: Route, user: User) -> str:
        """Return the verb of a request. Raises ApiError if the user may not use it, or if it is impossible here."""
        verb = verb_of(request, where)
        name = where.name
        if user.role and verb in ("list", "watch"):
            # As on Kubernetes, a right to one object by its name includes listing and watching that one.
            name = named(where.kind, request.query.get("fieldSelector", ""))
        self._check_access(user, verb, where, name)
        check_possible(request, where, verb)
        if verb in ("patch", "update"):
            is_apply = verb == "patch" and media.is_apply(request.headers.get("content-type", ""))
            for each in verbs_of(verb, where.kind, is_apply=is_apply, is_there=self._objects.is_there(where)):
                self._check_access(user, each, where, name)
        return verb

    def _object(self, request: Request, where: Route, user: User) -> Answer | Awaitable[Answer]:
        verb = self._allowed(request, where, user)
        if where.kind in REVIEWS:
            return reviews.review(request, where.kind, user)
        reads_secrets = verb in READ and where.kind is Secret.api
        if reads_secrets or verb not in READ:
            self._audit.begin(user, request.method, request.path)
        if reads_secrets:
            self._audit.record(user, verb, where.kind.bucket, where.namespace, where.name, where.subresource, 200)
        if verb == "get":
            return self._objects.get(request, where)
        if verb == "watch":
            return self._counted(self._objects.watch(request, where), request, user)
        return self._admit_and_write(request, where, verb, user)

    def _check_access(self, user: User, verb: str, where: Route, name: str) -> None:
        if allows(user, verb, where.kind, where.namespace, name, where.subresource):
            return
        if verb not in READ or where.kind is Secret.api:
            self._audit.refused(user, verb, where.kind.bucket, where.namespace, where.name, where.subresource)
        raise forbidden(user, verb, where)

    async def _admit_and_write(self, request: Request, where: Route, verb: str, user: User) -> Answer:
        count = self._requests.get(user.share_key, 0)
        if count >= REQUESTS_PER_USER_MAX:
            return refusal(429, f"there are {REQUESTS_PER_USER_MAX} requests with this credential under way already")
        if crowded := self._crowded(request, user):
            return crowded
        give_back = self._keep(request, user)
        self._requests[user.share_key] = count + 1
        try:
            await self._seats.enter(user.share_key, may_use_reserve=user.scope == "admin")
            try:
                if verb == "list":
                    return await self._objects.list(request, where)
                if verb in GROWING and where.subresource != "scale":
                    self._shedding.check(user)
                return await self._write(request, where, verb, user)
            except ApiError as error:
                return failed(error, request)
            finally:
                self._seats.leave()
        except TimeoutError:
            return refusal(429, f"the server was too busy to begin with this for {SEAT_SECONDS_MAX:.0f} seconds")
        finally:
            give_back()
            # Entries without requests are removed, because each claim has a credential of its own.
            left = self._requests.pop(user.share_key) - 1
            if left:
                self._requests[user.share_key] = left

    async def _write(self, request: Request, where: Route, verb: str, user: User) -> Response:
        """Write, and record it in the audit trail. A write that has begun is recorded even if the client goes away."""
        has_left = asyncio.Event()
        writing = self._written(request, where, verb, user, has_left)
        return await finished(self._loop_budget.steps(user.share_key, writing), has_left.set)

    async def _written(
        self, request: Request, where: Route, verb: str, user: User, has_left: asyncio.Event
    ) -> Response:
        handler: Callable[..., Awaitable[WriteResult]] = getattr(self._objects, verb)
        if verb == "deletecollection":

            def deleted(name: str, revision: int, dry_run: bool) -> None:
                about = (verb, where.kind.bucket, where.namespace, name)
                self._audit.record(user, *about, revision=revision, code=200, dry_run=dry_run)

            handler = partial(self._objects.deletecollection, deleted=deleted, is_over=has_left.is_set)
        try:
            response, revision, names, dry_run = await handler(request, where)
        except ApiError as error:
            response, revision, names, dry_run = failed(error, request), 0, [where.name], False
        about = (verb, where.kind.bucket, where.namespace)
        for name in names:
            self._audit.record(user, *about, name, where.subresource, response.status, revision, dry_run)
        return response

    # Shares of the connections.

    def _shares(self, request: Request) -> Shares:
        return self._remote if request.peer_uid is None else self._local

    def _keep(self, request: Request, user: User) -> Callable[[], None]:
        """Count a connection as busy. Returns a function that gives it back."""
        shares = self._shares(request)
        shares.take(user.share_key)
        return lambda: shares.give_back(user.share_key)

    def _crowded(self, request: Request, user: User) -> Response | None:
        """Return a refusal if the credential keeps its share of connections busy, else None."""
        shares = self._shares(request)
        if shares.has_room(user.share_key, may_use_reserve=user.scope == "admin"):
            return None
        message = (
            f'User "{user.name}" has {shares.of(user.share_key)} requests and watches under way, which is the share of '
            f"this credential while {shares.used} of {shares.total} connections are busy; try again later"
        )
        return refusal(429, message)

    def _counted(self, stream: Stream | Upgrade, request: Request, user: User) -> Answer:
        """Limit the streams of a credential, and end them with it."""
        if crowded := self._crowded(request, user):
            return crowded
        forget: Callable[[], None] = _nothing

        def started(end: Callable[[], None]) -> None:
            nonlocal forget
            self._shares(request).take(user.share_key)
            forget = self._ends_with(user, end)
            stream.on_start(end)

        seconds = min(stream.seconds_max or user.seconds_left, user.seconds_left or stream.seconds_max)

        def ended() -> None:
            self._shares(request).give_back(user.share_key)
            forget()
            stream.on_end()

        return msgspec.structs.replace(stream, seconds_max=seconds, on_start=started, on_end=ended)

    def _ends_with(self, user: User, end: Callable[[], None]) -> Callable[[], None]:
        """End something when a credential ends. Returns a function that forgets it."""
        key = object()
        role = f"{ROLE}{user.role_path}" if user.role else ""
        credentials = [user.token_id, *(one for one in (user.maker, role, user.cell, user.namespace_uid) if one)]
        for credential in credentials:
            self._watches.setdefault(credential, {})[key] = end

        def forget() -> None:
            for credential in credentials:
                ends = self._watches[credential]
                del ends[key]
                if not ends:
                    del self._watches[credential]

        return forget

    def end_watches(self, token_id: str) -> None:
        """End the streams of a credential that is no longer valid."""
        for end in tuple(self._watches.get(token_id, {}).values()):
            end()

    def _end_with_objects(self, events: list[Event]) -> None:
        """End the streams of a Role that has changed, so that clients reconnect with its new rules.

        Streams of a deleted Cell or Namespace end with it.
        """
        for event in events:
            if event.key.startswith(ROLES):
                self.end_watches(f"{ROLE}{event.key.removeprefix(ROLES)}")
            elif event.deleted and event.key.startswith((CELLS, NAMESPACES)):
                self.end_watches(stored_uid(event.value))

    # Everything else.

    async def _finished(self, answer: Awaitable[Answer], request: Request, user: User) -> Answer:
        if crowded := self._crowded(request, user):
            cast(Any, answer).close()
            return crowded
        give_back = self._keep(request, user)
        try:
            result = await (self._while_good(answer, user) if self._gateway.goes_in(request) else answer)
        except ApiError as error:
            return failed(error)
        finally:
            give_back()
        if isinstance(result, Response):
            return result
        # The stream has not begun, so an end of the credential meanwhile has not ended it.
        still = self._user(request)
        if still is None or (still.token_id, still.rules) != (user.token_id, user.rules):
            counted: Answer = failed(ended_meanwhile())
        else:
            counted = self._counted(result, request, still)
        if isinstance(counted, Response):
            # Close the unused stream.
            if isinstance(result, Stream):
                await cast(Any, result.chunks).aclose()
            result.on_end()
        return counted

    async def _while_good(self, answer: Awaitable[Answer], user: User) -> Answer:
        """Wait for an answer as long as the credential is valid. Raises ApiError when it has ended.

        The instance may belong to another holder by then, so the request must not go on there.
        """
        working, has_ended = asyncio.ensure_future(self._loop_budget.steps(user.share_key, answer)), False

        def end() -> None:
            nonlocal has_ended
            has_ended = True
            working.cancel()

        forget = self._ends_with(user, end)
        try:
            return await working
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if not has_ended or (own is not None and own.cancelling()):
                raise
            raise ended_meanwhile() from None
        finally:
            forget()

    def _other(self, request: Request, user: User) -> Answer | Awaitable[Answer]:
        parts = request.path.strip("/").split("/")
        if parts[0] == "v1":
            answer = self._gateway(request, user)
            if isinstance(answer, Response):
                return answer
            if isinstance(answer, Stream | Upgrade):
                return self._counted(answer, request, user)
            return self._finished(answer, request, user)
        found = self._discovered(request, parts)
        if found is None:
            raise ApiError(404, "NotFound", NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            raise ApiError(405, METHOD, NOT_ALLOWED)
        return found

    def _discovered(self, request: Request, parts: list[str]) -> Response | None:
        if parts == ["version"]:
            return Response(200, _encode(discovery.version()))
        if parts[0] == "openapi":
            return openapi.answer(request, "/".join(parts[1:]))
        found: Any = None
        form = Negotiated(JSON)
        if parts in (["api"], ["apis"]):
            form = discovery.discovery_form(request.headers.get("accept", ""))
            if form.transformation is not None:
                return _aggregated(request, parts == ["api"], form.media_type, form.transformation.version)
            address = request.headers.get("host", "")
            found = discovery.api_versions(address) if parts == ["api"] else discovery.group_list()
        elif parts[0] == "apis" and len(parts) == 2:
            found = discovery.group(parts[1])
        elif parts[0] == "apis" and len(parts) == 3:
            found = discovery.resource_list(parts[1], parts[2])
        elif parts[0] == "api" and len(parts) == 2:
            found = discovery.resource_list("", parts[1])
        elif parts == [""]:
            found = {"paths": discovery.paths()}
        return Response(200, media.encoded(_encode(found), form.media_type), form.media_type) if found else None


def _aggregated(request: Request, core: bool, media_type: str, version: str) -> Response:
    """Return all groups in one document, or 304 if the client has it already."""
    body = discovery.aggregated(core, version)
    tag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
    headers = (("ETag", tag), ("Vary", "Accept"), ("Cache-Control", "public"))
    type_ = f"{media_type};g={discovery.AGGREGATED};v={version};as={discovery.AGGREGATED_KIND}"
    if request.headers.get("if-none-match") == tag:
        return Response(304, b"", type_, headers)
    return Response(200, media.encoded(body, media_type), type_, headers)


def forbidden(user: User, verb: str, where: Route) -> ApiError:
    """Return the 403 for a verb that a user may not use, in Kubernetes' words."""
    kind = where.kind
    resource = f"{kind.plural}/{where.subresource}" if where.subresource else kind.plural
    scope = f'in the namespace "{where.namespace}"' if where.namespace else "at the cluster scope"
    what = f' "{where.name}"' if where.name else ""
    message = (
        f'{kind.bucket}{what} is forbidden: User "{user.name}" cannot {verb} resource "{resource}" '
        f'in API group "{kind.group}" {scope}'
    )
    details: dict[str, Any] = {"kind": kind.plural}
    if where.name:
        details["name"] = where.name
    if kind.group:
        details["group"] = kind.group
    return ApiError(403, "Forbidden", message, details=details)
