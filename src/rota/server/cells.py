"""The cells of a hub: joining, and reports.

A cell joins with an invitation, a token that is valid once and for an hour. It gets another token, which it stores in
its home. With that token it reads its own namespace at the hub, and reports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from rota.api import Cell
from rota.api.problems import NOT_JSON
from rota.control.cells.messages import Uid
from rota.control.cells.names import cell_namespace, shown_identity
from rota.engine.objects import Objects, get
from rota.registry.errors import ApiError, bad_request
from rota.server.access import Asking, Decision
from rota.server.audit import Audit
from rota.server.auth import Tokens, User
from rota.server.http import Request, Response

if TYPE_CHECKING:
    from rota.control.cells.reports import Reports
    from rota.server.controllers import Controllers

AUTHORITY = "/cacerts"
"""The path of a hub's certificate authority, which is public. A cell compares it with the known fingerprint."""
JOIN_SECONDS = 3600
FINGERPRINT = "sha256:"

_encode = msgspec.json.Encoder().encode


class Joining(msgspec.Struct, rename="camel"):
    """The request of a cell to join."""

    identity: Uid
    city: Annotated[str, msgspec.Meta(max_length=64)]


class Joined(msgspec.Struct, rename="camel"):
    """The answer to a cell that has joined."""

    token: str
    renew_seconds: float = 0.0
    """Time after which the token is to be renewed; 0 if it does not expire."""


def fingerprint(authority: bytes) -> str:
    """Return the fingerprint of a certificate authority."""
    return FINGERPRINT + hashlib.sha256(authority).hexdigest()


def of_cell(scope: str) -> Decision:
    """Admit the cell itself, with a token of this scope."""

    def check(asking: Asking) -> None:
        user = asking.user
        if user.scope != scope or user.namespace != cell_namespace(asking.name):
            raise ApiError(403, "Forbidden", f'User "{user.name}" is not cell "{asking.name}"')

    return Decision(f"the cell itself, with a token of scope {scope}", check)


class CellRequests:
    """Handlers of requests about cells."""

    def __init__(self, tokens: Tokens, audit: Audit, authority: Path) -> None:
        """`authority` is the file with the certificate of this hub's authority."""
        self._tokens = tokens
        self._audit = audit
        self._authority = authority

    async def invite(self, objects: Objects, user: User, name: str) -> Response:
        """Create an invitation, with which a cell can join. An earlier invitation ends."""
        cell = _existing(objects, name)
        try:
            secret, token = self._tokens.invite(
                name, cell_namespace(name), seconds=JOIN_SECONDS, cell=cell.metadata.uid
            )
        except ValueError as error:
            raise bad_request(str(error)) from None
        await self._tokens.save()
        self._audit.record(user, "create", "cells.rota.dev", "", name, "join", 201)
        body = {"token": secret, "id": token.id, "authority": fingerprint(self._authority.read_bytes())}
        return Response(201, _encode(body))

    async def join(
        self, objects: Objects, request: Request, user: User, name: str, revoke: Callable[[str], bool]
    ) -> Response:
        """Exchange an invitation for the cell's token. Earlier tokens of that cell end.

        `revoke` ends a token by its id, with its open streams, and returns False if there is none.
        """
        cell = check_joining(objects, request, name)
        if not revoke(user.token_id):
            raise ApiError(401, "Unauthorized", "Unauthorized")
        for one in self._tokens.list():
            if (one.scope, one.namespace) == ("cell", cell_namespace(name)):
                revoke(one.id)
                self._audit.record(user, "delete", "tokens", one.namespace, one.id, "", 200)
        secret, token = self._tokens.create(name, "cell", namespace=cell_namespace(name), cell=cell.metadata.uid)
        await self._tokens.save()
        self._audit.record(user, "create", "tokens", token.namespace, token.id, "", 201)
        return Response(201, _encode(Joined(secret)))

    async def report(self, controllers: Controllers | None, request: Request, user: User, name: str) -> Response:
        try:
            return await take_report(controllers, request, name)
        except ApiError as error:
            if error.code < 500:
                self._audit.refused(user, "create", "cells.rota.dev", "", name, "report", error.code)
            raise


def authority_of(path: Path) -> Response:
    """Answer with the certificate in a file."""
    return Response(200, path.read_bytes(), "application/x-pem-file")


def check_joining(objects: Objects, request: Request, name: str) -> Cell:
    """Return the cell that a request may join as. Raises `ApiError`."""
    cell = _existing(objects, name)
    asked = _typed(request, Joining)
    known = cell.status.identity if cell.status is not None else None
    if known is not None and known != shown_identity(asked.identity):
        raise taken(name)
    if asked.city != cell.spec.city_code:
        raise bad_request(f'cell "{name}" is in city {cell.spec.city_code} here, and not in {asked.city}')
    return cell


def leading(controllers: Controllers | None) -> Reports:
    """Return the receiver of reports. Raises 503 unless this process leads."""
    reports = controllers.reports if controllers is not None else None
    if reports is None:
        raise _not_leading()
    return reports


async def take_report(controllers: Controllers | None, request: Request, name: str) -> Response:
    """Take a report from a cell."""
    intake = controllers.intake if controllers is not None else None
    if intake is None:
        raise _not_leading()
    return Response(200, _encode(await intake.take(name, request.body)))


def _not_leading() -> ApiError:
    return ApiError(503, "ServiceUnavailable", "this server places nothing, or another one leads: try again")


def taken(name: str) -> ApiError:
    return ApiError(
        409,
        "Conflict",
        f'cell "{name}" has joined from another home. Give this one a name of its own;'
        f" or, if the other is gone for good, `rota cell remove {name} --lost` and join again",
    )


def _existing(objects: Objects, name: str) -> Cell:
    cell = get(objects, Cell, name)
    if cell is None:
        raise ApiError(404, "NotFound", f'there is no cell "{name}" here', details={"name": name, "kind": "cells"})
    return cell


def _typed(request: Request, type_: type[Joining]) -> Joining:
    try:
        return msgspec.json.decode(request.body, type=type_)
    except NOT_JSON as error:
        raise bad_request(f"the body is not what is expected here: {error}") from None
