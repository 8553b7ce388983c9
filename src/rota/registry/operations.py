"""From an operation to its decision."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from rota.api.structure import INPUT_DEPTH_MAX, too_deep
from rota.registry.deciding import Decider, Decision
from rota.registry.errors import bad_request
from rota.registry.options import Operation

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def decided(decide: Decider, o: Operation) -> Decision:
    """Decide an operation on the newest accepted state. Its body stays as it is: what is decided on is a copy."""
    verb, kind, namespace, name = o.verb, o.kind, o.namespace, o.name
    if verb == "amend":
        return decide.amend(kind, namespace, name, o.body, o.options)
    if verb == "cast":
        return decide.cast(kind, namespace, name, o.body)
    if verb == "update":
        return decide.update(kind, namespace, name, _own(o.body), o.options, subresource=o.subresource)
    if verb == "patch":
        patch, how = _own(o.body), o.patch_type
        return decide.patch(kind, namespace, name, patch, o.options, type_=how, subresource=o.subresource)
    if verb == "create":
        return decide.create(kind, namespace, _own(o.body), o.options)
    if verb == "delete":
        return decide.delete(kind, namespace, name, o.delete)
    if verb == "apply":
        return decide.apply(kind, namespace, name, _own(o.body), o.options, subresource=o.subresource)
    if verb == "decided":
        return cast(Decision, o.body)
    raise bad_request(f"{verb} is written alone")


def _own(value: Any) -> Any:
    """A copy that the registry may keep. Through JSON, so that what goes in is what would have come over the wire."""
    try:
        text = _encode(value)
        own = _decode(text)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise bad_request(f"this cannot be sent as JSON: {error}") from None
    if text.count(b"{") + text.count(b"[") > INPUT_DEPTH_MAX and too_deep(own, INPUT_DEPTH_MAX):
        raise bad_request(f"this is nested more than {INPUT_DEPTH_MAX} levels deep")
    return own
