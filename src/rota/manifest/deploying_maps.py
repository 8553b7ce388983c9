"""The code of functions where there is no blob store: in ConfigMaps of the namespace, as a Kubernetes cluster has them.

Promises: what is kept under a digest never changes, because the ConfigMaps are immutable; the same code is kept once in
a namespace, whichever projects have it; what was sent in part is completed by the next deploy.

A pack is cut into pieces, each a ConfigMap named after the digest and its number. A piece says under `data` of which
digest it is and how many pieces there are, so whoever has one knows what to ask for.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

from rota.api import ConfigMap
from rota.client import Client
from rota.manifest.deploying_blobs import CodeRefused
from rota.manifest.deploying_reading import all_of, find
from rota.manifest.packing import Packed
from rota.manifest.packing_excludes import IGNORE_FILE
from rota.manifest.project_form import PROJECT_LABEL
from rota.registry import ApiError

Json = dict[str, Any]

CODE_LABEL = "rota.dev/code"
"""The part of the digest that is in the names."""
PIECE_BYTES = 512 * 1024
"""Half of what a ConfigMap may have: a server may allow less in a request."""
PIECES_MAX = 32
"""ConfigMaps of one pack. They are in the cluster's etcd, which is no place for much."""
CODE_BYTES_MAX = PIECE_BYTES * PIECES_MAX
DIGITS = 40
"""Digits of a digest in names and labels, which have no room for all."""
PAGE_ITEMS = 8
"""Pieces that are listed at once: they come with what they hold."""
TRIES_MAX = 3
"""Times that a piece is looked for again because somebody else puts it there, or takes it away."""


class CodeInMaps:
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
        absent = [piece for piece in pieces(packed, project) if not await self._is_there(piece)]
        if absent:
            # One stands for all: whether they may be made at all.
            await self._create(absent[0], dry_run=True)
        return not absent

    async def put(self, packed: Packed, project: str) -> None:
        for piece in pieces(packed, project):
            await self._put(piece)

    async def objects(self, project: str) -> list[Json]:
        found = await all_of(self._client, ConfigMap.api, f"{PROJECT_LABEL}={project},{CODE_LABEL}", PAGE_ITEMS)
        # What has the label and another name was made by somebody else.
        return [obj for obj in found if obj["metadata"]["name"].startswith(_name(code_of(obj)))]

    async def _put(self, piece: Json) -> None:
        for _ in range(TRIES_MAX):
            if await self._is_there(piece) or await self._create(piece, dry_run=False):
                return
        raise CodeRefused(f"{_what(piece)} comes and goes: somebody else changes it; deploy again")

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
            raise CodeRefused(f"{_what(piece)} is being deleted; deploy again when it is gone")
        if code_of(live) != code_of(piece):
            why = f"has not the label {CODE_LABEL}={code_of(piece)}"
        elif any(live.get(part) != piece[part] for part in ("data", "binaryData", "immutable")):
            why = "holds something else"
        else:
            return True
        raise CodeRefused(
            f"{_what(piece)} is where the code is to be kept, and {why}: delete it with "
            f"`rota delete configmap/{live['metadata']['name']} -n {self._client.namespace}`, and deploy again"
        )


def pieces(packed: Packed, project: str) -> Iterator[Json]:
    """The ConfigMaps that hold a pack."""
    code, content = code_part(packed.digest), packed.content
    count = -(-len(content) // PIECE_BYTES)
    for number in range(count):
        part = content[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"{_name(code)}{number}",
                "labels": {PROJECT_LABEL: project, CODE_LABEL: code},
            },
            "immutable": True,
            "data": {"digest": packed.digest, "pieces": str(count)},
            "binaryData": {"piece": base64.b64encode(part).decode("ascii")},
        }


def _name(code: str) -> str:
    return f"rota-code-{code}-"


def code_part(digest: str) -> str:
    """What of a digest is in names and labels."""
    return digest.removeprefix("sha256:")[:DIGITS]


def code_of(obj: Json) -> str:
    """Of which code a ConfigMap is a piece; nothing if of none."""
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    return labels.get(CODE_LABEL, "")


def codes_named(functions: Iterable[Json]) -> set[str]:
    """The code that functions name, but for those that are being deleted."""
    digests = [
        ((obj.get("spec") or {}).get("source") or {}).get("digest", "")
        for obj in functions
        if not obj["metadata"].get("deletionTimestamp")
    ]
    return {code_part(digest) for digest in digests if digest}


def _what(piece: Json) -> str:
    return f'ConfigMap "{piece["metadata"]["name"]}"'
