"""Claims that wait while their server is killed, or stopped, and started again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota.client import Client
from rota.client.claims import context, gateway
from tests.claims.conftest import SECONDS_MAX, Site
from tests.server.live import ROTA, die_with_parent
from tests.until import until_async, until_so

HOLDERS = ("one", "two")
"""As many as there are instances."""


async def hold_all(site: Site) -> None:
    client = site.client()
    try:
        for name in HOLDERS:
            async with client.claim("boxes", name=name, wait_seconds=SECONDS_MAX) as box:
                box.keep()
    finally:
        await client.close()


@contextmanager
def waiting(site: Site) -> Iterator[subprocess.Popen[str]]:
    """`rota claim`, which has to wait."""
    words = ["claim", "--home", str(site.live.home), "boxes", "--wait", "10m", "--", "echo", "got it"]
    process = subprocess.Popen(
        [ROTA, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def until_waiting(site: Site) -> str:
    """The claim that waits."""
    found: list[str] = await until_async(lambda: site.claims("Waiting"), "no claim waits", seconds=SECONDS_MAX)
    return found[0]


async def release_all(client: Client) -> None:
    for name in HOLDERS:
        async with client.claim("boxes", name=name):
            pass  # It is given back at the end.


async def test_a_claim_whose_client_is_gone_takes_nothing_from_the_others(own: Site) -> None:
    await hold_all(own)
    with waiting(own) as gone:
        abandoned = await until_waiting(own)
        own.live.kill()
    assert gone.returncode == -signal.SIGKILL
    own.live.start()
    client = own.client()
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await release_all(client)
            both = [client.claim("boxes", wait_seconds=SECONDS_MAX) for _ in range(2)]
            async with both[0] as first, both[1] as second:
                assert {first.instance, second.instance} == {"boxes-0", "boxes-1"}
                assert await own.claims() == sorted((first.name, second.name))
        assert abandoned not in await own.claims("Released")
    finally:
        await client.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_client_that_is_still_there_gets_what_it_waits_for(own: Site, how: signal.Signals) -> None:
    await hold_all(own)
    with waiting(own) as alive:
        name = await until_waiting(own)
        own.live.kill(how)
        own.live.start()
        client = own.client()
        try:
            if how == signal.SIGKILL:
                # It is at its place again, and waits.
                assert name in await own.claims("Waiting")
                await release_all(client)
        finally:
            await client.close()
        out, _ = await asyncio.to_thread(alive.communicate, timeout=SECONDS_MAX)
    assert (alive.returncode, out) == (0, "got it\n")


async def test_a_claim_that_the_server_was_away_for_is_given_back_when_it_is_there_again(own: Site) -> None:
    words = ["claim", "--home", str(own.live.home), "boxes", "--wait", "1m", "--", "sh", "-c", "echo up; sleep 1000"]
    with subprocess.Popen(
        [ROTA, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    ) as claiming:
        assert claiming.stdout is not None and claiming.stdout.readline() == "up\n"
        own.live.kill()
        own.live.start()
        await asyncio.to_thread(claiming.wait, SECONDS_MAX)
    assert await own.claims() == []


async def test_a_command_that_was_killed_holds_its_instance_no_longer_than_its_lease(own: Site) -> None:
    words = ["claim", "--home", str(own.live.home), "boxes", "--lease", "2s", "--", "sh", "-c", "echo up; sleep 1000"]
    with subprocess.Popen(
        [ROTA, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    ) as killed:
        assert killed.stdout is not None and killed.stdout.readline() == "up\n"
        killed.kill()

    async def look() -> tuple[list[str], list[str]]:
        return await own.claims(), await own.claims("Expired")

    await until_so(look, lambda found: not found[0] and found[1], "no bound claim, and one that has expired")


def test_the_server_is_waited_for_as_long_to_give_back_as_for_anything_else() -> None:
    assert context.RELEASE_SECONDS_MAX == gateway.AWAY_SECONDS_MAX
