"""The answer that the return value of a function makes: without a server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota.control.functions.recording import Identity
from rota.server.call_answers import BadResult, answer_of, response_of


def answered(value: Any) -> tuple[int, str, bytes]:
    made = response_of(msgspec.json.encode(value))
    return made.status, made.content_type, made.body


@pytest.mark.parametrize("value", [None, 1, "text", [1], {"a": 1}, {"statusCodes": 1}, {"a": {"statusCode": 404}}])
def test_what_is_no_response_is_json(value: Any) -> None:
    assert answered(value) == (200, "application/json", msgspec.json.encode(value))


@pytest.mark.parametrize(
    ("value", "content_type", "body"),
    [
        ({"body": "text"}, "text/plain; charset=utf-8", b"text"),
        ({"body": {"a": 1}}, "application/json", b'{"a":1}'),
        ({"body": "/wA=", "isBase64Encoded": True}, "application/octet-stream", b"\xff\x00"),
        ({"body": "<p>", "headers": {"content-TYPE": "text/html"}}, "text/html", b"<p>"),
        ({}, "text/plain; charset=utf-8", b""),
    ],
)
def test_a_body_is_text_json_or_bytes(value: dict[str, Any], content_type: str, body: bytes) -> None:
    assert answered({"statusCode": 201, **value}) == (201, content_type, body)


def test_an_answer_that_has_no_body_gets_none() -> None:
    assert answered({"statusCode": 204, "body": "text"})[2] == b""


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"statusCode": "200"}, "from 200 to 599"),
        ({"statusCode": 100}, "from 200 to 599"),
        ({"statusCode": True}, "from 200 to 599"),
        ({"statusCode": 200, "headers": []}, None),
        ({"statusCode": 200, "headers": ["x"]}, "must be an object"),
        ({"statusCode": 200, "headers": {"a b": "1"}}, "a name is a token"),
        ({"statusCode": 200, "headers": {"a": {"b": 1}}}, "one line of text"),
        ({"statusCode": 200, "headers": {f"h{n}": "1" for n in range(65)}}, "at most 64"),
        ({"statusCode": 200, "body": "%", "isBase64Encoded": True}, "not base64"),
    ],
)
def test_what_cannot_be_an_answer_is_refused_with_why(value: dict[str, Any], why: str | None) -> None:
    if why is None:
        assert answered(value)[0] == 200
        return
    with pytest.raises(BadResult, match=why):
        answered(value)


@pytest.mark.parametrize(
    ("reason", "code"), [("Failed", 500), ("Timeout", 504), ("WorkerLost", 502), ("Cancelled", 500)]
)
def test_of_what_went_wrong_a_caller_learns_the_id_alone(reason: Any, code: int) -> None:
    made = answer_of(reason, Identity("f-1", "uid"))
    assert made.status == code and ("X-Rota-Call", "f-1") in made.headers
    assert msgspec.json.decode(made.body)["call"] == "f-1"
