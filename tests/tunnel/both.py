"""A real hub that runs nothing, and a cell's tunnel to it, whose answers the test gives."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from rota.api import Cell, Instance, Namespace, WorkloadDeployment
from rota.client import Client
from rota.client.credentials import Credential, Fixed
from rota.client.http import HttpBackend
from rota.client.target import Target, Tls, at_url
from rota.control.cells.link import About
from rota.control.cells.names import CELL_UID, Source, shown_identity
from rota.control.instances.names import WORKLOAD_LABEL
from rota.engine import StoreObjects
from rota.registry import ApiError, Registry
from rota.server.audit import Audit
from rota.server.auth import User
from rota.server.cell_tunnel import Tunnel
from rota.server.http import Answer, Request, Response
from rota.store import MemoryStore
from tests.server.conftest import Server, served
from tests.until import until_async

CELL, NAME, IDENTITY = "ber-1", "web-0", "home-of-ber-1"
SPEC: dict[str, Any] = {"containers": [{"name": "main", "command": ["serve"]}], "templateHash": "x", "ordinal": 0}
DEPLOYMENT: dict[str, Any] = {
    "workloadRef": {"name": "web"},
    "placementName": "all",
    "cityCode": "ber",
    "cellName": CELL,
    "template": {"spec": {"containers": SPEC["containers"]}},
    "replicas": 1,
}
ISOLATED = {
    "type": "Isolated",
    "status": "True",
    "reason": "Sandboxed",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}

READY = {**ISOLATED, "type": "Ready", "reason": "Ready"}

Serve = Callable[[Request, User], Answer | Awaitable[Answer]]


def object_of(kind: Any, name: str, spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": kind.api.api_version, "kind": kind.api.name}
    body["metadata"] = {"name": name, **meta}
    return body | ({"spec": spec} if spec is not None else {})


def owned_by(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    about = {one: deployment[one] for one in ("apiVersion", "kind")}
    named = {one: deployment["metadata"][one] for one in ("name", "uid")}
    return [{**about, **named, "controller": True, "blockOwnerDeletion": True}]


class Both:
    """The hub, the store of the cell, and everything that is done to them."""

    def __init__(self, server: Server, cell: Registry, folder: Path) -> None:
        self.server = server
        self.hub = Client.connect(home=server.home)
        self.cell = Client.local(cell, manager="test")
        self.objects = StoreObjects(cell)
        self.audit = Audit(folder / "cell-audit.log")
        self.audit_path = folder / "cell-audit.log"
        self.tokens: dict[str, str] = {}
        self.tunnel: asyncio.Task[None] | None = None
        self.asked: list[tuple[Request, User]] = []
        self.answered_by = 0
        self.trouble: Callable[[], str] = str
        self.serve: Serve = lambda request, user: Response(200, b"{}")
        self._backends: list[HttpBackend] = []

    # What there is.

    async def fill(self) -> None:
        for name in (CELL, "ber-2"):
            await self.hub.create(object_of(Cell, name, {"cityCode": "ber"}))
            await self.know(name)
            self.tokens[name] = await self.token(name, "cell", f"rota-cell-{name}")
        await self.cell.create(object_of(Cell, CELL, {"cityCode": "ber"}))
        system = await self.hub.get(Namespace, "rota-system")
        await self.belong(system.metadata.uid)
        await self.instance(NAME)

    async def know(self, cell: str, identity: str = IDENTITY, **more: Any) -> None:
        """Have the hub know a cell as one that has reported."""
        heard = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        status = {"identity": shown_identity(identity), "version": "0.1.0", "lastHeartbeatTime": heard, **more}
        await self.hub.patch(Cell, cell, {"status": status}, subresource="status")

    async def belong(self, hub: str) -> None:
        await self.cell.patch(Cell, CELL, {"status": {"hubID": hub}}, subresource="status")

    async def instance(
        self,
        name: str,
        *,
        uid: str = "",
        source: str = "",
        mirrored: bool = True,
        isolated: bool = True,
        cell: str = CELL,
    ) -> None:
        """Make an instance in the cell, and the hub's copy of it. `uid`, `source`: what one side is wrong about."""
        bound = await self.hub.create(object_of(WorkloadDeployment, f"{name}-d", DEPLOYMENT))
        copied = Source("default", f"{name}-d", source or bound["metadata"]["uid"], 1).annotations() if mirrored else {}
        there = await self.cell.create(object_of(WorkloadDeployment, f"{name}-d", DEPLOYMENT, annotations=copied))
        own = await self.cell.create(
            object_of(Instance, name, {**SPEC, "cellName": CELL}, ownerReferences=owned_by(there))
        )
        annotations = {CELL_UID: uid or own["metadata"]["uid"]}
        about = {"annotations": annotations, "ownerReferences": owned_by(bound), "labels": {WORKLOAD_LABEL: "web"}}
        await self.hub.create(object_of(Instance, name, {**SPEC, "cellName": cell}, **about))
        for client in (self.hub, self.cell) if isolated else ():
            status = {"status": {"conditions": [ISOLATED, READY]}}
            await client.patch(Instance, name, status, subresource="status")

    # Who asks.

    async def token(self, name: str, scope: str, namespace: str = "") -> str:
        reply = await self.server.ask("POST", "/v1/tokens", {"name": name, "scope": scope, "namespace": namespace})
        assert reply.status == 201, reply.body
        return str(reply.json["token"])

    async def revoke(self, token: str) -> None:
        listed = (await self.server.ask("GET", "/v1/tokens")).json["tokens"]
        name = next(name for name, one in self.tokens.items() if one == token)
        found = next(one["id"] for one in listed if one["name"] == name)
        assert (await self.server.ask("DELETE", f"/v1/tokens/{found}")).status == 200

    def target(self, token: str) -> Target:
        tls = Tls((self.server.home / "ca.crt").read_text())
        return at_url(self.server.url, tls=tls, credentials=Fixed(Credential(token)))

    def as_(self, token: str = "") -> HttpBackend:
        made = HttpBackend(self.target(token or self.server.token))
        self._backends.append(made)
        return made

    async def code(self, path: str, token: str = "", method: str = "GET") -> tuple[int, str]:
        """Return the status of an answer, and what is said if it is a refusal."""
        reply = await self.server.ask(method, path, token=token)
        return reply.status, reply.json["message"] if reply.status >= 400 else ""

    # The cell.

    def connect(self, *, boot: int = 1) -> asyncio.Task[None]:
        made = self.made(boot)
        self.trouble = lambda: made.trouble
        self.tunnel = asyncio.create_task(made.run())
        return self.tunnel

    def made(self, boot: int = 1) -> Tunnel:
        about = About(CELL, IDENTITY, boot, "0.1.0")

        def serve(request: Request, user: User) -> Answer | Awaitable[Answer]:
            self.asked.append((request, user))
            self.answered_by = boot
            return self.serve(request, user)

        return Tunnel(about, self.target(self.tokens[CELL]), self.objects, serve, self.audit)

    async def troubled(self, what: str) -> None:
        """Wait until the cell says that it is not connected, and why."""

        async def says() -> bool:
            return what in self.trouble()

        await until_async(says)

    async def connected(self) -> None:
        """Wait until the hub reaches the cell."""
        await until_async(self._is_reached)
        self.asked.clear()

    async def _is_reached(self) -> bool:
        return (await self.code(f"/v1/instances/default/{NAME}/files?path=/"))[0] != 503

    async def cut(self) -> None:
        assert self.tunnel is not None
        self.tunnel.cancel()
        await asyncio.gather(self.tunnel, return_exceptions=True)

    async def sessions(self) -> int:
        """Count the requests to cells that the hub keeps."""
        text = (await self.server.ask("GET", "/v1/metrics")).body.decode()
        found = [line for line in text.splitlines() if "Tunnels.sessions" in line]
        return int(float(found[0].rpartition(" ")[2])) if found else 0

    def audited(self, *, at_hub: bool = False) -> list[dict[str, Any]]:
        path = self.server.home / "audit.log" if at_hub else self.audit_path
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [one for one in lines if one["resource"] == Instance.api.bucket and one.get("subresource")]

    async def close(self) -> None:
        if self.tunnel is not None:
            await self.cut()
        for one in self._backends:
            await one.close()
        await self.hub.close()
        self.audit.close()


@asynccontextmanager
async def both_sides(folder: Path) -> AsyncIterator[Both]:
    store = MemoryStore()
    registry = Registry(store)
    await registry.start()
    async with served(folder / "hub", with_controllers=False) as server:
        made = Both(server, registry, folder)
        try:
            await made.fill()
            yield made
        finally:
            await made.close()
            await registry.stop()


async def refused(doing: Awaitable[Any]) -> ApiError:
    try:
        await doing
    except ApiError as error:
        return error
    raise AssertionError("it was not refused")


def exit_status(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    told = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return b"\x03" + msgspec.json.encode(told)
