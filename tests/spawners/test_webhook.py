"""From a delivery to an item: who may deliver, what is wanted, and what is the same."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from rota.api.spawner import WebhookSource
from rota.api.templates.paths import ABSENT, Looks, find, passes
from rota.control.spawners import webhook
from rota.control.spawners.items import Item, label_of, tail_of, task_name
from rota.control.spawners.webhook import BadBody, Ignored, is_signed, item_of, keys_of

BODY = {"action": "opened", "issue": {"number": 7, "labels": [{"name": "bug"}, {"name": "p1"}]}, "draft": False}


def source(**fields: Any) -> WebhookSource:
    return msgspec.convert({"secretRef": {"name": "hook"}, **fields}, WebhookSource)


def sign(body: bytes, key: bytes = b"key") -> str:
    return "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()


def item(body: Any = BODY, headers: dict[str, str] | None = None, **fields: Any) -> Item:
    found = item_of(source(**fields), headers or {}, json.dumps(body).encode())
    assert isinstance(found, Item), found
    return found


def name(body: Any = BODY, headers: dict[str, str] | None = None, **fields: Any) -> str:
    return task_name("hook", item(body, headers, **fields))


# Signatures.


@pytest.mark.parametrize("header", ["x-hub-signature-256", "x-rota-signature"])
def test_a_body_is_signed_by_who_knows_the_key(header: str) -> None:
    assert is_signed({header: sign(b"body")}, b"body", [b"key"])
    assert is_signed({header: sign(b"body").upper().replace("SHA", "sha")}, b"body", [b"key"])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-hub-signature-256": ""},
        {"x-hub-signature-256": sign(b"other")},
        {"x-hub-signature-256": sign(b"body", b"other")},
        {"x-hub-signature-256": sign(b"body").removeprefix("sha256=")},
        {"x-hub-signature-256": sign(b"body")[:-1]},
        {"x-hub-signature-256": f"{sign(b'body')}, {sign(b'body')}"},
        {"x-hub-signature": "sha1=" + hmac.new(b"key", b"body", hashlib.sha1).hexdigest()},
        {"x-hub-signature-256": "sha256=é"},
        {"authorization": "Bearer key"},
    ],
)
def test_nothing_else_is_a_signature(headers: dict[str, str]) -> None:
    assert not is_signed(headers, b"body", [b"key"])


def test_without_a_key_nothing_is_signed() -> None:
    assert not is_signed({"x-rota-signature": sign(b"body", b"")}, b"body", [])
    assert not is_signed({"x-rota-signature": sign(b"body", webhook._NOBODY)}, b"body", [])


def test_an_empty_value_of_a_secret_is_no_key() -> None:
    assert keys_of({"secret": b""}) == keys_of({}) == keys_of({"any": b""}) == []


def test_the_key_is_named_or_the_only_one() -> None:
    assert keys_of({"secret": b"s", "other": b"o"}) == [b"s"]
    assert keys_of({"any": b"a"}) == [b"a"]
    assert keys_of({"user": b"u", "password": b"p"}) == []


def test_while_a_key_is_replaced_both_sign() -> None:
    keys = keys_of({"secret": b"new", "former-secret": b"old"})
    assert is_signed({"x-rota-signature": sign(b"b", b"old")}, b"b", keys)
    assert is_signed({"x-rota-signature": sign(b"b", b"new")}, b"b", keys)


def test_as_much_is_done_without_a_key_as_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    digest = hmac.digest

    def counted(key: bytes, body: bytes, how: str) -> bytes:
        done.append(len(body))
        return digest(key, body, how)

    monkeypatch.setattr(hmac, "digest", counted)
    for keys in ([], [b"a"], [b"a", b"b"]):
        is_signed({"x-rota-signature": sign(b"body", b"a")}, b"body", keys)
    assert done == [4] * 6


# What is wanted.


def test_without_filters_everything_is_wanted() -> None:
    assert item().fields == BODY


def test_all_filters_must_pass() -> None:
    both = [{"path": "action", "values": ["opened", "edited"]}, {"path": "draft", "values": ["false"]}]
    assert item(filters=both)
    ignored = item_of(source(filters=both), {}, json.dumps({**BODY, "draft": True}).encode())
    assert ignored == Ignored("draft is none of what the spawner's filters ask for")


@pytest.mark.parametrize(
    ("path", "values", "passing"),
    [
        ("issue.labels.name", ["p1"], True),
        ("issue.labels.name", ["p2"], False),
        ("issue.labels.0.name", ["bug"], True),
        ("issue.labels.0.name", ["p1"], False),
        ("issue.number", ["7"], True),
        ("issue.missing", [""], False),
        ("issue", ["{}"], False),
        ("action.deeper", ["opened"], False),
    ],
)
def test_a_filter_compares_what_is_at_its_path(path: str, values: list[str], passing: bool) -> None:
    assert passes(BODY, path, values, Looks()) is passing


def test_the_kind_of_event_can_be_filtered_and_mapped_though_it_is_in_a_header() -> None:
    of_issues = {"filters": [{"path": "$event", "values": ["issues"]}], "map": {"event": "$event"}}
    assert item(headers={"x-github-event": "issues"}, **of_issues).fields == {"event": "issues"}
    assert isinstance(item_of(source(**of_issues), {"x-github-event": "push"}, b"{}"), Ignored)
    assert isinstance(item_of(source(**of_issues), {}, b'{"$event": "issues"}'), Ignored), "a body cannot claim it"


def test_a_ping_is_nothing_to_do() -> None:
    assert isinstance(item_of(source(), {"x-github-event": "ping"}, b"not even json"), Ignored)


def test_an_item_has_what_is_mapped_and_nothing_else() -> None:
    found = item(map={"n": "issue.number", "labels": "issue.labels.name", "gone": "issue.gone"})
    assert found.fields == {"n": 7, "labels": ["bug", "p1"]}


def test_a_form_carries_json_too() -> None:
    body = urlencode({"payload": json.dumps(BODY)}).encode()
    found = item_of(source(), {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}, body)
    assert isinstance(found, Item) and found.fields == BODY


def test_json_that_is_called_a_form_is_json() -> None:
    assert item(headers={"content-type": "application/x-www-form-urlencoded"}).fields == BODY


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b"{", b"\xff", b'{"a":' + b"[" * 100_000, b"null", b"payload=x"])
def test_what_is_not_the_json_of_an_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadBody):
        item_of(source(), {}, body)


@pytest.mark.parametrize("body", [b"a=b", b"payload=%7B", b"&" * 1000, b"\xff"])
def test_a_form_without_a_payload_is_refused(body: bytes) -> None:
    with pytest.raises(BadBody):
        item_of(source(), {"content-type": "application/x-www-form-urlencoded"}, body)


# What is the same.


def test_the_same_delivery_is_the_same_task_whatever_is_in_it() -> None:
    assert name(headers={"x-github-delivery": "d1"}) == name({"a": 1}, {"x-github-delivery": "d1"})
    assert name(headers={"x-github-delivery": "d1"}) != name(headers={"x-github-delivery": "d2"})


def test_without_a_number_of_the_sender_the_same_body_is_the_same_task() -> None:
    assert name() == name() != name({**BODY, "more": 1})


def test_a_mapped_key_decides_and_not_the_delivery() -> None:
    by_issue = {"map": {"key": "issue.number"}}
    assert name(headers={"x-github-delivery": "d1"}, **by_issue) == name(
        headers={"x-github-delivery": "d2"}, **by_issue
    )
    assert name(**by_issue) != name({"issue": {"number": 8}}, **by_issue)


def test_a_body_cannot_pose_as_a_delivery_or_a_key() -> None:
    names = {
        name(headers={"x-github-delivery": "7"}),
        name(map={"key": "issue.number"}),
        name({"key": "7"}),
        name({"key": "7"}, {"x-rota-delivery": "8"}),
    }
    assert len(names) == 4, "a field named key counts only where the spawner maps it"


def test_names_are_labels_however_long_and_odd_the_parts_are() -> None:
    made = task_name("s" * 253, Item("r", ("Ünï/../" * 100,), {}))
    assert len(made) <= 63 and made.replace("-", "").isalnum() and made.isascii()
    assert tail_of(made) == made[-12:]
    assert label_of("triage.eu") == "triage.eu" and len(label_of("s" * 253)) <= 63


def test_nothing_is_found_in_what_is_not_there() -> None:
    assert find({"a": [{"b": 1}, {"c": 2}]}, "a.b", Looks()) == [1]
    assert find({"a": []}, "a.b", Looks()) == [] and find({"a": []}, "a.0", Looks()) is ABSENT
    assert find({"a": [{"b": 1}]}, "a.c", Looks()) is ABSENT
    assert find({"a": {"0": "zero"}}, "a.0", Looks()) == "zero"
