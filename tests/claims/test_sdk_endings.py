"""However a block ends, nothing is held afterwards: cancelled at any moment, interrupted, with the server killed."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota import ClaimLost, Client
from rota.client.failures import ConnectionCut
from tests.claims.conftest import SECONDS_MAX, Site
from tests.server.live import die_with_parent
from tests.until import until_async, until_so

CANCELS = 200
LANES = 4
"""More than there are instances: some wait while they are cancelled."""


async def use(client: Client, folder: Path) -> None:
    async with client.claim("boxes", wait_seconds=20) as box:
        await box.exec("cat; echo hi", stdin="some")
        await box.files.write_text("notes", "mine")
        await box.files.upload(folder, "there")
        await box.files.download("there", folder / "back")


async def cancel_at_random(client: Client, folder: Path, chance: random.Random) -> None:
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_text("x")
    for _ in range(CANCELS // LANES):
        task = asyncio.ensure_future(use(client, folder))
        await asyncio.sleep(chance.choice((0.0, chance.uniform(0, 0.02), chance.uniform(0, 0.2))))
        for _ in range(chance.randrange(20)):
            await asyncio.sleep(0)
        task.cancel()
        if chance.random() < 0.3:
            await asyncio.sleep(chance.uniform(0, 0.005))
            task.cancel()
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() or task.exception() is None, task.exception()


async def test_cancelled_at_any_moment_nothing_is_held(client: Client, shared: Site, tmp_path: Path) -> None:
    chance = random.Random(7)
    await asyncio.gather(*(cancel_at_random(client, tmp_path / str(lane), chance) for lane in range(LANES)))
    assert await shared.claims() == [] and await shared.claims("Waiting") == []
    await shared.until_free(client)
    assert not [one for one in asyncio.all_tasks() if "_renew_on" in repr(one)]


async def test_one_that_waits_leaves_the_queue_when_it_is_cancelled(client: Client, shared: Site) -> None:
    waiting = asyncio.ensure_future(use_of_none(client))
    async with asyncio.timeout(SECONDS_MAX):
        await until_async(lambda: shared.claims("Waiting"), "no claim waits")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await until_so(lambda: shared.claims("Waiting"), lambda names: not names, "no claim that waits")


async def use_of_none(client: Client) -> None:
    async with client.claim("none", wait_seconds=600):
        raise AssertionError("there is none")


async def test_a_server_that_starts_again_is_waited_for(own: Site) -> None:
    client = own.client()
    try:
        async with client.claim("boxes", wait_seconds=20) as box:
            await box.files.write_text("notes", "before")
            running = asyncio.ensure_future(box.exec("sleep 1000"))
            await box.exec("true")
            own.live.kill(signal.SIGKILL)
            with pytest.raises(ConnectionCut):
                await running
            # Asked for while nobody is there.
            reading = asyncio.ensure_future(box.files.read_text("notes"))
            asking = asyncio.ensure_future(box.exec("echo after"))
            await asyncio.to_thread(own.live.start)
            assert await reading == "before"
            assert (await asking).stdout == "after\n"
        assert await own.claims() == []
    finally:
        await client.close()


async def test_one_that_waits_goes_on_waiting_when_the_server_starts_again(own: Site) -> None:
    client = own.client()
    try:
        async with client.claim("boxes", wait_seconds=20) as one, client.claim("boxes", wait_seconds=20):
            third = client.claim("boxes", wait_seconds=60)
            entering = asyncio.ensure_future(third.__aenter__())
            await until_async(lambda: own.claims("Waiting"), "no claim waits")
            own.live.kill(signal.SIGKILL)
            await asyncio.to_thread(own.live.start)
            assert one.instance
        async with asyncio.timeout(SECONDS_MAX):
            await entering
        await third.__aexit__(None, None, None)
        assert await own.claims() == [] and await own.claims("Waiting") == []
    finally:
        await client.close()


async def test_a_server_that_is_gone_does_not_hold_the_end_up_for_ever(own: Site) -> None:
    client = own.client()
    try:
        async with asyncio.timeout(SECONDS_MAX), client.claim("boxes", lease_seconds=1, wait_seconds=20) as box:
            own.live.kill(signal.SIGKILL)
            with pytest.raises((ClaimLost, OSError)):
                await box.exec("true")
    finally:
        await client.close()


INTERRUPTED = """
import sys, rota.sync
with rota.sync.Client.connect(home=sys.argv[1]).claim("boxes", wait_seconds=20) as box:
    print(box.name, flush=True)
    box.exec("sleep 1000")
"""


async def test_an_interrupt_of_a_program_that_waits_gives_it_back(shared: Site) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(shared.live.home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert program.stdout is not None
    name = (await asyncio.to_thread(program.stdout.readline)).strip()
    program.send_signal(signal.SIGINT)
    _, said = await asyncio.to_thread(program.communicate, None, SECONDS_MAX)
    assert "KeyboardInterrupt" in said and program.returncode != 0
    assert name in await shared.claims("Released")
