"""The gateway, `/v1`: everything that Rota serves beside objects.

It consists of parts, each with a table of endpoints. A Rota server has all of them (`gateway_server`); an operator
before a Kubernetes cluster has those that need no store of their own (`gateway_running`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Protocol

from rota.engine.objects import Objects
from rota.registry.errors import ApiError
from rota.server.access import Asking, Endpoint, Endpoints
from rota.server.audit import Audit
from rota.server.auth import User
from rota.server.blobs import streams_body as streams_blob
from rota.server.files import streams_body as streams_file
from rota.server.http import Answer, Request
from rota.server.shedding import Shedding

GROWING = frozenset(("POST", "PUT"))
"""Methods of requests that take disk space."""


class Part(Protocol):
    """A set of handlers. A handler gets the part, the request, the user, and the variable parts of the path."""

    @property
    def endpoints(self) -> Sequence[Endpoint]: ...


class Gateway:
    """Finds the endpoint of a request, authorizes the user, and calls the endpoint's handler."""

    def __init__(self, parts: Sequence[Part], objects: Objects, audit: Audit, shedding: Shedding | None = None) -> None:
        self._endpoints = Endpoints(
            one._replace(handler=partial(one.handler, part)) for part in parts for one in part.endpoints
        )
        self._parts = tuple(parts)
        self._objects = objects
        self._audit = audit
        self._shedding = shedding or Shedding()

    def __call__(self, request: Request, user: User) -> Answer | Awaitable[Answer]:
        endpoint, where = self.check(request, user)
        self._audit.begin(user, request.method, request.path)
        answer: Answer | Awaitable[Answer] = endpoint.handler(request, user, **where)
        return answer

    def check(self, request: Request, user: User) -> tuple[Endpoint, dict[str, str]]:
        """Raise ApiError unless the user may make this request. Returns its endpoint and the parts of its path."""
        endpoint, where = self._endpoints.find(request.method, request.path)
        try:
            endpoint.decision.check(Asking(user, self._objects, where))
        except ApiError as error:
            self._refused(endpoint, user, where, error)
            raise
        if request.method in GROWING and endpoint.takes_space:
            self._shedding.check(user)
        return endpoint, where

    def goes_in(self, request: Request) -> bool:
        """Report whether a request enters an instance."""
        return self._endpoints.find(request.method, request.path)[0].decision.goes_in

    def reached(self, request: Request, user: User) -> Answer | Awaitable[Answer]:
        """Answer a request that the hub of this cell makes for one of its users."""
        self._audit.check()
        return self(request, user)

    def _refused(self, endpoint: Endpoint, user: User, where: dict[str, str], error: ApiError) -> None:
        verb, _, what = endpoint.act.partition(" ")
        resource, _, part = what.partition("/")
        name = where.get("name") or where.get("pool") or where.get("digest") or where.get("token_id", "")
        self._audit.refused(user, verb, resource, where.get("namespace", ""), name, part, error.code)


def streams_body(target: bytes) -> bool:
    """Report whether the body of a request to this target is handed over in pieces."""
    return streams_file(target) or streams_blob(target)
