"""The number of workers, and the change from one version to another."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from rota.api import Function, Task
from rota.control.functions import calls
from tests.functions.index import index
from tests.functions.town import Reply, Town, ready

VERSION = """
    import time
    def handler(event, context):
        time.sleep(0.02)
        return {version}
"""
WAITS = """
    import time, os
    def handler(event, context):
        print("begun", flush=True)
        time.sleep(1.0)
        return os.getpid()
"""


async def test_nothing_runs_once_it_is_loaded_until_it_is_called_and_nothing_after_a_while(town: Town) -> None:
    await town.deploy("rare", "def handler(event, context):\n    return 1", scale={"idleSeconds": 1})
    found = await town.function("rare", lambda one: ready(one) == "ScaledToZero")
    assert found.status is not None and found.status.url == f"http://127.0.0.1:{town.port}/default/rare/"
    assert found.status.region == "local"
    await town.workers("rare", 0)
    assert (await town.call("/default/rare")).json == 1
    assert len(await town.instances("rare")) == 1
    await town.workers("rare", 0)
    await town.function("rare", lambda one: ready(one) == "ScaledToZero")
    assert (await town.call("/default/rare")).json == 1


async def test_workers_are_kept_warm_if_that_is_asked_for(town: Town) -> None:
    await town.deploy("warm", "def handler(event, context):\n    return 1", scale={"min": 2, "idleSeconds": 1})
    found = await town.function("warm", lambda one: one.status and one.status.ready_workers == 2)
    assert ready(found) == "Ready"


async def test_more_workers_come_when_more_is_asked_for_and_no_more_than_may(town: Town) -> None:
    await town.deploy("busy", WAITS, scale={"max": 2})
    replies = await asyncio.gather(*(town.call("/default/busy") for _ in range(6)))
    assert {reply.status for reply in replies} == {200}
    assert len({reply.json for reply in replies}) <= 2 and len(await town.instances("busy")) == 2


async def test_too_many_that_wait_are_told_to_come_again(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "WAITING_MAX", 1)
    await town.deploy("full", WAITS, scale={"max": 1})
    replies = await asyncio.gather(*(town.call("/default/full") for _ in range(4)))
    refused = [reply for reply in replies if reply.status == 429]
    assert len(refused) >= 2 and refused[0].headers["retry-after"] == "1"
    assert {reply.status for reply in replies} == {200, 429}


async def test_a_new_version_takes_over_under_load_and_drops_nothing(town: Town) -> None:
    await town.deploy("rolling", VERSION.format(version=1), concurrency=4, scale={"min": 1, "max": 2})
    await town.function("rolling", lambda one: ready(one) == "Ready")
    is_over = False
    replies: list[Reply] = []

    async def load() -> None:
        while not is_over:
            replies.append(await town.call("/default/rolling"))

    loads = [asyncio.create_task(load()) for _ in range(6)]
    for version in (2, 3):
        await town.deploy("rolling", VERSION.format(version=version), concurrency=4, scale={"min": 1, "max": 2})
        await town.until(partial(is_answered, replies, version))
    is_over = True
    await asyncio.gather(*loads)
    assert {reply.status for reply in replies} == {200}
    seen = [reply.json for reply in replies]
    assert seen[0] == 1 and seen[-1] == 3


def is_answered(replies: list[Reply], version: int) -> bool:
    return bool(replies) and bool(replies[-1].json == version)


async def test_a_call_of_the_old_version_comes_to_its_end(town: Town) -> None:
    await town.deploy("long", WAITS, scale={"min": 1})
    await town.function("long", lambda one: ready(one) == "Ready")
    old = asyncio.create_task(town.call("/default/long"))
    await town.written("begun")
    await town.deploy("long", "def handler(event, context):\n    return 'new'", scale={"min": 1})
    await town.until(lambda: _answers(town, "/default/long", "new"))
    assert (await old).status == 200 and (await old).json != "new"


async def _answers(town: Town, path: str, value: object) -> bool:
    return bool((await town.call(path)).json == value)


async def test_a_version_that_cannot_be_loaded_takes_nothing_away(town: Town) -> None:
    await town.deploy("kept", "def handler(event, context):\n    return 'old'", scale={"min": 1})
    await town.function("kept", lambda one: ready(one) == "Ready")
    await town.deploy("kept", "raise RuntimeError('not today')", scale={"min": 1})
    found = await town.function("kept", lambda one: ready(one) == "ImportFailed")
    condition = found.status.condition("Ready") if found.status is not None else None
    assert condition is not None and condition.message == "RuntimeError: not today (app.py:1)"
    assert (await town.call("/default/kept")).json == "old"


OLD = """
    import time
    def handler(event, context):
        time.sleep(0.3)
        return "old"
"""


async def test_the_version_before_goes_on_scaling_while_the_new_one_is_not_there_yet(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = {"max": 2, "idleSeconds": 1}
    await town.deploy("kept", OLD, scale=scale)
    assert (await town.served("/default/kept")).json == "old"
    old = (await town.function("kept", lambda one: ready(one) == "Ready")).status
    # What it requires cannot be had, so it is never there.
    new = "def handler(event, context):\n    return 'new'"
    with index() as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        await town.deploy("kept", new, requirements=["no-such-thing"], scale=scale)
        found = await town.function("kept", lambda one: ready(one) == "PackageNotFound")
    assert old is not None and found.status is not None and found.status.digest == old.digest
    replies = await asyncio.gather(*(town.call("/default/kept") for _ in range(2)))
    assert {reply.json for reply in replies} == {"old"} and len(await town.instances("kept")) == 2
    await town.workers("kept", 0)
    assert (await town.call("/default/kept")).json == "old"


async def test_the_version_before_is_started_from_nothing_when_the_new_one_cannot_be_loaded(town: Town) -> None:
    await town.deploy("kept", "def handler(event, context):\n    return 'old'", scale={"idleSeconds": 1})
    assert (await town.served("/default/kept")).json == "old"
    await town.workers("kept", 0)
    await town.deploy("kept", "raise RuntimeError('not today')", scale={"idleSeconds": 1})
    reply = await town.call("/default/kept")
    assert (reply.status, reply.json) == (200, "old")


async def test_a_function_is_not_ready_before_its_new_version_answers(town: Town) -> None:
    await town.deploy("next", "def handler(event, context):\n    return 1", scale={"min": 1})
    first = await town.function("next", lambda one: ready(one) == "Ready")
    await town.deploy("next", "def handler(event, context):\n    return 2", scale={"min": 1})
    second = await town.function("next", lambda one: one.readiness().state == "Ready")
    assert (await town.call("/default/next")).json == 2
    assert first.status is not None and second.status is not None and first.status.digest != second.status.digest


async def test_a_region_that_nobody_serves_is_said(town: Town) -> None:
    await town.deploy("far", "def handler(event, context):\n    return 1", regions=["tokyo"])
    found = await town.function("far", lambda one: ready(one) == "RegionNotServed")
    assert found.readiness().state != "Ready"
    # Nobody waits for what will not come.
    reply = await town.call("/default/far")
    assert (reply.status, reply.json["error"]) == (500, "the function cannot be loaded")
    task = await town.task(reply.json["call"])
    assert task.status is not None and "tokyo" in (task.status.message or "")


async def test_a_function_that_is_deleted_leaves_nothing(town: Town) -> None:
    await town.deploy("brief", "def handler(event, context):\n    return 1", scale={"min": 1})
    assert (await town.served("/default/brief")).json == 1
    await town.client.delete(Function, "brief")
    await town.until(lambda: _is_gone(town))
    assert not town.runners()
    assert not (await town.client.list(Task)).items


async def _is_gone(town: Town) -> bool:
    return not await town.instances("brief") and not (await town.client.list(Task)).items


async def test_a_worker_that_can_never_start_is_a_condition_and_fails_calls_at_once(town: Town) -> None:
    missing = [{"name": "VALUE", "valueFrom": {"configMapKeyRef": {"name": "there", "key": "no-such-key"}}}]
    await town.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}, "data": {}})
    await town.deploy("lacking", "def handler(event, context):\n    return 1", env=missing)
    reply = await town.call("/default/lacking")
    assert (reply.status, reply.json["error"]) == (500, "the function cannot be loaded")
    found = await town.function("lacking", lambda one: ready(one) == "ConfigurationError")
    condition = found.status.condition("Ready") if found.status is not None else None
    assert condition is not None and "no-such-key" in condition.message
