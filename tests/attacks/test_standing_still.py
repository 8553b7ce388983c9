"""By making something stand still that others wait for."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from rota.runtime.runner import box as boxes
from rota.runtime.runner import interpreters, stopping
from rota.runtime.runner.box import BoxLost
from rota.runtime.runner.jobs import Job, Outcome
from tests.runner.boxes import Bench, in_a_sandbox

SECONDS_MAX = 30
LARGE = "x" * 100_000


async def ended(bench: Bench, job: Job) -> Outcome:
    """Return the outcome of a job that stops its agent, the first process of the box unless the server is root.

    Nothing in the box stops that one, and the box stays; else it is lost.
    """
    try:
        return await bench.do(job)
    except BoxLost as lost:
        why = str(lost)
    assert "was stopped" in why
    bench.box = bench.new_box()
    await bench.box.start()
    outcome = bench.journal.outcome(job.id)
    assert outcome is not None
    return outcome


@in_a_sandbox
async def test_to_outlive_a_timeout_by_stopping_the_agent(bench: Bench) -> None:
    stopping.GRACE_SECONDS = 0.1
    job = bench.job("sh", "-c", "kill -STOP $PPID; exec sleep 1000", timeout_seconds=0.5)
    assert (await ended(bench, job)).reason == "Timeout"
    assert "sleep" not in str(bench.below())


STOPS_ITS_AGENT = """
import os, signal
def stop():
    os.kill(os.getppid(), signal.SIGSTOP)
    return "well"
"""


@in_a_sandbox
async def test_to_leave_an_agent_that_stands_still_for_the_next_task(bench: Bench) -> None:
    bench.write("stops.py", STOPS_ITS_AGENT)
    outcome = await ended(bench, bench.job("stops:stop", kind="python"))
    assert (outcome.reason, outcome.result) == ("Succeeded", '"well"')
    async with asyncio.timeout(SECONDS_MAX):
        assert (await bench.sh("true")).reason == "Succeeded"


def stop_the_agent(bench: Bench) -> None:
    """As somebody does who entered the box."""
    processes = bench.box._processes
    assert processes is not None and processes._agent is not None
    os.kill(processes._agent.pid, signal.SIGSTOP)


@in_a_sandbox
async def test_to_have_a_task_wait_for_ever_for_an_agent_that_stands_still(bench: Bench) -> None:
    boxes.ANSWER_SECONDS_MAX = 0.5
    stop_the_agent(bench)
    job = bench.job("sh", "-c", "true")
    async with asyncio.timeout(SECONDS_MAX):
        with pytest.raises(BoxLost):
            await bench.do(job)
    outcome = bench.journal.outcome(job.id)
    assert outcome is not None and outcome.reason == "WorkerLost"


@in_a_sandbox
async def test_to_have_a_task_wait_for_ever_for_an_agent_that_does_not_read(bench: Bench) -> None:
    boxes.ANSWER_SECONDS_MAX = 0.5
    stop_the_agent(bench)
    job = bench.job("sh", "-c", "true", *[LARGE] * 20, timeout_seconds=0.1)
    async with asyncio.timeout(SECONDS_MAX):
        with pytest.raises(BoxLost):
            await bench.do(job)
    outcome = bench.journal.outcome(job.id)
    assert outcome is not None and outcome.reason == "Timeout"


@in_a_sandbox
async def test_to_have_what_was_killed_go_on_by_stopping_the_agent(bench: Bench) -> None:
    """As a function does whose call has taken too long."""
    boxes.ANSWER_SECONDS_MAX = 5
    nothing = os.open(os.devnull, os.O_RDWR)
    id_, command = await bench.box.run(["sleep", "1000"], env={}, cwd="/", streams=(nothing, nothing, nothing))
    os.close(nothing)
    await command.started
    boxes.ANSWER_SECONDS_MAX = 0.5
    stop_the_agent(bench)
    await bench.box.signal(id_, signal.SIGKILL)
    async with asyncio.timeout(SECONDS_MAX):
        await bench.box.lost.wait()


DEAF = """
import gc, threading
def deafen():
    for one in gc.get_objects():
        if type(one).__name__ == "Interpreter":
            # It goes on, and neither reads nor says that it is worn.
            type(one)._worn = lambda self: ""
            type(one)._receive = lambda self: threading.Event().wait()
    return "well"
"""


@in_a_sandbox
async def test_to_have_the_next_call_wait_for_ever_by_an_interpreter_that_does_not_read(bench: Bench) -> None:
    interpreters.SEND_SECONDS_MAX = 0.5
    bench.write("deaf.py", DEAF)
    assert (await bench.call("deaf:deafen")).reason == "Succeeded"
    async with asyncio.timeout(SECONDS_MAX):
        outcome = await bench.call("builtins:len", f'"{LARGE * 20}"')
    assert (outcome.reason, outcome.result) == ("Succeeded", str(20 * len(LARGE)))
