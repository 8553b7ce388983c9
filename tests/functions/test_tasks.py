"""Tasks that call functions: they wait, run, are tried again and follow each other as any others do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.api import Function, Task
from rota.control.functions.calls import Calls
from tests.functions.town import Town

FLAKY = """
    import os
    def handler(event, context):
        print("try")
        if len(os.listdir("/workspace/home")) < event["failures"]:
            open(f"/workspace/home/{len(os.listdir('/workspace/home'))}", "w").close()
            raise RuntimeError("not yet")
        return {"after": event["failures"]}
"""
SLOW = """
    import time
    def handler(event, context):
        print("begun", flush=True)
        time.sleep(event.get("seconds", 0))
        return event
"""


async def test_a_task_that_fails_is_tried_again_as_often_as_it_says(town: Town) -> None:
    await town.deploy("flaky", FLAKY)
    retry = {"limit": 2, "backoffSeconds": 0, "reasons": ["Failed"]}
    await town.run("t", "flaky", {"failures": 2}, retry=retry)
    task = await town.task("t")
    assert task.status is not None and task.status.result == {"after": 2}
    assert [one.reason for one in task.status.attempts] == ["Failed", "Failed", "Succeeded"]
    assert town.log("t").count("try") == 3


async def test_a_task_whose_call_is_not_made_by_faults_of_the_server_is_called_again(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.deploy("echo", SLOW)
    call, faults = Calls.call, iter([RuntimeError("a fault of the server")] * 2)

    async def failing_twice(self: Calls, *given: Any, **more: Any) -> Any:
        if (fault := next(faults, None)) is not None:
            raise fault
        return await call(self, *given, **more)

    monkeypatch.setattr(Calls, "call", failing_twice)
    await town.run("t", "echo", {"n": 1})
    task = await town.task("t")
    assert next(faults, None) is None
    assert task.status is not None and task.status.result == {"n": 1} and len(task.status.attempts) == 1


async def test_a_task_has_its_own_time_if_that_is_shorter(town: Town) -> None:
    await town.deploy("slow", SLOW, timeoutSeconds=30)
    await town.run("t", "slow", {"seconds": 60}, timeoutSeconds=1)
    task = await town.task("t")
    assert task.status is not None and (task.status.phase, task.status.reason) == ("Failed", "Timeout")


async def test_tasks_wait_for_their_turn_however_many_there_are(town: Town) -> None:
    await town.deploy("busy", SLOW, scale={"max": 1}, concurrency=4)
    for number in range(30):
        await town.run(f"t-{number}", "busy", {"number": number, "seconds": 0.02})
    for number in range(30):
        task = await town.task(f"t-{number}")
        assert task.status is not None and task.status.result["number"] == number
    assert len(await town.instances("busy")) == 1


async def test_a_task_that_waits_says_so_and_can_be_cancelled(town: Town) -> None:
    await town.deploy("busy", SLOW, scale={"max": 1})
    await town.run("first", "busy", {"seconds": 3})
    await town.task("first", lambda found: found.status is not None and found.status.phase == "Running")
    await town.run("second", "busy")
    await town.task("second", lambda found: found.status is not None and found.status.phase == "Queued")
    await town.client.patch(Task, "second", {"spec": {"cancel": True}})
    second = await town.task("second")
    assert second.status is not None and second.status.phase == "Cancelled" and not second.status.attempts
    first = await town.task("first")
    assert first.status is not None and first.status.phase == "Succeeded"


async def test_a_task_follows_the_one_that_it_depends_on(town: Town) -> None:
    await town.deploy("echo", SLOW)
    await town.run("second", "echo", {"n": 2}, dependsOn=["first"])
    await town.run("first", "echo", {"n": 1})
    second = await town.task("second")
    first = await town.task("first")
    assert first.status is not None and second.status is not None
    assert first.status.completion_time is not None and second.status.start_time is not None
    assert first.status.completion_time <= second.status.start_time


async def test_a_task_waits_for_a_function_that_is_not_there(town: Town) -> None:
    await town.run("early", "echo", {"n": 1})
    await town.task("early", lambda found: found.status is not None and found.status.phase == "Waiting")
    await town.deploy("echo", SLOW)
    task = await town.task("early")
    assert task.status is not None and task.status.result == {"n": 1}


async def test_a_task_of_a_function_that_cannot_be_loaded_fails_and_says_why(town: Town) -> None:
    await town.deploy("broken", "import nothing_of_this_name")
    await town.run("t", "broken")
    task = await town.task("t")
    assert task.status is not None and task.status.phase == "Failed"
    assert "nothing_of_this_name" in (task.status.message or "")


async def test_a_task_that_is_deleted_ends_its_call(town: Town) -> None:
    await town.deploy("slow", SLOW)
    await town.run("t", "slow", {"seconds": 60})
    await town.written("begun")
    await town.client.delete(Task, "t")
    # The worker is free again long before the call would have ended.
    assert (await town.call("/default/slow", "POST")).status == 200


async def test_a_call_of_a_function_that_is_deleted_comes_to_its_end(town: Town) -> None:
    code = """
        import time
        def handler(event, context):
            print("begun", flush=True)
            time.sleep(1)
            return "whole"
    """
    await town.deploy("brief", code)
    call = asyncio.create_task(town.call("/default/brief"))
    await town.written("begun")
    await town.client.delete(Function, "brief")
    assert (await call).json == "whole"


async def test_results_of_dependencies_are_in_the_event_of_a_task_that_calls_a_function(town: Town) -> None:
    await town.deploy("echo", SLOW)
    command = ["echo", "::rota output image=shop:7"]
    spec = {"command": command, "worker": {}}
    await town.client.create(
        {"apiVersion": "rota.dev/v1alpha1", "kind": "Task", "metadata": {"name": "build"}, "spec": spec}
    )
    payload = {"deploy": ["{{ tasks.build.outputs.image }}"], "note": "of {{ tasks.build.outputs.image }}"}
    await town.run("ship", "echo", payload, dependsOn=["build"])
    ship = await town.task("ship")
    assert ship.status is not None
    assert ship.status.result == {"deploy": ["shop:7"], "note": "of shop:7"}


async def test_a_result_that_is_not_there_fails_a_task_that_calls_a_function(town: Town) -> None:
    await town.deploy("echo", SLOW)
    await town.run("first", "echo")
    await town.run("second", "echo", {"image": "{{ tasks.first.outputs.image }}"}, dependsOn=["first"])
    second = await town.task("second")
    assert second.status is not None and (second.status.phase, second.status.reason) == ("Failed", "TemplateError")
    assert second.status.message == "function.payload.image: task first has no output image; it has: none"


async def test_without_dependencies_an_event_is_data_whatever_is_in_it(town: Town) -> None:
    await town.deploy("echo", SLOW)
    await town.run("t", "echo", {"text": "{{ tasks.first.outputs.image }} {{ schedule.time }}"})
    task = await town.task("t")
    assert task.status is not None
    assert task.status.result == {"text": "{{ tasks.first.outputs.image }} {{ schedule.time }}"}
