"""Calls that take too long, and what becomes of them when something dies."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rota.api import Task
from rota.cli.gateway import backend_of
from rota.control.functions import calls
from rota.control.instances.names import subject_of
from rota.runtime.runners import Runners
from rota.server import calls as server_calls
from rota.server import controllers
from tests.functions.town import API, Town, serving
from tests.workers.farm import farm

HOST, AGENT = "rota handler", "rota.runtime.runner.agent"
SLEEPER = """
    import os, time
    def handler(event, context):
        if event["path"] == "/hang":
            print("begun", flush=True)
            time.sleep(60)
        if event["path"] == "/slow":
            time.sleep(float(event["query"]["s"]))
        return os.getpid()
"""


async def test_a_call_that_takes_too_long_is_ended_and_the_next_one_is_answered(town: Town) -> None:
    await town.deploy("slow", SLEEPER, timeoutSeconds=1)
    before = (await town.call("/default/slow")).json
    hung = await town.call("/default/slow/hang")
    assert hung.status == 504 and hung.json["error"] == "the function took too long"
    task = await town.task(hung.call)
    assert task.status is not None and task.status.reason == "Timeout"
    assert (await town.call("/default/slow")).json != before


async def test_a_call_that_hangs_takes_no_other_with_it(town: Town) -> None:
    await town.deploy("slow", SLEEPER, timeoutSeconds=2, concurrency=2, scale={"max": 1})
    await town.call("/default/slow")
    hung = asyncio.create_task(town.call("/default/slow/hang"))
    await town.written("begun")
    # It begins later, so that it is still at it when the other one is ended.
    other = await town.call("/default/slow/slow?s=1.8")
    assert (await hung).status == 504 and other.status == 200


async def test_an_async_call_that_takes_too_long_is_cancelled_and_its_process_stays(town: Town) -> None:
    code = """
        import asyncio, os
        async def handler(event, context):
            if event["path"] == "/hang":
                try:
                    await asyncio.sleep(60)
                finally:
                    print("let go")
            return os.getpid()
    """
    await town.deploy("loop", code, timeoutSeconds=1)
    before = (await town.call("/default/loop")).json
    assert (await town.call("/default/loop/hang")).status == 504
    assert (await town.call("/default/loop")).json == before


async def test_a_command_that_takes_too_long_is_killed(town: Town) -> None:
    script = "#!/bin/sh\nsleep 61.5\n"
    spec = {"runtime": "command", "command": ["sh", "main"], "entrypoint": None, "source": {"inline": script}}
    await town.deploy("shell", "", timeoutSeconds=1, **spec)
    assert (await town.call("/default/shell")).status == 504
    await town.until(lambda: not town.processes("sleep 61.5"))


async def test_a_host_that_is_killed_takes_its_calls_with_it_and_another_comes(town: Town) -> None:
    await town.deploy("victim", SLEEPER)
    assert (await town.call("/default/victim")).status == 200
    call = asyncio.create_task(town.call("/default/victim/hang"))
    await town.written("begun")
    (host,) = town.processes(HOST)
    os.kill(host, signal.SIGKILL)
    lost = await call
    assert lost.status == 502
    task = await town.task(lost.call)
    assert task.status is not None and task.status.reason == "WorkerLost"
    assert "SIGKILL" in (task.status.message or "")
    assert (await town.call("/default/victim")).status == 200


async def test_a_box_that_is_killed_is_made_anew(town: Town) -> None:
    await town.deploy("victim", SLEEPER)
    assert (await town.call("/default/victim")).status == 200
    call = asyncio.create_task(town.call("/default/victim/hang"))
    await town.written("begun")
    os.kill(town.processes(AGENT)[0], signal.SIGKILL)
    assert (await call).status == 502
    assert (await town.call("/default/victim")).status == 200


async def test_a_runner_that_is_killed_is_started_anew(town: Town) -> None:
    await town.deploy("victim", SLEEPER)
    assert (await town.call("/default/victim")).status == 200
    call = asyncio.create_task(town.call("/default/victim/hang"))
    await town.written("begun")
    (runner,) = town.runners()
    os.kill(runner, signal.SIGKILL)
    assert (await call).status == 502
    assert (await town.call("/default/victim")).status == 200


async def test_a_task_whose_worker_is_lost_is_tried_again(town: Town) -> None:
    code = """
        import os, time
        def handler(event, context):
            print("begun")
            if not os.path.exists(os.path.expanduser("~/second")):
                open(os.path.expanduser("~/second"), "w").close()
                os.kill(os.getpid(), 9)
            return "done"
    """
    await town.deploy("once", code)
    await town.run("t", "once", {"a": 1})
    task = await town.task("t")
    assert task.status is not None
    assert (task.status.phase, task.status.result) == ("Succeeded", "done")
    assert [one.reason for one in task.status.attempts] == ["WorkerLost", "Succeeded"]
    assert town.log("t") == "begun\nbegun\n"


async def test_a_task_that_calls_a_function_can_be_cancelled(town: Town) -> None:
    await town.deploy("slow", SLEEPER)
    await town.run("t", "slow", {"path": "/hang"})
    await town.task("t", lambda found: found.status is not None and found.status.phase == "Running")
    await town.client.patch(Task, "t", {"spec": {"cancel": True}})
    task = await town.task("t")
    assert task.status is not None and task.status.phase == "Cancelled"


async def test_what_grows_too_much_is_replaced(town: Town) -> None:
    code = """
        import os
        kept = []
        def handler(event, context):
            if event["path"] == "/grow":
                kept.append(bytearray(os.urandom(1) * 300_000_000))
            return os.getpid()
    """
    await town.deploy("leak", code)
    before = (await town.call("/default/leak")).json
    assert (await town.call("/default/leak/grow")).json == before
    assert (await town.call("/default/leak")).json != before


async def test_a_server_that_is_told_to_end_and_comes_back_serves_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with serving(home) as town:
        await town.deploy("slow", SLEEPER, scale={"min": 1})
        assert (await town.served("/default/slow")).status == 200
    async with serving(home) as town:
        assert (await town.served("/default/slow")).status == 200


def test_a_server_that_is_killed_finds_its_workers_and_a_task_is_tried_again(tmp_path: Path) -> None:
    with farm(tmp_path / "home") as one:
        one.apply(_function("slow", scale={"min": 1, "max": 1}), _task("t", "slow", {"path": "/once"}))
        one.until(lambda: one.read("task", "t").get("status", {}).get("phase") == "Running")
        (before,) = one.runners().values()
        one.kill()
        one.start()
        one.until(lambda: one.read("task", "t").get("status", {}).get("phase") == "Succeeded")
        attempts = one.read("task", "t")["status"]["attempts"]
        assert [attempt["reason"] for attempt in attempts] == ["WorkerLost", "Succeeded"]
        assert list(one.runners().values()) == [before]


def _function(name: str, **spec: Any) -> dict[str, Any]:
    code = """
import os, time
def handler(event, context):
    if not os.path.exists(os.path.expanduser("~/second")):
        open(os.path.expanduser("~/second"), "w").close()
        time.sleep(60)
    return "done"
"""
    body = {"entrypoint": "app:handler", "source": {"inline": code}, **spec}
    return {"apiVersion": API, "kind": "Function", "metadata": {"name": name, "namespace": "default"}, "spec": body}


def _task(name: str, function: str, payload: dict[str, Any]) -> dict[str, Any]:
    spec = {"function": {"name": function, "payload": payload}}
    return {"apiVersion": API, "kind": "Task", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def test_a_client_that_goes_away_does_not_end_what_it_began(town: Town) -> None:
    code = """
        import time
        def handler(event, context):
            print("begun", flush=True)
            time.sleep(0.5)
            print("ended")
            return 1
    """
    await town.deploy("alone", code)
    call = asyncio.create_task(town.call("/default/alone"))
    await town.written("begun")
    call.cancel()
    await town.written("ended")

    async def recorded() -> list[Task]:
        return (await town.client.list(Task)).items

    (task,) = await town.until(recorded)
    assert task.status is not None and task.status.phase == "Succeeded"


async def test_who_waits_is_told_when_the_server_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_calls, "END_SECONDS_MAX", 0.0)
    async with serving(tmp_path / "home") as town:
        await town.deploy("slow", SLEEPER, scale={"max": 1})
        call = asyncio.create_task(town.call("/default/slow/hang"))
        await town.written("begun")
        waiting = asyncio.create_task(town.call("/default/slow"))
        await town.until(lambda: _waits(town))
        await town.deploy("later", SLEEPER.replace("begun", "later"))
        later = await town.call("/default/later/hang", "POST", headers={"Prefer": "respond-async"})
        await town.task(later.call, lambda found: found.status is not None and found.status.phase == "Running")
        await town.written("later")
    lost = await call
    assert (lost.status, lost.json["call"]) == (502, lost.call) and (await waiting).status == 503
    async with serving(tmp_path / "home") as town:
        task = await town.task(lost.call)
        assert task.status is not None and len(task.status.attempts) == 1
        assert (task.status.phase, task.status.reason) == ("Failed", "WorkerLost")
        assert task.status.message == "the server was ended while it ran"
        # Nobody said that it may be done twice.
        task = await town.task(later.call)
        assert task.status is not None and [one.reason for one in task.status.attempts] == ["WorkerLost"]
        assert (task.status.phase, task.status.reason) == ("Failed", "WorkerLost")


async def _waits(town: Town) -> bool:
    text = (await backend_of(town.client).raw("GET", "/v1/metrics")).body.decode()
    return 'rota_function_waiting{namespace="default",function="slow"} 1' in text


async def test_a_server_that_is_ended_lets_calls_end_that_do_so_soon(tmp_path: Path) -> None:
    async with serving(tmp_path / "home") as town:
        await town.deploy("brief", 'def handler(event, context):\n    print("begun")\n    import time; time.sleep(0.3)')
        call = asyncio.create_task(town.call("/default/brief"))
        await town.written("begun")
    assert (await call).status == 200


async def test_a_call_whose_stream_breaks_is_lost_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runners = Runners()
    monkeypatch.setattr(controllers, "Runners", lambda clock: runners)
    async with serving(tmp_path / "home") as town:
        await town.deploy("victim", SLEEPER, scale={"min": 1, "max": 1})
        before = (await town.served("/default/victim")).json
        call = asyncio.create_task(town.call("/default/victim/hang"))
        await town.written("begun")
        (worker,) = await town.instances("victim")
        stream = runners.stream(subject_of(worker))
        assert stream is not None
        stream.abort()
        lost = await call
        assert (lost.status, lost.json["call"]) == (502, lost.call)
        task = await town.task(lost.call)
        assert task.status is not None and task.status.reason == "WorkerLost"
        # Its process hung in the call, and was not kept for others.
        assert (await town.served("/default/victim")).json != before
        assert town.log(lost.call).count("begun") == 1


DIES = """
    import os
    def handler(event, context):
        print("begun", flush=True)
        if not os.path.exists(os.path.expanduser("~/second")):
            open(os.path.expanduser("~/second"), "w").close()
            os.kill(os.getpid(), 9)
        return "done"
"""


@pytest.mark.parametrize(
    ("method", "headers", "ends"),
    [
        ("POST", {}, ("Failed", "WorkerLost", 1)),
        ("PUT", {}, ("Succeeded", None, 2)),
        ("POST", {"Idempotency-Key": "1"}, ("Succeeded", None, 2)),
    ],
)
async def test_what_is_answered_later_is_tried_again_only_if_it_is_said_to_do_no_harm(
    town: Town, method: str, headers: dict[str, str], ends: tuple[str, str | None, int]
) -> None:
    await town.deploy("once", DIES)
    reply = await town.call("/default/once", method, b"", {"Prefer": "respond-async", **headers})
    task = await town.task(reply.call)
    assert task.status is not None
    assert (task.status.phase, task.status.reason, len(task.status.attempts)) == ends
    assert town.log(reply.call).count("begun") == ends[2]


async def test_a_worker_that_hangs_is_found_out_and_replaced(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "GUARD_SECONDS", 0.5)
    await town.deploy("stopped", SLEEPER, timeoutSeconds=1)
    assert (await town.call("/default/stopped")).status == 200
    (runner,) = town.runners()
    os.kill(runner, signal.SIGSTOP)
    assert (await town.call("/default/stopped")).status == 502
    assert (await town.served("/default/stopped")).status == 200
    assert runner not in town.runners()
