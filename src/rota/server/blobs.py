"""`/v1/blobs/DIGEST`: the code of functions, by its digest.

    PUT   blobs/DIGEST             store the body, which must have this digest; 201, or 200 if it exists
    HEAD  blobs/DIGEST             200 if it exists, and then it stays for a while
    GET   blobs/DIGEST?stat=true   the same, with its size as JSON
    GET   blobs/DIGEST             the bytes

Deployers put and get blobs. A worker gets those that a Function of its namespace refers to. A blob that no Function
refers to is removed some time after it was last put or requested (`BlobCollector`).

Blobs have no namespace: a deployer who knows a digest may use it in a Function anywhere, or get the blob. Only those
who have the content, or may read a Function with it, know its digest of 256 bits: digests cannot be guessed or listed.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator

import msgspec

from rota.api import Instance
from rota.engine.objects import Objects, get
from rota.registry.errors import ApiError, bad_request, too_busy
from rota.runtime.archive import BlobArchive
from rota.runtime.blobs import BlobRefused, is_digest
from rota.server.audit import Audit
from rota.server.auth import User, moves_blobs
from rota.server.collectors import blobs_of_functions
from rota.server.http import Answer, Request, Response, Stream
from rota.server.shares import Shares
from rota.server.unread_answers import payer_of

PUTS_AT_ONCE_MAX = 16
PUTS_LEAST = 2
"""Puts that each credential may have under way, if there are any left."""
PUT_SECONDS_MAX = 600.0
BYTES = "application/octet-stream"
CODES = {
    "WrongDigest": (400, "BadRequest"),
    "TooLarge": (413, "RequestEntityTooLarge"),
    "NoSpace": (507, "NoSpace"),
}
_TARGET = re.compile(rb"/v1/blobs/[^/?]+(\?|$)")
_encode = msgspec.json.Encoder().encode


def streams_body(target: bytes) -> bool:
    """Report whether the body of a request to this target is handed over in pieces."""
    return target.startswith(b"/v1/blobs/") and _TARGET.match(target) is not None


class BlobRequests:
    """Answers requests for blobs."""

    def __init__(self, blobs: BlobArchive, audit: Audit) -> None:
        self.blobs = blobs
        self._audit = audit
        self._puts = Shares(PUTS_AT_ONCE_MAX, 1, least=PUTS_LEAST)
        self._put_by: dict[str, set[str]] = {}
        """The digests that each tenant has put, and that still exist."""
        self._coming: Counter[str] = Counter()
        """The bytes of uploads under way, by tenant."""

    async def __call__(self, objects: Objects, request: Request, user: User, digest: str) -> Answer:
        if not is_digest(digest):
            raise bad_request(f"{digest!r} is no digest: write sha256: and 64 hexadecimal digits")
        if request.method == "PUT":
            return await self._put(objects, request, user, digest)
        if not moves_blobs(user, "get") and not _may_get(objects, user, digest):
            raise ApiError(403, "Forbidden", f'User "{user.name}" may not read {digest}')
        known = moves_blobs(user, "get") and self.blobs.keep(digest)
        size = self.blobs.size(digest) if known or not moves_blobs(user, "get") else None
        if size is None:
            raise ApiError(404, "NotFound", f"the blob {digest} is not here", details={"kind": "blobs", "name": digest})
        if request.method == "HEAD":
            return Response(200, b"", BYTES, (("Rota-Length", str(size)),))
        if request.query.get("stat") in ("true", "1"):
            return Response(200, _encode({"digest": digest, "bytes": size}))
        return Stream(self.blobs.read(digest), BYTES, headers=(("Rota-Length", str(size)),))

    async def _put(self, objects: Objects, request: Request, user: User, digest: str) -> Response:
        code = 500
        try:
            response = await self._kept(objects, request, user, digest)
            code = response.status
            return response
        except ApiError as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = 499  # The client is gone, in the convention of web servers.
            raise
        finally:
            self._audit.record(user, "update", "blobs", "", digest, "", code)

    async def _kept(self, objects: Objects, request: Request, user: User, digest: str) -> Response:
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > self.blobs.blob_bytes_max:
            raise ApiError(413, "RequestEntityTooLarge", f"a blob has at most {self.blobs.blob_bytes_max} bytes")
        key, may_use_reserve = payer_of(user)
        if not self._puts.has_room(key, may_use_reserve=may_use_reserve):
            own = self._puts.of(key)
            raise too_busy(f"{self._puts.used} blobs are on their way already, {own} of them yours")
        assert request.pieces is not None
        self._puts.take(key)
        try:
            async with asyncio.timeout(min(PUT_SECONDS_MAX, user.seconds_left or PUT_SECONDS_MAX)):
                new = await self._stored(
                    objects, user, digest, request.pieces, int(length or self.blobs.blob_bytes_max)
                )
        except BlobRefused as refused:
            raise ApiError(*CODES[refused.reason], str(refused)) from None
        except ConnectionResetError:
            raise ApiError(400, "BadRequest", "the body ended too early") from None
        except TimeoutError:
            raise ApiError(408, "Timeout", f"a blob must have come within {PUT_SECONDS_MAX:.0f} seconds") from None
        finally:
            self._puts.give_back(key)
        return Response(201 if new else 200, _encode({"digest": digest, "bytes": self.blobs.size(digest)}))

    async def _stored(self, objects: Objects, user: User, digest: str, pieces: AsyncIterator[bytes], size: int) -> bool:
        """Store a blob within the share of a tenant: at most as much as is left for all others, and at least one
        blob."""
        tenant = user.namespace or payer_of(user).key
        # Blobs that the tenant refers to count as its own, whoever has put them.
        digests = self._put_by.get(tenant, set()) | (blobs_of_functions(objects, tenant) if user.namespace else set())
        sizes = await asyncio.to_thread(lambda: {one: self.blobs.counted(one) for one in digests})
        left = await asyncio.to_thread(self.blobs.left) - self._coming.total()
        self._forget(tenant, {one for one, counted in sizes.items() if not counted})
        own = sum(sizes.values()) + self._coming[tenant]
        share = max(0, min(left, max(self.blobs.blob_bytes_max - own, (left + 1 - own) // 2)))
        if user.scope == "admin":
            share = max(0, left)
        size = min(size, share)
        self._coming[tenant] += size
        try:
            new = await self.blobs.put(digest, pieces, share)
        finally:
            self._coming[tenant] -= size
            if not self._coming[tenant]:
                del self._coming[tenant]
        if new:
            self._put_by.setdefault(tenant, set()).add(digest)
        return new

    def _forget(self, tenant: str, gone: set[str]) -> None:
        left = self._put_by.pop(tenant, set()) - gone
        if left:
            self._put_by[tenant] = left


def _may_get(objects: Objects, user: User, digest: str) -> bool:
    """Report whether a worker may read a blob: code of its own namespace, while its instance exists."""
    if user.scope != "worker":
        return False
    instance = get(objects, Instance, user.name, user.namespace)
    if instance is None or instance.metadata.uid != user.token_id:
        return False
    return digest in blobs_of_functions(objects, user.namespace)
