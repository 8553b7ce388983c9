"""Calls go on while versions change and whatever answers them is killed: each is answered, and none twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter

from rota.api import Task
from rota.cli.gateway import backend_of
from rota.control.functions.call_tasks import FUNCTION_LABEL
from tests.functions.town import Reply, Town

ROUNDS = 6
SEED = int(os.environ.get("ROTA_CHAOS_SEED", "7"))
CALLERS = 8
ANSWERED = {200, 502}
"""Well, or with the word that its worker was lost."""
CODE = """
    import time
    VERSION = {version}
    def handler(event, context):
        print(event["path"])
        time.sleep(0.03)
        return event["path"]
"""


async def test_every_call_has_one_answer_and_one_record_whatever_is_killed(town: Town) -> None:
    chance = random.Random(SEED)
    scale = {"min": 1, "max": 3, "idleSeconds": 1}
    await town.deploy("storm", CODE.format(version=0), concurrency=3, scale=scale)
    await town.served("/default/storm/first")
    is_over = False
    replies: dict[str, Reply] = {}

    async def caller(number: int) -> None:
        count = 0
        while not is_over:
            path = f"/{number}-{count}"
            replies[path] = await town.call(f"/default/storm{path}")
            count += 1

    callers = [asyncio.create_task(caller(number)) for number in range(CALLERS)]
    for version in range(1, ROUNDS):
        await more(town, replies)
        what = chance.choice(["host", "runner", "version", "version"])
        victims = town.runners() if what == "runner" else town.processes("rota handler")
        if what == "version":
            await town.deploy("storm", CODE.format(version=version), concurrency=3, scale=scale)
        elif victims:
            os.kill(chance.choice(victims), signal.SIGKILL)
    await more(town, replies)
    is_over = True
    await asyncio.gather(*callers)
    found = Counter(reply.status for reply in replies.values())
    assert found.keys() <= ANSWERED and found[200] > found[502], found
    assert all(reply.json == path for path, reply in replies.items() if reply.status == 200)
    tasks = {one.metadata.name: one for one in (await town.client.list(Task, labels=f"{FUNCTION_LABEL}=storm")).items}
    for path, reply in replies.items():
        status = tasks[reply.call].status
        assert status is not None and (status.phase == "Succeeded") == (reply.status == 200)
        # What is in the log of a call is its own, and there once.
        assert town.log(reply.call) in ("", f"{path}\n") and (reply.status != 200 or town.log(reply.call))


async def more(town: Town, replies: dict[str, Reply]) -> None:
    """Returns when each caller has had some more answers."""
    enough = len(replies) + 2 * CALLERS
    await town.until(lambda: len(replies) > enough)


async def test_calls_are_counted(town: Town) -> None:
    await town.deploy("counted", "def handler(event, context):\n    return 1 / int(event['query']['by'])")
    for by in (1, 0):
        await town.call(f"/default/counted?by={by}")
    text = (await backend_of(town.client).raw("GET", "/v1/metrics")).body.decode()
    for outcome in ("Succeeded", "Failed"):
        assert f'rota_function_calls_total{{namespace="default",function="counted",outcome="{outcome}"}} 1' in text
    assert 'rota_function_workers{namespace="default",function="counted"} 1' in text
