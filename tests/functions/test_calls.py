"""Calls: the event of a function, its answer, and what is kept of both."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from rota.api import Event, Task
from rota.control.functions import recording
from tests.functions.town import PATIENCE_SECONDS, Town, ready


async def test_a_request_becomes_an_event_and_what_is_returned_is_json(town: Town) -> None:
    await town.deploy("echo", "def handler(event, context):\n    return event")
    reply = await town.call("/default/echo/a/b%20c?x=1&y=2", "POST", b"hello", {"X-Own": "mine", "TE": "gzip"})
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    event = reply.json
    assert (event["method"], event["path"], event["query"]) == ("POST", "/a/b c", {"x": "1", "y": "2"})
    assert event["rawQuery"] == "x=1&y=2"
    assert (event["body"], event["isBase64Encoded"]) == ("hello", False)
    assert event["headers"]["x-own"] == "mine" and "te" not in event["headers"]
    assert "connection" not in event["headers"]


async def test_any_method_is_answered(town: Town) -> None:
    await town.deploy("echo", "def handler(event, context):\n    return event['method']")
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "REPORT", "PURGE")
    assert [(await town.call("/default/echo", one)).json for one in methods] == list(methods)


async def test_a_call_that_somebody_waits_for_is_one_write_at_its_end(town: Town) -> None:
    await town.deploy("sum", "def handler(event, context):\n    return 3")
    since = (await town.client.list(Task)).resource_version
    names = [(await town.call("/default/sum")).call for _ in range(3)]
    seen = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for change in town.client.watch(Task, resource_version=since):
            assert change.object is not None and change.object.status is not None
            seen.append((change.type, change.object.metadata.name, change.object.status.phase))
            if len(seen) == len(names):
                break
    # All that was ever written of each of them, but for the last, of which there might be more to come.
    assert seen == [("ADDED", name, "Succeeded") for name in names]


async def test_a_body_that_is_no_text_comes_as_base64(town: Town) -> None:
    await town.deploy("echo", "def handler(event, context):\n    return [event['body'], event['isBase64Encoded']]")
    reply = await town.call("/default/echo", "PUT", b"\xff\x00")
    assert reply.json == [base64.b64encode(b"\xff\x00").decode(), True]


async def test_a_returned_response_is_the_answer(town: Town) -> None:
    code = """
        def handler(event, context):
            return {"statusCode": 201, "headers": {"X-One": "1", "Content-Type": "text/css", "Connection": "close",
                    "Set-Cookie": "a=1"}, "body": b"p{}"}
    """
    await town.deploy("style", code)
    reply = await town.call("/default/style/")
    assert (reply.status, reply.body) == (201, b"p{}")
    assert (reply.headers["content-type"], reply.headers["x-one"]) == ("text/css", "1")
    assert reply.headers["x-content-type-options"] == "nosniff" and "set-cookie" not in reply.headers


async def test_a_header_that_would_break_out_of_its_line_is_refused(town: Town) -> None:
    code = """
        def handler(event, context):
            return {"statusCode": 200, "headers": {"X-One": "1\\r\\nX-Two: 2"}, "body": "x"}
    """
    await town.deploy("split", code)
    reply = await town.call("/default/split")
    assert reply.status == 502 and "x-two" not in reply.headers


async def test_an_error_is_told_by_the_id_of_the_call_and_explained_in_its_log_only(town: Town) -> None:
    code = """
        def handler(event, context):
            print("before")
            raise ValueError("a secret")
    """
    await town.deploy("bad", code)
    reply = await town.call("/default/bad")
    assert reply.status == 500 and reply.json == {"error": "the function failed", "call": reply.call}
    log = town.log(reply.call)
    assert log.startswith("before\nTraceback") and "ValueError: a secret" in log
    task = await town.task(reply.call)
    assert task.status is not None
    assert (task.status.phase, task.status.reason, task.status.message) == ("Failed", "Failed", "ValueError: a secret")


async def test_a_function_says_for_how_long_its_answer_may_be_kept(town: Town) -> None:
    given = {"Cache-Control": "max-age=60", "X-Content-Type-Options": "none"}
    code = f"def handler(event, context):\n    return {{'statusCode': 200, 'headers': {given}, 'body': ''}}"
    await town.deploy("kept", code)
    reader, writer = await asyncio.open_connection("127.0.0.1", town.port)
    writer.write(b"GET /default/kept HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    lines = (await reader.read()).decode().split("\r\n")
    writer.close()
    assert [line for line in lines if line.startswith("Cache-Control")] == ["Cache-Control: max-age=60"]
    assert [line for line in lines if line.startswith("X-Content")] == ["X-Content-Type-Options: nosniff"]


async def test_a_call_whose_result_is_no_answer_has_failed(town: Town) -> None:
    await town.deploy("odd", "def handler(event, context):\n    return {'statusCode': 'fine'}")
    reply = await town.call("/default/odd")
    why = "what the function returned is no answer: statusCode must be a number from 200 to 599, not 'fine'"
    assert (reply.status, reply.json) == (502, {"error": why, "call": reply.call})
    task = await town.task(reply.call)
    assert task.status is not None
    assert (task.status.phase, task.status.reason, task.status.message) == ("Failed", "Failed", why)
    found = await town.function("odd", lambda one: one.status is not None and one.status.calls is not None)
    assert found.status is not None and found.status.calls is not None
    assert (found.status.calls.succeeded, found.status.calls.failed) == (0, 1)


async def test_every_call_is_written_down_as_a_task_with_its_result(town: Town) -> None:
    await town.deploy("sum", "def handler(event, context):\n    return {'sum': 3, 'id': context.call_id}")
    reply = await town.call("/default/sum/deep", "DELETE", b"x", {"Cookie": "secret"})
    task = await town.task(reply.call)
    assert task.status is not None and task.spec.function is not None
    assert task.status.phase == "Succeeded" and task.status.result == reply.json
    assert reply.json["id"] == reply.call == task.metadata.name
    # What came with the request may be a secret: it is not kept.
    assert task.spec.function.payload == {"method": "DELETE", "path": "/deep"}
    assert task.status.start_time is not None and task.status.completion_time is not None
    found = await town.function("sum", lambda one: one.status is not None and one.status.calls is not None)
    assert found.status is not None and found.status.calls is not None
    assert found.status.calls.succeeded == 1 and found.status.last_call_time is not None


async def test_a_large_result_is_kept_beside_the_task(town: Town) -> None:
    await town.deploy("large", "def handler(event, context):\n    return 'x' * int(event['query']['size'])")
    kept = {}
    for size in (50_000, 100_000):
        reply = await town.call(f"/default/large?size={size}")
        task = await town.task(reply.call)
        assert len(reply.json) == size
        assert task.status is not None and str(task.status.result).startswith("sha256:")
        kept[size] = [one.read_text() for one in (town.home / "tasks" / "default").glob(f"{reply.call}@*.result")]
    # Who waited for a very large one has it.
    assert [json.loads(text) for text in kept[50_000]] == ["x" * 50_000] and not kept[100_000]


async def test_calls_at_once_have_logs_of_their_own(town: Town) -> None:
    code = """
        import threading, logging
        barrier = threading.Barrier(4)
        def handler(event, context):
            print("first", event["path"])
            barrier.wait(20)
            context.logger.warning("second %s", event["path"])
            return event["path"]
    """
    await town.deploy("many", code, concurrency=4)
    replies = await asyncio.gather(*(town.call(f"/default/many/{n}") for n in range(4)))
    assert [reply.json for reply in replies] == [f"/{n}" for n in range(4)]
    for n, reply in enumerate(replies):
        assert town.log(reply.call) == f"first /{n}\nWARNING many: second /{n}\n"


async def test_async_handlers_share_one_loop(town: Town) -> None:
    code = """
        import asyncio
        there = asyncio.Event()
        waiting = 0
        async def handler(event, context):
            global waiting
            waiting += 1
            if waiting == 3:
                there.set()
            await there.wait()
            print("mine", event["path"])
            return [event["path"], waiting]
    """
    await town.deploy("loop", code, concurrency=3)
    replies = await asyncio.gather(*(town.call(f"/default/loop/{n}") for n in range(3)))
    assert [reply.json for reply in replies] == [[f"/{n}", 3] for n in range(3)]
    assert [town.log(reply.call) for reply in replies] == [f"mine /{n}\n" for n in range(3)]


async def test_what_is_no_json_is_refused_clearly(town: Town) -> None:
    code = """
        def handler(event, context):
            ring = []
            ring.append(ring)
            deep = []
            for _ in range(100_000):
                deep = [deep]
            return {
                "/nan": float("nan"), "/bytes": b"x", "/ring": ring, "/set": {1}, "/deep": deep,
                "/generator": (n for n in range(3)), "/huge": "x" * 5_000_000, "/surrogate": "\\ud800",
            }[event["path"]]
    """
    await town.deploy("rubbish", code)
    said = {}
    for path in ("nan", "bytes", "ring", "set", "deep", "generator", "huge", "surrogate"):
        reply = await town.call(f"/default/rubbish/{path}")
        assert reply.status == 500, path
        said[path] = town.log(reply.call)
    assert "not JSON" in said["nan"] and "not JSON" in said["ring"] and "not JSON" in said["set"]
    assert "returned bytes" in said["bytes"] and "returned a generator" in said["generator"]
    assert "too deeply" in said["deep"] and "5000002 bytes" in said["huge"] and "not JSON" in said["surrogate"]


async def test_a_command_reads_the_event_and_writes_its_result(town: Town) -> None:
    script = '#!/bin/sh\necho "to the log $ROTA_FUNCTION $ROTA_CALL_ID" >&2\ncat\n'
    spec = {"runtime": "command", "command": ["./main"], "entrypoint": None, "source": {"inline": script}}
    await town.deploy("shell", "", **spec)
    reply = await town.call("/default/shell/x", "POST", b"body")
    assert reply.status == 200 and reply.json["path"] == "/x" and reply.json["body"] == "body"
    assert town.log(reply.call) == f"to the log shell {reply.call}\n"


async def test_a_command_that_fails_is_an_error_and_what_is_no_json_is_text(town: Town) -> None:
    script = '#!/bin/sh\nif grep -q /bad; then echo why >&2; exit 3; fi\necho "plain text"\n'
    spec = {"runtime": "command", "command": ["sh", "main"], "entrypoint": None, "source": {"inline": script}}
    await town.deploy("shell", "", **spec)
    reply = await town.call("/default/shell/")
    assert (reply.status, reply.json) == (200, "plain text\n")
    bad = await town.call("/default/shell/bad")
    task = await town.task(bad.call)
    assert bad.status == 500 and town.log(bad.call) == "why\n"
    assert task.status is not None and (task.status.exit_code, task.status.reason) == (3, "Failed")


async def test_what_a_call_writes_has_a_bound(town: Town) -> None:
    await town.deploy("chatty", "def handler(event, context):\n    print('x' * 3_000_000)\n    return 1")
    reply = await town.call("/default/chatty")
    log = town.log(reply.call)
    assert reply.status == 200 and len(log) < 1_100_000 and log.endswith("[rota: what follows is not kept]\n")


async def test_a_module_that_cannot_be_loaded_is_a_condition_of_the_function(town: Town) -> None:
    await town.deploy("broken", "import nothing_of_this_name\n", scale={"min": 0})
    reply = await town.call("/default/broken")
    assert reply.status == 500 and reply.json["error"] == "the function cannot be loaded"
    task = await town.task(reply.json["call"])
    assert task.status is not None and (task.status.phase, task.status.attempts) == ("Failed", [])
    assert "No module named 'nothing_of_this_name'" in (task.status.message or "")
    found = await town.function("broken", lambda one: ready(one) == "ImportFailed")
    condition = found.status.condition("Ready") if found.status is not None else None
    assert condition is not None and condition.message.startswith("ModuleNotFoundError: No module named")
    (log,) = (town.home / "instances").glob("*/*/logs/*.log")
    assert "Traceback" in log.read_text()

    async def is_told() -> bool:
        events = (await town.client.list(Event)).items
        return any((one.reason, one.involved_object.name) == ("ImportFailed", "broken") for one in events)

    await town.until(is_told)
    # A version that can be loaded takes over at once.
    await town.deploy("broken", "def handler(event, context):\n    return 1")
    assert (await town.until(lambda: _good(town, "/default/broken"))).json == 1


async def _good(town: Town, path: str) -> object:
    reply = await town.call(path)
    return reply if reply.status == 200 else None


async def test_only_the_last_calls_are_kept(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "KEPT_MAX", 5)
    monkeypatch.setattr(recording, "DELETED_AT_ONCE", 2)
    await town.deploy("often", "def handler(event, context):\n    print('x')\n    return 1")
    replies = [await town.call("/default/often") for _ in range(9)]

    async def left() -> bool:
        return {one.metadata.name for one in (await town.client.list(Task)).items} == {one.call for one in replies[4:]}

    await town.until(left)
    # What they wrote goes with them.
    await town.until(lambda: not town.log(replies[0].call))


async def test_a_result_that_is_nested_deeply_is_answered(town: Town) -> None:
    code = """
        def handler(event, context):
            deep = []
            for _ in range(500):
                deep = [deep]
            return {"statusCode": 200, "body": deep} if event["path"] == "/response" else deep
    """
    await town.deploy("deep", code)
    assert (await town.call("/default/deep")).status == 200
    assert (await town.call("/default/deep/response")).status in (200, 502)


async def test_a_question_for_the_head_alone_gets_no_body(town: Town) -> None:
    await town.deploy("head", "def handler(event, context):\n    return event['method']")
    reply = await town.call("/default/head", "HEAD")
    assert reply.status == 200 and reply.body == b""


async def test_what_a_fork_of_a_call_prints_does_not_disturb_it(town: Town) -> None:
    code = """
        import os
        def handler(event, context):
            pid = os.fork()
            if pid == 0:
                print("from the child")
                return "twice"
            os.waitpid(pid, 0)
            print("from the parent")
            return "once"
    """
    await town.deploy("forks", code)
    reply = await town.call("/default/forks")
    assert reply.json == "once" and town.log(reply.call) == "from the parent\n"


async def test_calls_that_come_together_are_sent_together_and_one_that_ends_the_process_costs_no_other_its_answer(
    town: Town,
) -> None:
    code = """
    import os

    async def handler(event, context):
        if event["path"] == "/end":
            os._exit(3)
        return os.getpid()
    """
    await town.deploy("many", code, scale={"min": 1, "max": 1}, concurrency=64)
    answers = await asyncio.gather(*(town.call("/default/many/") for _ in range(20)))
    assert [one.status for one in answers] == [200] * 20
    assert len({one.json for one in answers}) == 1
    mixed = await asyncio.gather(*(town.call(f"/default/many/{'end' if n == 10 else n}") for n in range(20)))
    assert all(one.status in (200, 502) for one in mixed) and mixed[10].status == 502
    assert (await town.call("/default/many/")).status == 200
