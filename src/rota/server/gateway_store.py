"""`/v1/status`, `/v1/backup` and `/v1/batch`: endpoints of a server with a store of its own."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from rota import __version__
from rota.api import KINDS
from rota.registry import Registry
from rota.registry.errors import bad_request
from rota.server import media
from rota.server.access import ADMIN, EACH, Endpoint
from rota.server.audit import Audit
from rota.server.auth import User
from rota.server.batches import Batch, Batches
from rota.server.http import Answer, Request, Response, Stream
from rota.server.shedding import Shedding
from rota.store import SqliteStore

BACKUP_CHUNK_BYTES = 256 * 1024
_encode = msgspec.json.Encoder().encode


class StorePart:
    """Answers requests about the store and the state of a server."""

    def __init__(
        self,
        registry: Registry,
        audit: Audit,
        home: Path,
        shedding: Shedding,
        *,
        edge: str = "",
        connections: Callable[[], int] = lambda: 0,
    ) -> None:
        """`edge` is the URL of webhooks. `connections` returns the number of open ones."""
        self._registry = registry
        self._audit = audit
        self._home = home
        self._shedding = shedding
        self._batches = Batches(registry, audit, shedding)
        self._edge = edge
        self._connections = connections
        self._started = time.monotonic()

    def status(self, request: Request, user: User) -> Response:
        store = self._registry.store
        status: dict[str, Any] = {
            "version": __version__,
            "pid": os.getpid(),
            "uptimeSeconds": int(time.monotonic() - self._started),
            "revision": store.revision,
            "objects": sum(store.count(f"{kind.bucket}/") for kind in KINDS.values()),
            "connections": self._connections(),
            "home": str(self._home),
            "edge": self._edge,
            "disk": self._shedding.status(),
        }
        return Response(200, _encode(status))

    def backup(self, request: Request, user: User) -> Stream:
        # Recorded before anything is sent, because the backup includes all Secrets.
        self._audit.record(user, "get", "backup", code=200)
        return Stream(self._backup(), "application/vnd.sqlite3")

    async def _backup(self) -> AsyncIterator[bytes]:
        store = self._registry.store
        if not isinstance(store, SqliteStore):
            raise bad_request("this server has its objects in memory only: there is nothing to back up")
        with tempfile.TemporaryDirectory(dir=self._home) as folder:
            path = Path(folder) / "backup.db"
            await store.backup(path)
            with path.open("rb") as file:
                while chunk := file.read(BACKUP_CHUNK_BYTES):
                    yield chunk

    def batch(self, request: Request, user: User) -> Awaitable[Answer]:
        return self._batches.write(media.typed(request.body, request.headers.get("content-type", ""), Batch), user)

    endpoints = (
        Endpoint("GET", "/v1/status", ADMIN, "get status", status),
        Endpoint("GET", "/v1/backup", ADMIN, "get backup", backup),
        Endpoint("POST", "/v1/batch", EACH, "create batch", batch, takes_space=False),
    )
