"""Calls that are answered later: what is written down of them, and how their callers get the answer."""

from __future__ import annotations

import pytest

from rota.api import Task
from rota.control.functions import asynchronous
from tests.functions.test_access import made_key
from tests.functions.town import Reply, Town
from tests.until import until_so

ASYNC = {"Prefer": "respond-async"}
CODE = """
    def handler(event, context):
        match event["query"]["do"]:
            case "large":
                return "x" * 10_000
            case "fail":
                raise KeyError("a secret")
            case "bad":
                return {"statusCode": "no number"}
        return {"statusCode": 201, "headers": {"X-Made": "yes"}, "body": "made"}
"""


async def answer(town: Town, asked: Reply, headers: dict[str, str] | None = None) -> Reply:
    assert asked.status == 202

    async def look() -> Reply:
        reply = await town.call(asked.headers["location"], headers=headers or {})
        assert reply.status != 202 or (reply.headers["retry-after"] == "1" and reply.call == asked.call)
        return reply

    reply: Reply = await until_so(look, lambda found: found.status != 202, "an answer")
    return reply


async def test_an_answer_can_be_asked_for_later(town: Town) -> None:
    code = """
        def handler(event, context):
            print("working")
            return {"got": event["body"]}
    """
    await town.deploy("later", code)
    reply = await town.call("/default/later/x", "POST", b"hi", {"Prefer": "respond-async"})
    assert reply.status == 202 and reply.headers["preference-applied"] == "respond-async"
    task = await town.task(reply.json["task"])
    assert task.status is not None and task.status.result == {"got": "hi"}
    assert town.log(reply.call) == "working\n" and task.spec.ttl_seconds_after_finished == 3600


async def test_there_is_a_bound_on_what_is_to_be_answered_later(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asynchronous, "KEPT_MAX", 2)
    await town.deploy("waits", "import time\ndef handler(event, context):\n    time.sleep(float(event['query']['s']))")
    slow = [await town.call("/default/waits?s=1", headers={"Prefer": "respond-async"}) for _ in range(3)]
    assert [reply.status for reply in slow] == [202, 202, 429] and slow[2].headers["retry-after"] == "1"
    for reply in slow[:2]:
        await town.task(reply.call)
    # Those that are over make room.
    more = await town.call("/default/waits?s=0", headers={"Prefer": "respond-async"})
    assert more.status == 202 and len((await town.client.list(Task)).items) == 2
    body = b"x" * (asynchronous.EVENT_BYTES_MAX + 1)
    assert (await town.call("/default/waits", "POST", body, {"Prefer": "respond-async"})).status == 413


async def test_the_answer_is_where_it_was_said_to_be(town: Town) -> None:
    await town.deploy("f", CODE)
    asked = {do: await town.call(f"/default/f/?do={do}", headers=ASYNC) for do in ("make", "large", "fail", "bad")}
    got = {do: await answer(town, reply) for do, reply in asked.items()}
    made = got["make"]
    assert (made.status, made.headers["x-made"], made.body) == (201, "yes", b"made")
    assert got["large"].json == "x" * 10_000
    assert (got["fail"].status, got["bad"].status) == (500, 502)
    assert got["fail"].json == {"error": "the function failed", "call": asked["fail"].call}


async def test_whoever_may_not_call_a_function_learns_nothing_of_its_calls(town: Town) -> None:
    await town.deploy("f", CODE, public=False)
    key = {"X-Rota-Key": await made_key(town, "default")}
    asked = await town.call("/default/f/?do=make", headers=ASYNC | key)
    for place in (asked.headers["location"], "/-/calls/default/none"):
        assert (await town.call(place)).status == 401
    assert (await answer(town, asked, key)).body == b"made"
    assert (await town.call("/-/calls/default/none", headers=key)).status == 404
    assert (await town.call(asked.headers["location"], "POST", headers=key)).status == 405


async def test_what_lets_somebody_in_elsewhere_is_not_written_down(town: Town) -> None:
    await town.deploy("f", CODE)
    secrets = {"Authorization": "Basic c2VjcmV0", "Cookie": "session=secret", "X-Other": "seen"}
    asked = await town.call("/default/f/?do=make", headers=ASYNC | secrets)
    task = await town.task(asked.call)
    assert task.spec.function is not None and isinstance(task.spec.function.payload, dict)
    headers = task.spec.function.payload["headers"]
    assert headers["x-other"] == "seen" and not {"authorization", "cookie"} & headers.keys()
