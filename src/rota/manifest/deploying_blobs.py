"""Where the code of functions goes."""

from __future__ import annotations

from typing import Protocol

from rota.client.http import HttpBackend
from rota.registry import ApiError

PATIENCE_SECONDS = 600.0
"""How long a server may take to have a blob on its disk."""


class BlobStore(Protocol):
    """Keeps bytes by their digest."""

    async def has(self, digest: str) -> bool:
        """Whether it is there. If so it stays there for a while, though nothing may refer to it yet."""
        ...

    async def put(self, digest: str, content: bytes) -> None:
        """Keep it."""
        ...


class GatewayBlobs:
    """The blob store of a Rota server."""

    def __init__(self, backend: HttpBackend) -> None:
        self._backend = backend

    async def has(self, digest: str) -> bool:
        try:
            await self._backend.raw("GET", f"/v1/blobs/{digest}?stat=true")
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    async def put(self, digest: str, content: bytes) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        await self._backend.once("PUT", f"/v1/blobs/{digest}", content, headers, patience_seconds=PATIENCE_SECONDS)


async def blobs_of(backend: object) -> BlobStore | None:
    """The blob store of a server, if it has one: a Kubernetes API server has none."""
    if not isinstance(backend, HttpBackend):
        return None
    version = await backend.version()
    return GatewayBlobs(backend) if "rotaVersion" in version else None
