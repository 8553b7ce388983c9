"""What a client sends and wants: content types of bodies, and forms of answers."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from rota.api.structure import INPUT_DEPTH_MAX, too_deep
from rota.registry.errors import ApiError, bad_request
from rota.server import protobuf

Form = Literal["object", "table", "metadata"]
PATCH_TYPES: dict[str, Literal["json", "merge", "strategic", "apply"]] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
YAML_BYTES_MAX = 1024 * 1024

_decode = msgspec.json.Decoder().decode


class Wanted(NamedTuple):
    """The form of an answer. `include` says how much of its object a row of a table carries."""

    form: Form
    include: str = "Metadata"


PLAIN = Wanted("object")


def wanted(accept: str, include: str) -> Wanted:
    """The first form that is asked for and can be had."""
    if "as=" not in accept:
        if accept and not any(t in accept for t in ("json", "*/*", "application/*")):
            raise not_acceptable()
        return PLAIN
    if include not in ("None", "Metadata", "Object"):
        raise bad_request(f"includeObject must be None, Metadata or Object, not {include!r}")
    for choice in accept.split(","):
        type_, *parameters = (part.strip() for part in choice.split(";"))
        options = dict(p.split("=", 1) for p in parameters if "=" in p)
        if type_ not in ("application/json", "*/*", "application/*"):
            continue
        form = options.get("as", "")
        if not form:
            return PLAIN
        if options.get("g") == "meta.k8s.io" and options.get("v") == "v1":
            if form == "Table":
                return Wanted("table", include)
            if form in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return Wanted("metadata")
    raise not_acceptable()


def not_acceptable() -> ApiError:
    message = "only the following media types are accepted: application/json"
    return ApiError(406, "NotAcceptable", message)


def unsupported(what: str) -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {what}"
    return ApiError(415, "UnsupportedMediaType", message)


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_apply(content_type: str) -> bool:
    return PATCH_TYPES.get(media_type(content_type)) == "apply"


def decoded(body: bytes, content_type: str) -> Any:
    """The JSON value of a body."""
    type_ = media_type(content_type)
    if type_ in ("", "application/json"):
        return json_value(body)
    if type_ in ("application/yaml", "application/apply-patch+yaml"):
        return yaml_value(body)
    if type_ == protobuf.MEDIA_TYPE:
        try:
            return protobuf.decode(body)
        except (ValueError, OverflowError) as error:
            raise bad_request(f"the body is not protobuf: {error}") from None
    raise unsupported("application/json, application/yaml, application/vnd.kubernetes.protobuf")


def json_value(body: bytes) -> Any:
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    # Few bodies have so many brackets at all.
    if body.count(b"{") + body.count(b"[") > INPUT_DEPTH_MAX and too_deep(value, INPUT_DEPTH_MAX):
        raise bad_request(f"the body is nested more than {INPUT_DEPTH_MAX} levels deep")
    return value


def yaml_value(body: bytes) -> Any:
    """The value of a YAML body. JSON is YAML, and most of it that comes is JSON."""
    if body[:1] in (b"{", b"["):
        try:
            return json_value(body)
        except ApiError:
            pass
    if len(body) > YAML_BYTES_MAX:
        raise bad_request(f"a YAML body has at most {YAML_BYTES_MAX} bytes")
    # Loaded only here: almost nobody sends YAML that is not JSON.
    from rota.manifest.parse import parse

    documents, problems = parse(body, "the body")
    if problems:
        raise bad_request(f"the body is not YAML: {problems[0]}")
    if len(documents) != 1:
        raise bad_request(f"the body has {len(documents)} YAML documents, not one")
    return documents[0].plain()
