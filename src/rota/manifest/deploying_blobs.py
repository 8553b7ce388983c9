"""Where the code of functions goes."""

from __future__ import annotations

from typing import Any, Protocol

from rota.client.http import HttpBackend
from rota.manifest.packing import Packed
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


class CodeRefused(ValueError):  # noqa: N818 - says what became of it
    """Code that cannot be kept, and what to do about it."""


class CodeStore(Protocol):
    """Keeps the code of a server's functions."""

    async def has(self, packed: Packed, project: str) -> bool:
        """Whether it is there. Raises `CodeRefused` when it could not be put there either."""
        ...

    async def put(self, packed: Packed, project: str) -> None:
        """Keep it, for a project. Raises `CodeRefused`."""
        ...

    async def objects(self, project: str) -> list[dict[str, Any]]:
        """Objects that hold what was put for a project, if it is for the project to remove them."""
        ...


class CodeInBlobs:
    """Code in a blob store, which removes itself what nothing refers to."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    async def has(self, packed: Packed, project: str) -> bool:
        return await self._blobs.has(packed.digest)

    async def put(self, packed: Packed, project: str) -> None:
        await self._blobs.put(packed.digest, packed.content)

    async def objects(self, project: str) -> list[dict[str, Any]]:
        return []


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
