"""Stores for the code of functions: the blob store of a Rota server, or ConfigMaps on a Kubernetes cluster.

ConfigMaps are immutable, so the code under a digest never changes. A namespace keeps the same code once, whichever
projects use it. The next deploy completes an interrupted upload.

A pack is cut into pieces, each a ConfigMap named after the digest and its number. The `data` of a piece holds the
digest and the number of pieces, so that a reader of one piece knows which others to request.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from rota.api import ConfigMap
from rota.client import Client
from rota.client.http import HttpBackend
from rota.manifest.deploy_lookup import find, list_all
from rota.manifest.packing import Packed
from rota.manifest.packing_excludes import IGNORE_FILE
from rota.manifest.project_format import PROJECT_LABEL
from rota.registry import ApiError

PUT_SECONDS_MAX = 600.0
"""Time for a server to write a blob to its disk."""


class BlobStore(Protocol):
    """Stores bytes under their digest."""

    async def has(self, digest: str) -> bool:
        """Report whether a blob exists. An existing blob is kept for a while even if no object refers to it yet."""
        ...

    async def put(self, digest: str, content: bytes) -> None: ...


class CodeRefused(ValueError):  # noqa: N818 - says what became of it
    """Code that cannot be stored. The message says what to do."""


class CodeStore(Protocol):
    """Stores the code of functions."""

    async def has(self, packed: Packed, project: str) -> bool:
        """Report whether a pack is stored. Raises `CodeRefused` if it is not and `put` would fail."""
        ...

    async def put(self, packed: Packed, project: str) -> None:
        """Store a pack for a project. Raises `CodeRefused`."""
        ...

    async def objects(self, project: str) -> list[dict[str, Any]]:
        """Return the objects that hold a project's code and that its deploys must remove; none if the store does."""
        ...


class BlobCodeStore:
    """Code in a blob store, which collects unused blobs itself."""

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
        await self._backend.once("PUT", f"/v1/blobs/{digest}", content, headers, patience_seconds=PUT_SECONDS_MAX)


async def blobs_of(backend: object) -> BlobStore | None:
    """Return the blob store of a server; None for a Kubernetes API server, which has none."""
    if not isinstance(backend, HttpBackend):
        return None
    version = await backend.version()
    return GatewayBlobs(backend) if "rotaVersion" in version else None


Json = dict[str, Any]

CODE_LABEL = "rota.dev/code"
"""Label with the short digest of the code."""
PIECE_BYTES = 512 * 1024
"""Half of a ConfigMap's limit: a server may have a lower limit for requests."""
PIECES_MAX = 32
"""ConfigMaps of one pack. They are stored in the cluster's etcd, which is small."""
CODE_BYTES_MAX = PIECE_BYTES * PIECES_MAX
DIGEST_DIGITS = 40
"""Digits of a digest in names and labels, whose length is limited."""
PIECES_PER_PAGE = 8
"""Pieces per page of a list: each comes with its content."""
PIECE_TRIES_MAX = 3
"""Attempts to store a piece while another client creates or deletes it."""


class ConfigMapCodeStore:
    """Code in ConfigMaps of the client's namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def has(self, packed: Packed, project: str) -> bool:
        if len(packed.content) > CODE_BYTES_MAX:
            raise CodeRefused(
                f"packed, it has {len(packed.content)} bytes, and a cluster keeps at most {CODE_BYTES_MAX} of a "
                f"function, in {PIECES_MAX} ConfigMaps; leave files out in {IGNORE_FILE}, list what is installed under "
                "requirements, or name a repository that holds it under source.workspaceRef instead of a path"
            )
        absent = [piece for piece in config_maps_of(packed, project) if not await self._is_there(piece)]
        if absent:
            # A dry run of one piece shows whether creating them is allowed.
            await self._create(absent[0], dry_run=True)
        return not absent

    async def put(self, packed: Packed, project: str) -> None:
        for piece in config_maps_of(packed, project):
            await self._put(piece)

    async def objects(self, project: str) -> list[Json]:
        found = await list_all(self._client, ConfigMap.api, f"{PROJECT_LABEL}={project},{CODE_LABEL}", PIECES_PER_PAGE)
        # An object with the label and another name is not ours.
        return [obj for obj in found if obj["metadata"]["name"].startswith(_name_prefix(code_of(obj)))]

    async def _put(self, piece: Json) -> None:
        for _ in range(PIECE_TRIES_MAX):
            if await self._is_there(piece) or await self._create(piece, dry_run=False):
                return
        raise CodeRefused(f"{_named(piece)} comes and goes: somebody else changes it; deploy again")

    async def _create(self, piece: Json, *, dry_run: bool) -> bool:
        try:
            await self._client.create(piece, dry_run=dry_run)
        except ApiError as error:
            if error.code == 409:
                return False
            raise CodeRefused(f"its code cannot be kept there: {error.message}") from None
        return True

    async def _is_there(self, piece: Json) -> bool:
        live = await find(self._client, ConfigMap.api, piece["metadata"]["name"])
        if live is None:
            return False
        if live["metadata"].get("deletionTimestamp"):
            raise CodeRefused(f"{_named(piece)} is being deleted; deploy again when it is gone")
        if code_of(live) != code_of(piece):
            why = f"has not the label {CODE_LABEL}={code_of(piece)}"
        elif any(live.get(part) != piece[part] for part in ("data", "binaryData", "immutable")):
            why = "holds something else"
        else:
            return True
        raise CodeRefused(
            f"{_named(piece)} is where the code is to be kept, and {why}: delete it with "
            f"`rota delete configmap/{live['metadata']['name']} -n {self._client.namespace}`, and deploy again"
        )


def config_maps_of(packed: Packed, project: str) -> Iterator[Json]:
    """Yield the ConfigMaps that hold a pack."""
    code, content = short_digest(packed.digest), packed.content
    count = -(-len(content) // PIECE_BYTES)
    for number in range(count):
        part = content[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"{_name_prefix(code)}{number}",
                "labels": {PROJECT_LABEL: project, CODE_LABEL: code},
            },
            "immutable": True,
            "data": {"digest": packed.digest, "pieces": str(count)},
            "binaryData": {"piece": base64.b64encode(part).decode("ascii")},
        }


def _name_prefix(code: str) -> str:
    return f"rota-code-{code}-"


def short_digest(digest: str) -> str:
    """Return the part of a digest that is used in names and labels."""
    return digest.removeprefix("sha256:")[:DIGEST_DIGITS]


def code_of(obj: Json) -> str:
    """Return the short digest of the code that a ConfigMap holds a piece of; empty if it holds none."""
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    return labels.get(CODE_LABEL, "")


def codes_in_use(functions: Iterable[Json]) -> set[str]:
    """Return the short digests that functions refer to, except functions being deleted."""
    digests = [
        ((obj.get("spec") or {}).get("source") or {}).get("digest", "")
        for obj in functions
        if not obj["metadata"].get("deletionTimestamp")
    ]
    return {short_digest(digest) for digest in digests if digest}


def _named(piece: Json) -> str:
    return f'ConfigMap "{piece["metadata"]["name"]}"'
