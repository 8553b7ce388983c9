"""The endpoint of a hub whose objects are on a cluster: its cells join, read their objects, and report here.

A cell needs one address, one certificate authority and one token, as with a hub that is a Rota server. Its reads are
forwarded to the API server with the cell's own token, so the API server authorizes them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import msgspec

from rota.client.connection import header
from rota.client.http import HttpBackend
from rota.control.cells.names import cell_namespace
from rota.registry import ApiError
from rota.registry.errors import too_busy
from rota.server.accounts import Accounts
from rota.server.app import failed, refusal
from rota.server.cells import AUTHORITY, Joined, check_joining, leading, take_report
from rota.server.controllers import Controllers
from rota.server.health import Health, is_health
from rota.server.http import Answer, Request, Response, Stream

READS = (
    "/api/v1/namespaces/{namespace}/",
    "/apis/rota.dev/v1alpha1/namespaces/{namespace}/",
    "/apis/rota.dev/v1alpha1/",
)
"""The beginnings of paths that a cell reads. The only cluster-wide objects among them are instance types."""
RESOURCE = re.compile(r"[a-z0-9.-]{1,253}(/[a-z0-9.-]{1,253})?", re.ASCII)
"""The rest of such a path: a kind of object, and perhaps a name."""
SILENCE_SECONDS_MAX = 660.0
"""Time that a watch may be silent: as long as an API server lets it last."""
READ_SECONDS_MAX = 60.0
"""The longest duration of an answer. The cell then requests it again, which checks its token."""
REQUESTS_OF_CELL_MAX = 64
"""Requests of one cell under way, watches included. It needs a watch for each kind that it reads, and few others."""

_encode = msgspec.json.Encoder().encode
log = logging.getLogger(__name__)


class HubAnswers:
    """Answers the cells of one hub."""

    def __init__(self, running: Controllers, accounts: Accounts, passing: HttpBackend, authority: Path) -> None:
        """`passing` connects to the API server, without a credential of the hub's own."""
        self._running = running
        self._accounts = accounts
        self._passing = passing
        self._authority = authority
        self._under_way: dict[str, dict[object, Callable[[], None]]] = {}
        """For each cell, functions that end its requests under way."""
        leads = {"leads": lambda: "" if running.reports is not None else "another operator leads"}
        self._health = Health(live={"ping": lambda: ""}, ready=leads)

    async def __call__(self, request: Request) -> Answer:
        try:
            return await self._answer(request)
        except ApiError as error:
            return failed(error, request)
        except OSError as error:
            # The error names an address, which is not revealed.
            log.info("the API server cannot be reached: %s", error)
            return refusal(503, "the API server cannot be reached: try again")

    async def _answer(self, request: Request) -> Answer:
        if is_health(request.path):
            return self._health(request) or refusal(404, "there is no such check")
        token = _token(request)
        match [request.method, *request.path.strip("/").split("/")]:
            case ["GET", path] if f"/{path}" == AUTHORITY:
                return Response(200, self._authority.read_bytes(), "application/x-pem-file")
            case ["POST", "v1", "cells", name, "join"]:
                # Checked first, so that others do not learn which cells exist.
                await self._accounts.check_invited(name, token)
                check_joining(self._running.objects, request, name)
                reports = leading(self._running)
                await self._accounts.redeem(name, token)
                given = await self._accounts.admit(name)
                for end in [*self._under_way.get(name, {}).values()]:
                    end()
                reports.forget(name)
                return Response(201, _encode(Joined(*given)))
            case ["POST", "v1", "cells", name, "renew"]:
                await self._check_cell(token, name)
                with self._counted(name):
                    return Response(201, _encode(Joined(*await self._accounts.renew(name))))
            case ["POST", "v1", "cells", name, "report"]:
                await self._check_cell(token, name)
                with self._counted(name):
                    return await take_report(self._running, request, name)
            case ["GET", *_]:
                return await self._read(request, token)
        return refusal(404, "a hub has no such path: cells join, read and report here")

    async def _check_cell(self, token: str, name: str) -> str:
        found = await self._accounts.cell_of(token)
        if found is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        if found != name:
            raise ApiError(403, "Forbidden", f'cell "{found}" is not cell "{name}"')
        return found

    def _begin(self, cell: str) -> object:
        """Count a request of a cell, until `_finish`. Raises 429 if there are too many."""
        its = self._under_way.setdefault(cell, {})
        if len(its) >= REQUESTS_OF_CELL_MAX:
            raise too_busy(f'{len(its)} requests of cell "{cell}" are under way, and no more are taken')
        key = object()
        its[key] = lambda: None
        return key

    def _finish(self, cell: str, key: object) -> None:
        its = self._under_way[cell]
        del its[key]
        if not its:
            del self._under_way[cell]

    @contextmanager
    def _counted(self, cell: str) -> Iterator[None]:
        key = self._begin(cell)
        try:
            yield
        finally:
            self._finish(cell, key)

    async def _read(self, request: Request, token: str) -> Answer:
        """Forward a read of a cell."""
        cell = await self._accounts.cell_of(token)
        if cell is None:
            return refusal(401, "Unauthorized")
        namespace = cell_namespace(cell)
        starts = [one.format(namespace=namespace) for one in READS]
        rest = [request.path.removeprefix(one) for one in starts if request.path.startswith(one)]
        if not any(RESOURCE.fullmatch(one) for one in rest):
            return refusal(403, f'cell "{cell}" reads namespace {namespace} and instance types, and nothing else')
        is_watch = "watch" in request.query
        key = self._begin(cell)
        stack = AsyncExitStack()
        headers = {"Authorization": f"Bearer {token}", "Accept": request.headers.get("accept", "application/json")}
        target = request.path + (f"?{request.query_text}" if request.query_text else "")
        try:
            stream = await stack.enter_async_context(
                self._passing.stream("GET", target, headers=headers, patience_seconds=SILENCE_SECONDS_MAX)
            )
        except BaseException as error:
            self._finish(cell, key)
            if isinstance(error, ValueError):
                return refusal(400, str(error))
            raise

        async def pieces() -> AsyncIterator[bytes]:
            async with stack:
                async for piece in stream:
                    yield piece

        def started(end: Callable[[], None]) -> None:
            self._under_way[cell][key] = end

        return Stream(
            pieces(),
            header(stream.headers, "content-type") or "application/json",
            seconds_max=READ_SECONDS_MAX,
            endless=is_watch,
            on_start=started,
            on_end=lambda: self._finish(cell, key),
        )


def _token(request: Request) -> str:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""
