"""The object API: HTTP in, registry verbs, HTTP out. It translates, and decides nothing."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from rota.api import Kind
from rota.api.openapi import goes_as_collection
from rota.api.table import rows
from rota.registry import (
    Answer,
    ApiError,
    Listing,
    Registry,
    WatchEvent,
)
from rota.registry.errors import bad_request, method_not_supported, unprocessable
from rota.registry.reading import revision_of
from rota.registry.selectors import Selection
from rota.server import media, parameters
from rota.server.http import Request, Response, Stream
from rota.server.media import PLAIN, Wanted
from rota.server.routing import Route

GZIP_BYTES_MIN = 128 * 1024
"""Answers smaller than this are sent as they are: over loopback compressing costs more than it saves."""
WARNINGS_MAX = 20
WARNING_LENGTH_MAX = 256

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

COLLECTION_VERBS = {"GET": "list", "HEAD": "list", "POST": "create", "DELETE": "deletecollection"}
ALL_NAMESPACES_VERBS = {"GET": "list", "HEAD": "list"}
OBJECT_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
SUBRESOURCE_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch"}


def verb_of(request: Request, where: Route) -> str:
    """What is asked for, in the words of access rules."""
    if where.subresource:
        has = {"status": where.kind.has_status, "scale": where.kind.scale is not None}
        if not has.get(where.subresource, False):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        table = SUBRESOURCE_VERBS
    elif where.name:
        table = OBJECT_VERBS
    else:
        table = ALL_NAMESPACES_VERBS if where.kind.namespaced and not where.namespace else COLLECTION_VERBS
    verb = table.get(request.method)
    if verb is None:
        raise method_not_supported(where.kind, request.method)
    if verb == "list" and request.method == "GET" and parameters.flag(request.query, "watch"):
        return "watch"
    return verb


class Written(NamedTuple):
    """What a write came to: the answer, and what the audit trail says of it."""

    response: Response
    revision: int
    names: list[str]
    dry_run: bool


class Objects:
    """The handlers, by verb."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def is_there(self, where: Route) -> bool:
        return self._registry.store.head(where.kind.key(where.namespace, where.name)) is not None

    # Reading.

    def get(self, request: Request, where: Route) -> Response:
        if where.subresource == "scale" and where.kind.scale:
            answer = self._registry.get_scale(where.kind, where.namespace, where.name)
        else:
            answer = self._registry.get(where.kind, where.namespace, where.name)
        return Response(200, _formed(where, [answer.value], _accepted(request)))

    async def list(self, request: Request, where: Route) -> Response:
        options = parameters.of_list(request.query)
        wanted = _accepted(request)
        listing = await self._registry.list(where.kind, where.namespace, options)
        body = _list_body(where, listing, wanted)
        if len(body) >= GZIP_BYTES_MIN and "gzip" in request.headers.get("accept-encoding", ""):
            packed = await asyncio.get_running_loop().run_in_executor(None, _gzip, body)
            return Response(200, packed, headers=(("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")))
        return Response(200, body)

    def watch(self, request: Request, where: Route) -> Stream:
        options = parameters.of_watch(request.query)
        # Asked for what cannot be, it is refused before the stream begins, where clients see a status.
        Selection(where.kind, options.label_selector, options.field_selector)
        revision_of(options.resource_version)
        batches = self._registry.watch(where.kind, where.namespace, options)
        lines = self._lines(where, batches, _accepted(request))
        return Stream(lines, seconds_max=parameters.watch_seconds(request.query), endless=True)

    @staticmethod
    async def _lines(where: Route, batches: AsyncIterator[Any], wanted: Wanted) -> AsyncIterator[bytes]:
        """The events as lines of JSON."""
        first = True
        try:
            async for batch in batches:
                lines = _event_lines(where, batch, wanted, first)
                if lines:
                    yield lines
                    first = False
        except ApiError as error:
            yield b'{"type":"ERROR","object":%b}\n' % _encode(error.status())
        finally:
            await batches.aclose()  # type: ignore[attr-defined]

    # Writing.

    async def create(self, request: Request, where: Route) -> Written:
        body = media.decoded(request.body, request.headers.get("content-type", ""))
        options = parameters.of_write(request)
        answer = await self._registry.create(where.kind, where.namespace, body, options)
        name = _decode(answer.value)["metadata"]["name"]
        return Written(_answered(where, answer, request, 201), answer.revision, [name], options.dry_run)

    async def update(self, request: Request, where: Route) -> Written:
        body = media.decoded(request.body, request.headers.get("content-type", ""))
        options = parameters.of_write(request)
        answer = await self._registry.update(
            where.kind, where.namespace, where.name, body, options, subresource=where.subresource
        )
        response = self._subresource(where, answer, request, 200)
        return Written(response, answer.revision, [where.name], options.dry_run)

    async def patch(self, request: Request, where: Route) -> Written:
        type_ = media.PATCH_TYPES.get(media.media_type(request.headers.get("content-type", "")))
        if type_ is None or (type_ == "strategic" and where.kind.custom):
            accepted = [t for t, p in media.PATCH_TYPES.items() if not (p == "strategic" and where.kind.custom)]
            raise media.unsupported(", ".join(accepted))
        options = parameters.of_write(request)
        place = (where.kind, where.namespace, where.name)
        if type_ == "apply":
            if not request.query.get("fieldManager"):
                raise bad_request(
                    'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
                )
            config = media.yaml_value(request.body)
            answer = await self._registry.apply(*place, config, options, subresource=where.subresource)
        else:
            if options.force:
                raise unprocessable(
                    'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch'
                )
            patch = media.json_value(request.body)
            answer = await self._registry.patch(*place, patch, options, type_=type_, subresource=where.subresource)
        response = self._subresource(where, answer, request, 201 if answer.created else 200)
        return Written(response, answer.revision, [where.name], options.dry_run)

    def _subresource(self, where: Route, answer: Answer, request: Request, code: int) -> Response:
        if where.subresource == "scale":
            from rota.registry import scaling

            return Response(code, _encode(scaling.of(where.kind, _decode(answer.value))), headers=_warned(answer))
        return _answered(where, answer, request, code)

    async def delete(self, request: Request, where: Route) -> Written:
        options = parameters.of_delete(request)
        answer = await self._registry.delete(where.kind, where.namespace, where.name, options)
        if not answer.gone:
            return Written(_answered(where, answer, request, 200), answer.revision, [where.name], options.dry_run)
        meta = _decode(answer.value)["metadata"]
        details = {"name": where.name, "kind": where.kind.plural, "uid": meta["uid"]}
        if where.kind.group:
            details["group"] = where.kind.group
        return Written(Response(200, _success(details)), answer.revision, [where.name], options.dry_run)

    async def deletecollection(self, request: Request, where: Route) -> Written:
        if not goes_as_collection(where.kind):
            raise method_not_supported(where.kind, request.method)
        select = parameters.of_list(request.query)
        options = parameters.of_delete(request)
        listing = await self._registry.delete_collection(where.kind, where.namespace, options, select)
        names = [_decode(value)["metadata"]["name"] for value in listing.items]
        revision = self._registry.store.revision
        return Written(Response(200, _list_body(where, listing, PLAIN)), revision, names, options.dry_run)


def _accepted(request: Request) -> Wanted:
    accept = request.headers.get("accept", "")
    if accept in ("", "application/json", "*/*"):
        return PLAIN
    return media.wanted(accept, request.query.get("includeObject", "Metadata") or "Metadata")


def _answered(where: Route, answer: Answer, request: Request, code: int) -> Response:
    return Response(code, _formed(where, [answer.value], _accepted(request)), headers=_warned(answer))


def _warned(answer: Answer) -> tuple[tuple[str, str], ...]:
    return tuple(("Warning", f'299 - "{_quoted(text)}"') for text in answer.warnings[:WARNINGS_MAX])


def _quoted(text: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text[:WARNING_LENGTH_MAX])
    return printable.replace("\\", "\\\\").replace('"', '\\"')


def _formed(where: Route, values: list[bytes], wanted: Wanted) -> bytes:
    """One object in the form that is wanted."""
    if wanted.form == "object":
        return values[0]
    objects = [_decode(value) for value in values]
    if wanted.form == "table" and where.subresource != "scale":
        return _encode(_table(where.kind, objects, wanted))
    return _encode(_metadata_only(objects[0]))


def _table(kind: Kind, objects: list[Any], wanted: Wanted, *, headed: bool = True) -> dict[str, Any]:
    table = rows(kind, objects, time.time())
    for row, obj in zip(table["rows"], objects, strict=True):
        if wanted.include != "None":
            row["object"] = obj if wanted.include == "Object" else _metadata_only(obj)
    if not headed:
        table["columnDefinitions"] = []
    if len(objects) == 1:
        table["metadata"] = {"resourceVersion": objects[0]["metadata"].get("resourceVersion", "")}
    return table


def _metadata_only(obj: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _list_body(where: Route, listing: Listing, wanted: Wanted) -> bytes:
    meta: dict[str, Any] = {"resourceVersion": str(listing.revision)}
    if listing.continue_:
        meta["continue"] = listing.continue_
        if listing.remaining is not None:
            meta["remainingItemCount"] = listing.remaining
    if wanted.form == "table":
        table = _table(where.kind, [_decode(value) for value in listing.items], wanted)
        return _encode({**table, "metadata": meta})
    if wanted.form == "metadata":
        items = [_metadata_only(_decode(value)) for value in listing.items]
        kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        return _encode({"kind": kind, "apiVersion": api_version, "metadata": meta, "items": items})
    head = _encode({"apiVersion": where.kind.api_version, "kind": f"{where.kind.name}List", "metadata": meta})
    return b'%b,"items":[%b]}' % (head[:-1], b",".join(listing.items))


def _event_lines(where: Route, batch: list[WatchEvent], wanted: Wanted, first: bool) -> bytes:
    """A batch of events as lines. One join for all of them: writes to the client are what costs."""
    if wanted.form == "object":
        return b"".join([b'{"type":"%b","object":%b}\n' % (e.type.encode(), e.object) for e in batch])
    lines = []
    for event in batch:
        obj = _decode(event.object)
        if event.type != "BOOKMARK":
            form = _table(where.kind, [obj], wanted, headed=first) if wanted.form == "table" else _metadata_only(obj)
            first = False
        elif wanted.form == "table":
            form = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"], "rows": []}
        else:
            form = _metadata_only(obj)
        lines.append(b'{"type":"%b","object":%b}\n' % (event.type.encode(), _encode(form)))
    return b"".join(lines)


def _success(details: dict[str, Any]) -> bytes:
    return _encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()
