"""Webhook deliveries: the signature, the filters, and the item of a delivery with its key."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from rota.api.spawner import WebhookSource
from rota.api.templates.paths import ABSENT, Looks, TooManyLooks, find, passes, text_of
from rota.control.spawners.items import Item

SIGNATURE_HEADERS = ("x-rota-signature", "x-hub-signature-256")
SCHEME = "sha256="
SECRET_KEY = "secret"
FORMER_SECRET_KEY = "former-secret"
"""The key of a Secret that is also valid, while the secret is being replaced."""
KEYS_MAX = 2

_NOBODY = os.urandom(32)
"""A key that nobody knows, for webhooks without one."""

EVENT_HEADERS = ("x-rota-event", "x-github-event")
DELIVERY_HEADERS = ("x-rota-delivery", "x-github-delivery")
EVENT_PATH = "$event"
"""The path of the event's kind, which some senders have in a header only."""
PING = "ping"
"""The event by which a sender tests a webhook."""
KEY_FIELD = "key"
"""The mapped field whose value is the key of an item."""
SHOWN_DIGITS = 8
"""Digits of a body's hash in the name of its Task. The name's own hash covers all of them."""
FORM = "application/x-www-form-urlencoded"
FORM_FIELD = "payload"
FORM_FIELDS_MAX = 16


class BadBody(Exception):  # noqa: N818
    """The body is not a JSON object, or the spawner's filters and map need too many steps in it."""


class Ignored(NamedTuple):
    """A delivery that the spawner's filters exclude, or a ping."""

    why: str


def keys_of(secret: Mapping[str, bytes]) -> list[bytes]:
    """Return the keys in a Secret: `secret` and `former-secret`, or its only value. Empty ones do not count."""
    named = [secret[name] for name in (SECRET_KEY, FORMER_SECRET_KEY) if name in secret]
    if not named and len(secret) == 1:
        named = list(secret.values())
    return [one for one in named if one][:KEYS_MAX]


def is_signed(headers: Mapping[str, str], body: bytes, keys: Sequence[bytes]) -> bool:
    """Report whether a body is signed with one of the keys. Takes the same time for any keys, and for none."""
    given = [headers[name].strip().lower().encode("utf-8", "replace") for name in SIGNATURE_HEADERS if name in headers]
    given += [b""] * (len(SIGNATURE_HEADERS) - len(given))
    matches = False
    # The same work for a spawner that does not exist, or has no key, as for any other.
    for index in range(KEYS_MAX):
        real = index < len(keys)
        digest = hmac.digest(keys[index] if real else _NOBODY, body, "sha256").hex()
        for one in given:
            matches |= hmac.compare_digest(one, f"{SCHEME}{digest}".encode()) and real
    return matches


def item_of(source: WebhookSource, headers: Mapping[str, str], body: bytes) -> Item | Ignored:
    """Return the item of a signed delivery. Raises BadBody."""
    event = _first(headers, EVENT_HEADERS)
    if event == PING:
        return Ignored("it was a ping")
    payload = _payload(headers, body)
    document, looks = {**payload, EVENT_PATH: event}, Looks()
    try:
        for one in source.filters:
            if not passes(document, one.path, one.values, looks):
                return Ignored(f"{one.path} is none of what the spawner's filters ask for")
        mapped = {name: find(document, path, looks) for name, path in source.map.items()}
    except TooManyLooks as error:
        raise BadBody(f"the spawner's filters and map ask for too much of the body: {error}") from None
    fields = {name: value for name, value in mapped.items() if value is not ABSENT} if source.map else payload
    return _identified(fields, KEY_FIELD in source.map, headers, body)


def _identified(fields: dict[str, Any], has_key: bool, headers: Mapping[str, str], body: bytes) -> Item:
    """Return the item with its key: the mapped field `key`, else the sender's delivery id, else a hash of the body."""
    if has_key and KEY_FIELD in fields:
        return Item("webhook key", (text_of(fields[KEY_FIELD]),), fields)
    delivery = _first(headers, DELIVERY_HEADERS)
    if delivery:
        return Item("webhook delivery", (delivery,), fields)
    digest = hashlib.sha256(body).hexdigest()
    return Item(f"webhook body {digest}", (digest[:SHOWN_DIGITS],), fields)


def _payload(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    # Tools that post JSON often declare a form, since that is their default.
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
