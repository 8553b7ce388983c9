"""The object API: translate HTTP requests to verbs of the registry, and results to answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from rota.api.served import DEFINITION, FOREIGN
from rota.registry import Answer, ApiError, Listing, Registry, WriteOptions, scaling
from rota.registry.errors import bad_request, method_not_supported, not_found
from rota.registry.options import ListOptions, WatchOptions
from rota.registry.reading import revision_of
from rota.registry.selectors import Selection
from rota.server import forms, media, parameters
from rota.server.auth import visible_selector
from rota.server.compression import gzipped
from rota.server.finishing import finished
from rota.server.http import Request, Response, Stream
from rota.server.media import Shape, Wanted
from rota.server.memory import Answers, Payer
from rota.server.negotiation import JSON, PROTOBUF
from rota.server.routing import Route
from rota.server.shares import Seats
from rota.server.unread_answers import check_room, payer_of

WARNINGS_MAX = 20
WARNING_LENGTH_MAX = 256

COUNTED_BYTES_MIN = 64 * 1024
"""Smaller lists are not counted while they are rendered, nor are small batches of events."""
ROOM_SECONDS_MAX = 5.0
"""Time that a watch waits for room for its events, while its client reads other answers. Then the watch ends."""

METHOD = "MethodNotAllowed"
NOT_ALLOWED = "the server does not allow this method on the requested resource"
NOT_FOUND = "the server could not find the requested resource"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Listed = TypeVar("Listed", ListOptions, WatchOptions)

COLLECTION_VERBS = {"GET": "list", "HEAD": "list", "POST": "create", "DELETE": "deletecollection"}
ALL_NAMESPACES_VERBS = {"GET": "list", "HEAD": "list"}
OBJECT_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
SUBRESOURCE_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch"}
FINALIZE_VERBS = {"PUT": "update"}


def verb_of(request: Request, where: Route) -> str:
    """Return the verb of a request, as in access rules. Raises ApiError."""
    kind = where.kind
    if where.subresource:
        has = {"status": kind.has_status, "scale": kind.scale is not None, "finalize": kind.name == "Namespace"}
        if not has.get(where.subresource, False):
            raise not_found(kind, where.name) if kind.custom else ApiError(404, "NotFound", NOT_FOUND)
        table = FINALIZE_VERBS if where.subresource == "finalize" else SUBRESOURCE_VERBS
    elif where.name:
        table = OBJECT_VERBS
    else:
        table = ALL_NAMESPACES_VERBS if kind.namespaced and not where.namespace else COLLECTION_VERBS
    verb = table.get(request.method)
    if verb is None and kind.custom and table is ALL_NAMESPACES_VERBS:
        # In Kubernetes, the path of a custom resource without a namespace is for reading only.
        raise ApiError(404, "NotFound", NOT_FOUND)
    if verb is None and kind.custom and table is COLLECTION_VERBS and request.method in ("PUT", "PATCH"):
        raise bad_request("name must be provided")
    if verb is None:
        raise method_not_supported(kind, request.method) if kind.custom else ApiError(405, METHOD, NOT_ALLOWED)
    if verb == "list" and request.method == "GET" and parameters.flag(request.query, "watch"):
        return "watch"
    return verb


def check_possible(request: Request, where: Route, verb: str) -> None:
    """Raise ApiError for a verb that a kind does not have. For read-only kinds the error says what to do instead."""
    if verb in where.kind.verbs:
        return
    why = ""
    if where.kind is DEFINITION:
        why = ": the kinds of a Rota server are built in; `rota crds` prints them for a Kubernetes cluster"
    elif instead := FOREIGN.get(where.kind):
        why = f": there are no {where.kind.plural} here; {instead}"
    raise ApiError(405, METHOD, f"{NOT_ALLOWED}{why}")


CONVERTING_WAIT_SECONDS_MAX = 20.0
"""Time that a list waits for its turn to be made into YAML or protobuf."""


class WriteResult(NamedTuple):
    """The result of a write: the answer, and the fields of its line in the audit trail."""

    response: Response
    revision: int
    names: list[str]
    dry_run: bool


class Objects:
    """The handlers, by verb. Each determines the form of its answer before it does anything."""

    def __init__(self, registry: Registry, definitions: Registry, answers: Answers) -> None:
        """`definitions` holds the CustomResourceDefinitions. `answers` counts bytes of answers in memory."""
        self._registry = registry
        self._definitions = definitions
        self._answers = answers
        self._converting = Seats(1, 0, CONVERTING_WAIT_SECONDS_MAX)

    def is_there(self, where: Route) -> bool:
        return self._registry.store.head(where.kind.key(where.namespace, where.name)) is not None

    def _reading(self, where: Route) -> Registry:
        return self._definitions if where.kind is DEFINITION else self._registry

    # Reading.

    def get(self, request: Request, where: Route) -> Response:
        wanted = _wanted(request, where, "one")
        registry = self._reading(where)
        if where.subresource == "scale":
            answer = registry.get_scale(where.kind, where.namespace, where.name)
        else:
            answer = registry.get(where.kind, where.namespace, where.name)
        return _sent(200, forms.one(where, answer.value, wanted), wanted)

    async def list(self, request: Request, where: Route) -> Response:
        wanted = _wanted(request, where, "list")
        options = _in_sight(request, where, parameters.of_list(request.query))
        listing = await self._reading(where).list(where.kind, where.namespace, options)
        size = sum(map(len, listing.items))
        if size < COUNTED_BYTES_MIN:
            return await self._sent_list(where, listing, wanted, request)
        check_room(self._answers, request.user, size)
        key = payer_of(request.user).key
        # Counted until it is written; the connection then counts it again.
        self._answers.take(key, size)
        try:
            return await self._sent_list(where, listing, wanted, request)
        finally:
            self._answers.give_back(key, size)

    def watch(self, request: Request, where: Route) -> Stream:
        wanted = _wanted(request, where, "watch")
        options = _in_sight(request, where, parameters.of_watch(request.query))
        # Check the options before the stream begins, so that an error has a status code.
        Selection(where.kind, options.label_selector, options.field_selector)
        revision_of(options.resource_version)
        batches = self._reading(where).watch(where.kind, where.namespace, options)
        lines = self._lines(where, batches, wanted, payer_of(request.user))
        type_ = f"{PROTOBUF};stream=watch" if wanted.media_type == PROTOBUF else JSON
        return Stream(lines, type_, seconds_max=parameters.watch_seconds(request.query), endless=True)

    async def _lines(
        self, where: Route, batches: AsyncIterator[Any], wanted: Wanted, payer: Payer
    ) -> AsyncIterator[bytes]:
        """Yield encoded events. Large ones are counted until they are read; without room for one the watch ends."""
        first = True
        try:
            async for batch in batches:
                for group, size in forms.grouped(batch, COUNTED_BYTES_MIN):
                    counted = size if size > COUNTED_BYTES_MIN else 0
                    if counted and not await self._answers.wait(payer, counted, ROOM_SECONDS_MAX):
                        return
                    # Sent events are not referenced any longer: the next one may be hours away.
                    try:
                        if group:
                            yield forms.events(where, group, wanted, headed=first)
                            first = False
                    finally:
                        if counted:
                            self._answers.give_back(payer.key, counted)
                del batch, group
        except ApiError as error:
            yield forms.event("ERROR", error.status(), wanted)
        finally:
            await batches.aclose()  # type: ignore[attr-defined]

    # Writing.

    async def create(self, request: Request, where: Route) -> WriteResult:
        wanted = _wanted(request, where, "one")
        body = media.decoded(request.body, request.headers.get("content-type", ""))
        options = _options(request, body)
        answer = await self._registry.create(where.kind, where.namespace, body, options)
        name = _decode(answer.value)["metadata"]["name"]
        return WriteResult(_answered(where, answer, wanted, 201), answer.revision, [name], options.dry_run)

    async def update(self, request: Request, where: Route) -> WriteResult:
        wanted = _wanted(request, where, "one")
        body = media.decoded(request.body, request.headers.get("content-type", ""))
        options = _options(request, body)
        answer = await self._registry.update(
            where.kind, where.namespace, where.name, body, options, subresource=where.subresource
        )
        code = 201 if answer.created else 200
        return WriteResult(_answered(where, answer, wanted, code), answer.revision, [where.name], options.dry_run)

    async def patch(self, request: Request, where: Route) -> WriteResult:
        wanted = _wanted(request, where, "one")
        type_ = media.PATCH_TYPES.get(media.media_type(request.headers.get("content-type", "")))
        if type_ is None or (type_ == "strategic" and where.kind.custom):
            accepted = [t for t, p in media.PATCH_TYPES.items() if not (p == "strategic" and where.kind.custom)]
            raise media.unsupported(", ".join(accepted))
        place = (where.kind, where.namespace, where.name)
        if type_ == "apply":
            config = media.yaml_value(request.body)
            options = _options(request, config, is_apply=True)
            answer = await self._registry.apply(*place, config, options, subresource=where.subresource)
        else:
            patch = media.json_value(request.body)
            options = _options(request, patch)
            answer = await self._registry.patch(*place, patch, options, type_=type_, subresource=where.subresource)
        code = 201 if answer.created else 200
        return WriteResult(_answered(where, answer, wanted, code), answer.revision, [where.name], options.dry_run)

    async def delete(self, request: Request, where: Route) -> WriteResult:
        wanted = _wanted(request, where, "one")
        options, code_if_held = parameters.of_delete(request)
        answer = await self._registry.delete(where.kind, where.namespace, where.name, options)
        if not answer.gone:
            response = _answered(where, answer, wanted, code_if_held)
            return WriteResult(response, answer.revision, [where.name], options.dry_run)
        kind = where.kind.storage
        details = {"name": where.name, "kind": kind.plural, "uid": _decode(answer.value)["metadata"]["uid"]}
        if kind.group:
            details["group"] = kind.group
        response = _sent(200, forms.success(details), wanted)
        return WriteResult(response, answer.revision, [where.name], options.dry_run)

    async def deletecollection(
        self,
        request: Request,
        where: Route,
        *,
        deleted: Callable[[str, int, bool], None],
        is_over: Callable[[], bool],
    ) -> WriteResult:
        """Delete the listed objects, until `is_over`. `deleted` gets each of them, for its line in the audit trail."""
        wanted = _wanted(request, where, "list")
        select = parameters.of_list(request.query)
        options, _ = parameters.of_delete(request)
        listing = await self._registry.delete_collection(
            where.kind,
            where.namespace,
            options,
            select,
            deleted=lambda name, revision: deleted(name, revision, options.dry_run),
            is_over=is_over,
        )
        response = await self._sent_list(where, listing, wanted, request)
        return WriteResult(response, self._registry.store.revision, [], options.dry_run)

    async def _sent_list(self, where: Route, listing: Listing, wanted: Wanted, request: Request) -> Response:
        body = await forms.whole_list(where, listing, wanted)
        if wanted.media_type == JSON:
            return await gzipped(Response(200, body), request)
        # One at a time: each takes seconds of a thread, which others need, too.
        await self._converting.enter(payer_of(request.user).key)
        try:
            # A thread cannot be cancelled: the seat is kept until it is done.
            packed = await finished(_converted(body, wanted.media_type))
        finally:
            self._converting.leave()
        return Response(200, packed, wanted.media_type)


async def _converted(body: bytes, media_type: str) -> bytes:
    return await asyncio.get_running_loop().run_in_executor(None, media.encoded, body, media_type)


def _in_sight(request: Request, where: Route, options: Listed) -> Listed:
    """Return the options, restricted to objects that the user may see."""
    if not (own := visible_selector(request.user, where.kind, where.namespace)):
        return options
    asked = options.field_selector
    return msgspec.structs.replace(options, field_selector=f"{asked},{own}" if asked else own)


def _wanted(request: Request, where: Route, shape: Shape) -> Wanted:
    accept = request.headers.get("accept", "")
    if accept in media.ANY_JSON:
        return media.PLAIN
    return media.wanted(accept, request.query.get("includeObject") or "Metadata", where.kind, shape)


def _options(request: Request, body: Any, *, is_apply: bool = False) -> WriteOptions:
    """Return the options of a write, with the duplicate fields of its body."""
    twice = media.duplicates(request.body, body, request.headers.get("content-type", ""))
    return parameters.of_write(request, twice, is_apply=is_apply)


def _answered(where: Route, answer: Answer, wanted: Wanted, code: int) -> Response:
    value = answer.value
    if where.subresource == "scale":
        value = _encode(scaling.of(where.kind, _decode(value)))
    return _sent(code, forms.one(where, value, wanted), wanted, warned(answer.warnings))


def _sent(code: int, body: bytes, wanted: Wanted, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(code, media.encoded(body, wanted.media_type), wanted.media_type, headers)


def warned(warnings: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return warnings as headers."""
    return tuple(("Warning", f'299 - "{_quoted(text)}"') for text in warnings[:WARNINGS_MAX])


def _quoted(text: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text[:WARNING_LENGTH_MAX])
    return printable.replace("\\", "\\\\").replace('"', '\\"')
