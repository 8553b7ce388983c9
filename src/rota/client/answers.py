"""Decode the answers of a server: objects, lists, events, warnings and errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from rota.api import Kind
from rota.api.problems import NOT_JSON
from rota.client.connection import Headers, Response, header
from rota.client.shallow import shallow
from rota.registry import Answer, ApiError, Listing, Operation, WatchEvent

DIGITS_MAX = 19
"""Digits of a resource version."""
ITEMS_DEPTH = 2
"""Objects and lists around an item of a list."""
METADATA_DEPTH = 2
"""Objects around a field of an object's metadata."""
SHOWN_CHARACTERS_MAX = 500
"""Bound on the characters of an answer without a Status that an error quotes."""

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    502: "BadGateway",
    503: "ServiceUnavailable",
    504: "Timeout",
}

T = TypeVar("T")
_EVENT = re.compile(rb'\s*\{\s*"type"\s*:\s*"([A-Z]{1,16})"\s*,\s*"object"\s*:')
"""The beginning of an event, as every API server writes it."""
_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    deletion_timestamp: str | None = msgspec.field(default=None, name="deletionTimestamp")
    grace_seconds: int | None = msgspec.field(default=None, name="deletionGracePeriodSeconds")
    finalizers: list[str] | None = None


class _Object(msgspec.Struct):
    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    continue_: str = msgspec.field(default="", name="continue")
    remaining: int | None = msgspec.field(default=None, name="remainingItemCount")


class _List(msgspec.Struct):
    kind: str = ""
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


class _Batch(msgspec.Struct):
    objects: list[msgspec.Raw]


class _One(msgspec.Struct):
    code: int
    object: msgspec.Raw = msgspec.Raw()
    status: _Status | None = None
    warnings: tuple[str, ...] = ()


class _Each(msgspec.Struct):
    results: list[_One]


_object = msgspec.json.Decoder(_Object)
_list = msgspec.json.Decoder(_List)
_event = msgspec.json.Decoder(_Event)
_status = msgspec.json.Decoder(_Status)
_batch = msgspec.json.Decoder(_Batch)
_each = msgspec.json.Decoder(_Each)


def answer(response: Response) -> Answer:
    """Decode the answer to a read of one object."""
    return _answer("get", response.status, response.body, _decoded(_object, response), warnings(response.headers))


def written(verb: str, response: Response) -> Answer:
    """Decode the answer to a write of one object, or to the deletion of many."""
    return _answer(verb, response.status, response.body, _decoded(_object, response), warnings(response.headers))


def _answer(verb: str, code: int, value: bytes, obj: _Object, said: tuple[str, ...]) -> Answer:
    """Return the answer to one operation.

    A deletion is answered with a Status or the last state of the object if it is gone, else with the object.
    """
    gone = verb == "delete" and (obj.kind == "Status" or not _is_held(obj))
    created = verb == "apply" and code == 201
    return Answer(value, _revision(obj.metadata.resource_version), said, created=created, gone=gone)


def _is_held(obj: _Object) -> bool:
    """Report whether a deleted object still exists. A Pod that is gone is answered with its deletion mark, too."""
    meta = obj.metadata
    if obj.kind == "Pod":
        return bool(meta.deletion_timestamp and (meta.grace_seconds or meta.finalizers))
    return meta.deletion_timestamp is not None


def listing(kind: Kind, response: Response) -> Listing:
    """Decode a list."""
    found, items = _items(response)
    if found.kind == "Status":
        return Listing([], 0)
    if not kind.custom:
        items = [_named(kind, item) for item in items]
    meta = found.metadata
    return Listing(items, _revision(meta.resource_version), meta.continue_, meta.remaining)


def _items(response: Response) -> tuple[_List, list[bytes]]:
    """Decode a list, and split it into its items, whose values may be nested more deeply than can be decoded."""
    try:
        found = _list.decode(response.body)
    except RecursionError:
        text, items = shallow(response.body, ITEMS_DEPTH)
        return _decoded(_list, response._replace(body=text)), items
    except NOT_JSON as error:
        raise _not_json(response, error) from None
    return found, [bytes(raw) for raw in found.items or ()]


def _named(kind: Kind, item: bytes) -> bytes:
    """Add apiVersion and kind to an item. Kubernetes leaves them out of the lists of its own kinds."""
    if _head(item).kind:
        return item
    start = f'{{"apiVersion":"{kind.api_version}","kind":"{kind.name}",'.encode()
    return start + item[1:]


def _head(value: bytes) -> _Object:
    """Decode the identity of an object, whose values may be nested more deeply than can be decoded."""
    try:
        return _object.decode(value)
    except RecursionError:
        return _object.decode(shallow(value, METADATA_DEPTH).text)


def event(line: bytes) -> WatchEvent:
    """Decode one line of a watch. An error in it is raised."""
    try:
        try:
            decoded = _event.decode(line)
            type_, raw = decoded.type, bytes(decoded.object)
        except RecursionError:
            found = _EVENT.match(line)
            if found is None:
                raise
            type_, raw = found[1].decode(), line.rstrip()[found.end() : -1]
        if type_ == "ERROR":
            raise _refused(_status.decode(raw), 500)
        return WatchEvent(type_, raw, _revision(_head(raw).metadata.resource_version))
    except NOT_JSON as error:
        raise ApiError(502, "BadGateway", f"a line of the watch is no event: {error}: {_shown(line)}") from None


def batched(operations: Sequence[Operation], response: Response) -> list[Answer]:
    """Decode the answer to an atomic batch."""
    said = warnings(response.headers)
    objects = [bytes(raw) for raw in _decoded(_batch, response).objects]
    return [_answer(o.verb, 200, value, _object.decode(value), said) for o, value in _paired(operations, objects)]


def each(operations: Sequence[Operation], response: Response) -> list[Answer | ApiError]:
    """Decode the answer to operations that were written one by one."""
    found: list[Answer | ApiError] = []
    for o, one in _paired(operations, _decoded(_each, response).results):
        if one.status is not None:
            found.append(_refused(one.status, one.code))
        else:
            value = bytes(one.object)
            found.append(_answer(o.verb, one.code, value, _object.decode(value), one.warnings))
    return found


def _paired(operations: Sequence[Operation], found: Sequence[T]) -> Iterator[tuple[Operation, T]]:
    if len(found) != len(operations):
        raise ApiError(502, "BadGateway", f"the server answered {len(found)} of {len(operations)} operations")
    return zip(operations, found, strict=True)


def warnings(headers: Headers) -> tuple[str, ...]:
    """Return the texts of the `Warning` headers."""
    said = [value.decode("utf-8", "replace") for name, value in headers if name == b"warning"]
    return tuple(re.sub(r"\\(.)", r"\1", text) for value in said for text in _WARNING.findall(value))


def refusal(response: Response) -> ApiError:
    """Return the error of an answer. It may come from a proxy, and then has no Status."""
    try:
        status = _status.decode(response.body)
    except NOT_JSON:
        status = _Status()
    if status.kind == "Status":
        return _refused(status, response.status)
    code = response.status
    said = _shown(response.body)
    message = f"the server answered {code}" + (f": {said}" if said else " and did not say why")
    if 300 <= code < 400:
        message = f"the server answered {code} and refers to {response.header('location')!r}: use that address"
    return ApiError(code, REASONS.get(code, "Unknown"), message)


def _refused(status: _Status, code: int) -> ApiError:
    code = status.code or code
    return ApiError(code, status.reason or REASONS.get(code, "Unknown"), status.message, details=status.details)


def retry_after_seconds(headers: Headers) -> float | None:
    """Return the time after which the server accepts a retry; None if it does not name one."""
    value = header(headers, "retry-after").strip()
    return float(value) if value.isascii() and value.isdigit() else None


def _decoded(decoder: msgspec.json.Decoder[T], response: Response) -> T:
    try:
        return decoder.decode(response.body)
    except NOT_JSON as error:
        raise _not_json(response, error) from None


def _not_json(response: Response, error: Exception) -> ApiError:
    what = header(response.headers, "content-type") or "something"
    message = f"the server answered {what} that is not the JSON of an object ({error}): {_shown(response.body)}"
    return ApiError(502, "BadGateway", f"{message}; is there a proxy in between?")


def _revision(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        raise ApiError(502, "BadGateway", f"the server's resource version {text!r} is not a number")
    return int(text)


def _shown(body: bytes) -> str:
    text = " ".join(body[: 4 * SHOWN_CHARACTERS_MAX].decode("utf-8", "replace").split())
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"
