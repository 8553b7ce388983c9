"""`/v1/tokens`: the tokens of a Rota server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rota.api import Role
from rota.engine.objects import Objects
from rota.registry.errors import ApiError, bad_request
from rota.server import media
from rota.server.access import ADMIN, Endpoint
from rota.server.audit import Audit
from rota.server.auth import Token, Tokens, User
from rota.server.claims import ClaimRequests
from rota.server.controllers import Running
from rota.server.http import Request, Response

_encode = msgspec.json.Encoder().encode


class NewToken(msgspec.Struct, rename="camel"):
    name: str
    scope: str = ""
    namespace: str = ""
    expires_seconds: int = 0
    role: str = ""
    ttl_seconds: int = 0
    """The lifetime of a signed token, which is not stored."""


class TokensPart:
    """Answers requests about tokens."""

    def __init__(
        self,
        tokens: Tokens,
        objects: Objects,
        audit: Audit,
        claims: ClaimRequests,
        running: Running,
        end: Callable[[str], bool],
    ) -> None:
        """`end` revokes a token by its id, with its open streams, and returns False if there is none."""
        self._tokens = tokens
        self._objects = objects
        self._audit = audit
        self._claims = claims
        self._running = running
        self._end = end

    def list_tokens(self, request: Request, user: User) -> Response:
        return Response(200, _encode({"tokens": [shown(t) for t in self._tokens.list()]}))

    async def create_token(self, request: Request, user: User) -> Response:
        asked = media.typed(request.body, request.headers.get("content-type", ""), NewToken)
        scope: Any = asked.scope or ("role" if asked.role else "")
        if asked.role and not self._objects.has(Role.api, asked.namespace, asked.role):
            raise bad_request(f'there is no Role "{asked.role}" in "{asked.namespace}": make it first')
        about: dict[str, Any] = {"namespace": asked.namespace, "role": asked.role}
        try:
            if asked.ttl_seconds and asked.expires_seconds:
                raise ValueError("a token has ttlSeconds or expiresSeconds, and not both")
            if asked.ttl_seconds:
                secret, token = self._tokens.sign(asked.name, scope, seconds=asked.ttl_seconds, **about)
            else:
                secret, token = self._tokens.create(asked.name, scope, expires_seconds=asked.expires_seconds, **about)
        except ValueError as error:
            raise bad_request(str(error)) from None
        await self._tokens.save()
        self._audit.record(user, "create", "tokens", token.namespace, token.id, "", 201)
        return Response(201, _encode({**shown(token), "token": secret}))

    async def revoke_token(self, request: Request, user: User, token_id: str) -> Response:
        is_ended = self._end(token_id)
        # Also of one that is gone: its revocation may be on its way to the disk, or have failed there.
        await self._tokens.save()
        if not is_ended:
            raise ApiError(
                404, "NotFound", f'token "{token_id}" not found', details={"name": token_id, "kind": "tokens"}
            )
        self._audit.record(user, "delete", "tokens", "", token_id, "", 200)
        await self._claims.release_all(self._running(), token_id)
        return Response(200, _encode({"kind": "Status", "apiVersion": "v1", "status": "Success"}))

    endpoints = (
        Endpoint("GET", "/v1/tokens", ADMIN, "list tokens", list_tokens),
        Endpoint("POST", "/v1/tokens", ADMIN, "create tokens", create_token),
        Endpoint("DELETE", "/v1/tokens/{token_id}", ADMIN, "delete tokens", revoke_token),
    )


def shown(token: Token) -> dict[str, Any]:
    """Return a token without its hash."""
    return {
        "id": token.id,
        "name": token.name,
        "scope": token.scope,
        "role": token.role,
        "namespace": token.namespace,
        "created": token.created,
        "expires": token.expires,
    }
