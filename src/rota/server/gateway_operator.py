"""The gateway of an operator: on a socket in a folder, for the operator's own user.

Endpoints that need a runtime (exec, files, logs, new claims) are refused with the reason, because an operator has none.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from inspect import isawaitable

from rota.client import Client
from rota.registry.errors import ApiError
from rota.server.app import LOCAL_USER, failed, refusal
from rota.server.audit import Audit
from rota.server.auth import User
from rota.server.claims import ClaimRequests
from rota.server.controllers import Controllers
from rota.server.gateway import Gateway
from rota.server.gateway_running import RunningPart
from rota.server.health import Health, is_health
from rota.server.home import Home
from rota.server.http import Answer, Request, Response
from rota.server.hub_tunnel import Tunnels
from rota.server.signed_tokens import SignedTokens
from rota.server.tables import Tables


class OperatorGateway:
    """Answers the operator's own user, and holders of a claim's token. Call `close` at the end."""

    def __init__(self, running: Controllers, client: Client, home: Home) -> None:
        """`client` is connected to the server that has the objects. `home` is the folder of the socket."""
        self._audit = Audit(home.audit)
        self._tokens = SignedTokens(home.worker_key, "claim")
        objects, tables = running.objects, Tables()
        claims = ClaimRequests(Client(objects.seeing(client.backend)), objects, self._audit, self._tokens)
        part = RunningPart(objects, self._audit, claims, None, Tunnels(self._audit), tables, lambda: running)
        self._gateway = Gateway((part,), objects, self._audit)
        tables.add(running, self._gateway)
        reached = {"server": lambda: str(running.trouble or "")}
        self._health = Health(live={"ping": lambda: ""}, ready=reached)

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        if is_health(request.path):
            return self._health(request) or refusal(404, "an operator has no such check")
        user = request.user = self._user(request)
        if user is None:
            return refusal(401, "Unauthorized")
        if not request.path.startswith("/v1/"):
            return refusal(404, "an operator has no objects: it answers health, and what is below /v1")
        try:
            answer = self._gateway(request, user)
        except ApiError as error:
            return failed(error, request)
        return _answered(answer, request) if isawaitable(answer) else answer

    def admit(self, request: Request) -> Response | None:
        """Refuse a request by its head, before its body is read, as far as the head decides."""
        user = self._user(request)
        if user is None:
            return refusal(401, "Unauthorized")
        try:
            self._gateway.check(request, user)
        except ApiError as error:
            return failed(error, request)
        return None

    def close(self) -> None:
        self._audit.close()

    def _user(self, request: Request) -> User | None:
        if request.peer_uid not in (0, os.getuid()):
            return None
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return LOCAL_USER
        user = self._tokens.user(secret.strip())
        # An operator issues no tokens that could request a claim, so a token with a maker is not its own.
        return user if user is not None and not user.maker else None


async def _answered(answer: Awaitable[Answer], request: Request) -> Answer:
    try:
        return await answer
    except ApiError as error:
        return failed(error, request)
