"""Content types of requests, and forms of answers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from rota.api import Kind, sizes
from rota.api.served import Foreign
from rota.api.structure import INPUT_DEPTH_MAX, too_deep
from rota.registry.errors import ApiError, bad_request
from rota.server import protobuf, protobuf_writing
from rota.server.negotiation import JSON, PROTOBUF, YAML, Transformation, negotiated
from rota.server.protobuf_messages import message_of

Form = Literal["object", "table", "metadata"]
Shape = Literal["one", "list", "watch"]
"""The content of an answer."""
PATCH_TYPES: dict[str, Literal["json", "merge", "strategic", "apply"]] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
YAML_BYTES_MAX = 1024 * 1024
REENCODED_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of JSON that are converted to YAML or protobuf for one answer, because that takes time."""
DUPLICATES_MAX = 100
"""Duplicate fields of a body that a warning names."""
YAML_PARTS_MAX = 10_000
"""Lines and other separators of values in YAML, which is parsed much more slowly than JSON."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"(\s*:)?', re.DOTALL)
"""A JSON string; with a colon after it, it is a key."""
INCLUDES = ("None", "Metadata", "Object")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Wanted(NamedTuple):
    """The form of an answer. `include` is the part of its object that a row of a table carries."""

    form: Form = "object"
    include: str = "Metadata"
    media_type: str = JSON
    meta_version: str = "v1"
    """The version of `meta.k8s.io` of a table or of metadata."""


PLAIN = Wanted()
ANY_JSON = ("", JSON, "*/*")
"""The Accept headers of most clients."""
T = TypeVar("T")


def wanted(accept: str, include: str, kind: Kind, shape: Shape) -> Wanted:
    """Return the form of an answer about objects of a kind. Raises `ApiError` 406 if it is not available."""
    if accept in ANY_JSON:
        return PLAIN
    types = (JSON, YAML, PROTOBUF)
    found = negotiated(accept, types, lambda type_, into: _allows(type_, into, kind))
    if found is None or (shape == "watch" and found.media_type == YAML):
        raise not_acceptable(
            [f"{type_};stream=watch" for type_ in types if type_ != YAML] if shape == "watch" else types
        )
    into = found.transformation
    if into is None:
        return Wanted(media_type=found.media_type)
    if into.kind == "Table":
        if include not in INCLUDES:
            raise bad_request(
                f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
                "must be 'Metadata', 'Object', 'None', or empty"
            )
        return Wanted("table", include, found.media_type, into.version)
    if shape != "watch" and (shape == "list") != (into.kind == "PartialObjectMetadataList"):
        is_one = "a list" if shape == "list" else "not a list"
        raise not_acceptable(types, f"you requested {into.kind}, but the requested object is {is_one}")
    return Wanted("metadata", include, found.media_type, into.version)


def _allows(media_type: str, into: Transformation | None, kind: Kind) -> bool:
    if into is None:
        return media_type != PROTOBUF or has_protobuf(kind)
    if into.group != "meta.k8s.io" or into.version not in ("v1", "v1beta1"):
        return False
    if into.kind == "Table":
        return media_type != PROTOBUF
    return into.kind in ("PartialObjectMetadata", "PartialObjectMetadataList")


def has_protobuf(kind: Kind) -> bool:
    """Report whether whole objects of a kind are available as protobuf. As on Kubernetes, custom resources are not."""
    return not kind.custom and (kind.type is Foreign or message_of(kind.api_version, kind.name) is not None)


def not_acceptable(types: Sequence[str], why: str = "") -> ApiError:
    message = f"only the following media types are accepted: {', '.join(types)}"
    return ApiError(406, "NotAcceptable", f"{why}; {message}" if why else message)


def encoded(body: bytes, media_type: str) -> bytes:
    """Convert a JSON body to another media type. Raises `ApiError` 406 if it is too large."""
    if media_type == JSON:
        return body
    if len(body) > REENCODED_BYTES_MAX:
        raise ApiError(
            406,
            "NotAcceptable",
            f"the answer has {len(body)} bytes, of which {media_type} is made for up to {REENCODED_BYTES_MAX}; "
            f"ask for {JSON}, or for pages with limit",
        )
    value = _decode(body)
    if media_type == PROTOBUF:
        return protobuf_writing.encode(value)
    from rota.manifest.yaml_text import dumps

    return dumps(value).encode()


def refused(error: ApiError, accept: str) -> tuple[bytes, str]:
    """Return the body of an error and its media type: an accepted one, else JSON."""
    body = _encode(error.status())
    found = negotiated(accept, (JSON, YAML, PROTOBUF), lambda _, into: into is None)
    media_type = found.media_type if found is not None else JSON
    return encoded(body, media_type), media_type


def unsupported(what: str) -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {what}"
    return ApiError(415, "UnsupportedMediaType", message)


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_apply(content_type: str) -> bool:
    return PATCH_TYPES.get(media_type(content_type)) == "apply"


def decoded(body: bytes, content_type: str) -> Any:
    """Return the JSON value of a body. Raises ApiError."""
    type_ = media_type(content_type)
    if type_ in ("", "application/json"):
        return json_value(body)
    if type_ in ("application/yaml", "application/apply-patch+yaml"):
        return yaml_value(body)
    if type_ == PROTOBUF:
        try:
            return protobuf.decode(body)
        except protobuf.TooMany:
            raise _too_many_values() from None
        except (ValueError, OverflowError) as error:
            raise bad_request(f"the body is not protobuf: {error}") from None
    raise unsupported("application/json, application/yaml, application/vnd.kubernetes.protobuf")


def _too_many_values() -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"the body has more than {sizes.VALUES_MAX} values")


def json_value(body: bytes) -> Any:
    if sizes.has_too_many_values(body):
        raise _too_many_values()
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    # Counting brackets is fast, and few bodies have so many.
    if body.count(b"{") + body.count(b"[") > INPUT_DEPTH_MAX and too_deep(value, INPUT_DEPTH_MAX):
        raise bad_request(f"the body is nested more than {INPUT_DEPTH_MAX} levels deep")
    return value


def duplicates(body: bytes, value: Any, content_type: str) -> tuple[str, ...]:
    """Return the paths of fields that occur twice in an object of a JSON body. `value` is the decoded body."""
    if media_type(content_type) == PROTOBUF or body[:1] not in (b"{", b"["):
        return ()
    # Counting is fast, and mostly the text has as many keys as the value.
    if sum(map(bool, _STRING.findall(body))) == _keys(value):
        return ()
    found: list[str] = []
    _find_duplicates(json.loads(body, object_pairs_hook=_Pairs), "", found)
    return tuple(found[:DUPLICATES_MAX])


class _Pairs(list[tuple[str, Any]]):
    """An object with all of its fields, duplicates included."""


def _keys(value: Any) -> int:
    if value.__class__ is dict:
        return len(value) + sum(_keys(inner) for inner in value.values() if inner.__class__ in (dict, list))
    if value.__class__ is list:
        return sum(_keys(inner) for inner in value if inner.__class__ in (dict, list))
    return 0


def _find_duplicates(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        known: set[str] = set()
        for name, inner in value:
            here = f"{path}.{name}" if path else name
            if name in known and here not in found:
                found.append(here)
            known.add(name)
            _find_duplicates(inner, here, found)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            _find_duplicates(inner, f"{path}[{i}]", found)


def yaml_value(body: bytes) -> Any:
    """Return the value of a YAML body, which is JSON most of the time."""
    if body[:1] in (b"{", b"["):
        try:
            return json_value(body)
        except ApiError:
            pass
    if len(body) > YAML_BYTES_MAX:
        raise bad_request(f"a YAML body has at most {YAML_BYTES_MAX} bytes")
    if sum(map(body.count, (b"\n", b"\r", b",", b"{", b"["))) > YAML_PARTS_MAX:
        raise bad_request(f"a YAML body has at most {YAML_PARTS_MAX} lines and separators; send JSON")
    # Imported here, because YAML that is not JSON is rare.
    from rota.manifest.yaml_text import parse

    documents, problems = parse(body, "the body")
    if problems:
        raise bad_request(f"the body is not YAML: {problems[0]}")
    if len(documents) != 1:
        raise bad_request(f"the body has {len(documents)} YAML documents, not one")
    return documents[0].plain()


def typed(body: bytes, content_type: str, type_: type[T]) -> T:
    """Decode a body of one of these types into a struct. Raises `ApiError` 400."""
    try:
        return msgspec.convert(decoded(body, content_type), type_)
    except msgspec.ValidationError as error:
        raise bad_request(str(error)) from None
