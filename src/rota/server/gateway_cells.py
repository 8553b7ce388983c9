"""`/v1/cells` and `/v1/link`: the cells of a hub, and a cell's link to its hub."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from rota.engine.objects import Objects
from rota.registry.errors import ApiError
from rota.server.access import ADMIN, NOT_FOUND, Endpoint
from rota.server.audit import Audit
from rota.server.auth import User
from rota.server.cells import CellRequests, of_cell
from rota.server.controllers import Running
from rota.server.http import Answer, Request, Response
from rota.server.hub_tunnel import Tunnels
from rota.server.upgrade import Upgrade

_encode = msgspec.json.Encoder().encode


class CellsPart:
    """Answers requests of cells and about them."""

    def __init__(
        self,
        cells: CellRequests,
        objects: Objects,
        audit: Audit,
        tunnels: Tunnels,
        running: Running,
        end: Callable[[str], bool],
    ) -> None:
        """`end` revokes a token by its id, with its open streams, and returns False if there is none."""
        self._cells = cells
        self._objects = objects
        self._audit = audit
        self._tunnels = tunnels
        self._running = running
        self._end = end

    def invite_cell(self, request: Request, user: User, name: str) -> Awaitable[Answer]:
        return self._cells.invite(self._objects, user, name)

    async def join_cell(self, request: Request, user: User, name: str) -> Answer:
        answer = await self._cells.join(self._objects, request, user, name, self._end)
        if (running := self._running()) is not None and running.reports is not None:
            running.reports.forget(name)
        return answer

    def cell_report(self, request: Request, user: User, name: str) -> Awaitable[Answer]:
        return self._cells.report(self._running(), request, user, name)

    def cell_reach(self, request: Request, user: User, name: str) -> Upgrade:
        return self._tunnels.control(self._objects, request, name)

    def cell_session(self, request: Request, user: User, name: str, session: str) -> Upgrade:
        return self._tunnels.session(request, name, session)

    def link(self, request: Request, user: User, act: str) -> Answer:
        """Cut this cell off from its hub, as a test, or end the cut."""
        running = self._running()
        link = running.link if running is not None else None
        if link is None:
            raise ApiError(404, "NotFound", "this server is no cell of a hub")
        if act not in ("cut", "heal"):
            raise ApiError(404, "NotFound", NOT_FOUND)
        link.cut() if act == "cut" else link.heal()
        self._audit.record(user, "update", "cells.rota.dev", "", act, "link", 200)
        return Response(200, _encode({"isCut": link.is_cut}))

    endpoints = (
        Endpoint("POST", "/v1/cells/{name}/invite", ADMIN, "create cells.rota.dev/join", invite_cell),
        Endpoint("POST", "/v1/cells/{name}/join", of_cell("join"), "create cells.rota.dev/join", join_cell),
        Endpoint(
            "POST",
            "/v1/cells/{name}/report",
            of_cell("cell"),
            "create cells.rota.dev/report",
            cell_report,
            takes_space=False,
        ),
        Endpoint("GET", "/v1/cells/{name}/reach", of_cell("cell"), "create cells.rota.dev/reach", cell_reach),
        Endpoint(
            "GET",
            "/v1/cells/{name}/reach/{session}",
            of_cell("cell"),
            "create cells.rota.dev/reach",
            cell_session,
        ),
        Endpoint("POST", "/v1/link/{act}", ADMIN, "update cells.rota.dev/link", link, takes_space=False),
    )
