"""The OpenAPI documents over HTTP: compressed, and sent once to clients that cache them."""

from __future__ import annotations

import hashlib
import time
from email.utils import formatdate
from functools import cache
from typing import NamedTuple

import msgspec

from rota.api.openapi import base_path, document
from rota.api.served import group_versions
from rota.server import compression
from rota.server.http import Request, Response
from rota.server.negotiation import JSON, negotiated

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_PROTOBUF_OLD = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
V2_EMPTY = b"\x0a\x032.0\x12\x0c\x0a\x04Rota\x12\x04v1.0B\x00"
"""An OpenAPI v2 document without paths, in protobuf: fields swagger, info (title, version) and paths."""
KEPT_SECONDS = 365 * 86400
"""Caching time of a document whose hash is in its address: a changed document has another address."""

_encode = msgspec.json.Encoder().encode


class Document(NamedTuple):
    """A document in the forms in which it is sent."""

    body: bytes
    packed: bytes
    """The compressed body."""
    hash: str
    content_type: str = JSON


def answer(request: Request, path: str) -> Response | None:
    """Return the answer to `/openapi/` and a path: `v2`, `v3`, or `v3/` and a group and version; None if there is
    none."""
    if path == "v2":
        return _sent(request, _v2(_wants_protobuf(request)))
    if path == "v3":
        return _sent(request, _index())
    found = _of(path.removeprefix("v3/")) if path.startswith("v3/") else None
    if found is None:
        return None
    wanted = request.query.get("hash")
    if wanted and wanted != found.hash:
        return Response(301, b"", headers=(("Location", f"/openapi/{path}?hash={found.hash}"),))
    return _sent(request, found, for_ever=bool(wanted))


def _sent(request: Request, found: Document, *, for_ever: bool = False) -> Response:
    packs = compression.takes_gzip(request)
    headers = [("ETag", f'"{found.hash}"'), ("Vary", "Accept, Accept-Encoding")]
    if for_ever:
        expires = formatdate(time.time() + KEPT_SECONDS, usegmt=True)
        headers += [("Cache-Control", "public, immutable"), ("Expires", expires)]
    if _has(request, found.hash):
        return Response(304, b"", found.content_type, tuple(headers))
    if packs:
        headers.append(("Content-Encoding", "gzip"))
    return Response(200, found.packed if packs else found.body, found.content_type, tuple(headers))


def _has(request: Request, hash_: str) -> bool:
    """Report whether the client has this version already."""
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    return "*" in known or f'"{hash_}"' in known


def _wants_protobuf(request: Request) -> bool:
    types = (JSON, V2_PROTOBUF, V2_PROTOBUF_OLD)
    found = negotiated(request.headers.get("accept", ""), types, lambda _, into: into is None)
    return found is not None and found.media_type != JSON


def _made(body: bytes, content_type: str = JSON) -> Document:
    packed = compression.packed(body, compression.SMALLEST)
    return Document(body, packed, hashlib.sha512(body).hexdigest().upper(), content_type)


@cache
def _v2(protobuf: bool) -> Document:
    """Return an empty document. kubectl requests it before it reports an unknown kind."""
    if protobuf:
        return _made(V2_EMPTY, V2_PROTOBUF)
    return _made(_encode({"swagger": "2.0", "info": {"title": "Rota", "version": "v1.0"}, "paths": {}}))


@cache
def _index() -> Document:
    """Return the addresses of the documents, with their hashes for caching."""
    paths = {}
    for gv in group_versions():
        path = base_path(*gv)
        found = _of(path)
        assert found is not None
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={found.hash}"}
    return _made(_encode({"paths": paths}))


@cache
def _of_known(path: str) -> Document:
    gv = next(gv for gv in group_versions() if base_path(*gv) == path)
    return _made(_encode(document(*gv)))


def _of(path: str) -> Document | None:
    """Return the document of a path like `apis/rota.dev/v1alpha1`."""
    return _of_known(path) if any(base_path(*gv) == path for gv in group_versions()) else None
