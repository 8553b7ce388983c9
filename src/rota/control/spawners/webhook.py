"""From a delivery to an item: what it is about, whether it is wanted, and what makes it the same as another."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from rota.api.spawner import WebhookSource
from rota.api.templates.paths import ABSENT, Looks, TooManyLooks, find, passes, text_of
from rota.control.spawners.items import Item

EVENT_HEADERS = ("x-rota-event", "x-github-event")
DELIVERY_HEADERS = ("x-rota-delivery", "x-github-delivery")
EVENT_PATH = "$event"
"""A path that means the kind of event, which some senders name in a header alone."""
PING = "ping"
"""With this event a sender only tries whether somebody listens."""
KEY_FIELD = "key"
"""A mapped field of this name is what makes two deliveries the same."""
SHOWN_DIGITS = 8
"""Of the hash of a body, in the name of its Task. All of it counts."""
FORM = "application/x-www-form-urlencoded"
FORM_FIELD = "payload"
FORM_FIELDS_MAX = 16


class BadBody(Exception):  # noqa: N818
    """A body that is not the JSON of an object, or has too much of what the spawner asks for."""


class Ignored(NamedTuple):
    """A delivery that is none of the spawner's business."""

    why: str


def item_of(source: WebhookSource, headers: Mapping[str, str], body: bytes) -> Item | Ignored:
    """The item that a delivery, which is signed, is about. Raises BadBody."""
    event = _first(headers, EVENT_HEADERS)
    if event == PING:
        return Ignored("it was a ping")
    payload = _payload(headers, body)
    seen, looks = {**payload, EVENT_PATH: event}, Looks()
    try:
        for one in source.filters:
            if not passes(seen, one.path, one.values, looks):
                return Ignored(f"{one.path} is none of what the spawner's filters ask for")
        mapped = {name: find(seen, path, looks) for name, path in source.map.items()}
    except TooManyLooks as error:
        raise BadBody(f"the spawner's filters and map ask for too much of the body: {error}") from None
    fields = {name: value for name, value in mapped.items() if value is not ABSENT} if source.map else payload
    return _identified(fields, KEY_FIELD in source.map, headers, body)


def _identified(fields: dict[str, Any], has_key: bool, headers: Mapping[str, str], body: bytes) -> Item:
    """What makes two deliveries the same: what the spawner says, else the sender's number, else what is in them."""
    if has_key and KEY_FIELD in fields:
        return Item("webhook key", (text_of(fields[KEY_FIELD]),), fields)
    delivery = _first(headers, DELIVERY_HEADERS)
    if delivery:
        return Item("webhook delivery", (delivery,), fields)
    digest = hashlib.sha256(body).hexdigest()
    return Item(f"webhook body {digest}", (digest[:SHOWN_DIGITS],), fields)


def _payload(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    # Tools that post JSON often say that it is a form, for that is their default.
    is_form = headers.get("content-type", "").partition(";")[0].strip().lower() == FORM
    if is_form and not body.lstrip().startswith(b"{"):
        try:
            form = dict(parse_qsl(body.decode(), max_num_fields=FORM_FIELDS_MAX))
        except ValueError:
            form = {}
        if FORM_FIELD not in form:
            raise BadBody(f"the body is neither the JSON of an object nor a form with the field {FORM_FIELD}")
        body = form[FORM_FIELD].encode()
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise BadBody(f"the body is not the JSON of an object: {error}") from None


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((headers[name].strip() for name in names if headers.get(name, "").strip()), "")
