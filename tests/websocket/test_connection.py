"""A WebSocket between a real client and a real server: messages, back-pressure, signs of life, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

import pytest

from rota.client.websocket import Closed, Heartbeat, WebSocket, connection
from rota.server import upgrade as server_upgrade
from tests.until import until_so
from tests.websocket.conftest import Site

HASTY = Heartbeat(0.02, 0.2)
SECONDS_MAX = 20.0
"""Far more than it takes, on a machine that is busy with other things."""


async def closed(websocket: WebSocket) -> Closed:
    while True:
        try:
            await websocket.receive()
        except Closed as end:
            return end


async def flood(websocket: WebSocket, piece: bytes) -> int:
    """Send until nothing more is taken. Returns how much was sent."""
    sent = 0
    # Without back-pressure the loop below would never give way to its time limit.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            while True:
                websocket.send(piece)
                sent += 1
                await websocket.drain()
    return sent


def holding(site: Site, **more: object) -> asyncio.Future[WebSocket]:
    """The server's end, which does nothing by itself until its client is gone."""
    got: asyncio.Future[WebSocket] = asyncio.get_running_loop().create_future()

    async def serve(websocket: WebSocket) -> None:
        got.set_result(websocket)
        await websocket.lost

    site.serves(serve, **more)
    return got


async def test_messages_go_both_ways_in_order(site: Site) -> None:
    websocket = await site.connect()
    sent: list[str | bytes] = ["", b"", "grüße", b"\x00\xff", "x" * 200, b"y" * 70_000, "z" * 3_000_000]
    for message in sent:
        websocket.send(message)
    assert [await websocket.receive() for _ in sent] == sent
    await websocket.close()


async def test_iteration_ends_when_the_other_end_closes_in_good_order(site: Site) -> None:
    async def serve(websocket: WebSocket) -> None:
        for word in ("one", "two", "three"):
            websocket.send(word)

    site.serves(serve)
    websocket = await site.connect()
    assert [message async for message in websocket] == ["one", "two", "three"]
    await websocket.lost


async def test_iteration_raises_at_any_other_end(site: Site) -> None:
    got = holding(site)
    websocket = await site.connect()
    (await got).start_closing(4000, "enough")
    with pytest.raises(Closed, match="code 4000: enough"):
        async for _ in websocket:
            pass


async def test_what_was_sent_before_the_close_is_received_before_it_is_told(site: Site) -> None:
    got = holding(site)
    websocket = await site.connect()
    websocket.send("the last word")
    await websocket.close(4001, "bye")
    end = await got
    assert await end.receive() == "the last word"
    told = await closed(end)
    assert (told.code, told.reason) == (4001, "bye")


async def test_after_the_end_nothing_can_be_sent(site: Site) -> None:
    websocket = await site.connect()
    await websocket.close()
    with pytest.raises(Closed):
        websocket.send("too late")
    with pytest.raises(Closed):
        await websocket.drain()
    await websocket.close()


async def test_an_end_that_is_cut_is_seen_as_such(site: Site) -> None:
    got = holding(site)
    websocket = await site.connect()
    (await got).abort()
    assert (await closed(websocket)).code == 1006


async def test_who_does_not_receive_makes_the_other_end_wait(site: Site) -> None:
    got = holding(site)
    websocket = await site.connect()
    end = await got
    piece = b"x" * 65536
    sent = await flood(websocket, piece)
    assert 0 < sent * len(piece) < 8 * 1024 * 1024
    for _ in range(sent):
        assert await end.receive() == piece
    await websocket.drain()
    await websocket.close()


async def test_many_small_messages_that_nobody_receives_make_it_wait_as_well(site: Site) -> None:
    got = holding(site)
    websocket = await site.connect()
    end = await got
    sent = await flood(websocket, b"")
    for _ in range(sent):
        assert await end.receive() == b""
    websocket.abort()


async def test_an_end_for_which_too_much_waits_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "UNSENT_BYTES_MAX", 1024 * 1024)
    holding(site)
    websocket = await site.connect()

    def shout() -> None:
        for _ in range(1000):
            websocket.send(b"x" * 65536)

    with pytest.raises(Closed, match="not read"):
        shout()
    await websocket.lost


async def test_several_may_wait_for_the_other_end(site: Site) -> None:
    got = holding(site)
    websocket = await site.connect()
    end = await got
    for _ in range(100):
        websocket.send(b"x" * 65536)
    first, second = asyncio.create_task(websocket.drain()), asyncio.create_task(websocket.drain())
    await asyncio.sleep(0)
    first.cancel()
    for _ in range(100):
        await end.receive()
    await second
    assert first.cancelled()
    websocket.abort()


# Signs of life.


async def test_a_silent_but_living_end_is_kept(site: Site) -> None:
    websocket = await site.connect(heartbeat=HASTY)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3 * HASTY.silence_seconds_max):
            await websocket.receive()
    websocket.send("still there")
    assert await websocket.receive() == "still there"
    await websocket.close()


async def test_a_process_that_was_stopped_for_long_does_not_take_the_other_end_for_dead(site: Site) -> None:
    websocket = await site.connect(heartbeat=HASTY)
    time.sleep(3 * HASTY.silence_seconds_max)  # The whole loop, both ends, as when a laptop sleeps.
    websocket.send("still there")
    assert await websocket.receive() == "still there"
    await websocket.close()


async def test_a_dead_end_is_noticed_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_upgrade, "HEARTBEAT_LOCAL", HASTY)
    got = holding(site)
    reader, writer = await site.raw()
    writer.write(
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    end = await got
    began = asyncio.get_running_loop().time()
    told = await closed(end)
    assert told.code == 1006 and "no sign of life" in told.reason
    assert asyncio.get_running_loop().time() - began < SECONDS_MAX
    assert b"\x89\x00" in await reader.read(-1)
    writer.close()


async def test_an_end_that_does_not_read_for_long_is_not_taken_for_dead(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_upgrade, "HEARTBEAT_LOCAL", HASTY)
    got = holding(site)
    websocket = await site.connect(heartbeat=HASTY)
    end = await got
    for _ in range(100):
        end.send(b"x" * 65536)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3 * HASTY.silence_seconds_max):
            await end.drain()
    for _ in range(100):
        await websocket.receive()
    await end.drain()
    assert end.closed is None and websocket.closed is None
    await websocket.close()


async def test_a_ping_is_answered_with_what_it_says(site: Site) -> None:
    reader, writer = await site.raw()
    writer.write(
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    writer.write(b"\x89\x82\0\0\0\0hi")
    await reader.readuntil(b"\r\n\r\n")
    assert await reader.readexactly(4) == b"\x8a\x02hi"
    writer.close()


# Violations.


async def test_who_breaks_the_rules_is_told_why(site: Site) -> None:
    reader, writer = await site.raw()
    writer.write(
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    writer.write(b"\x82\x05naked" + b"and more" * 10_000)
    await reader.readuntil(b"\r\n\r\n")
    said = await reader.read(-1)
    assert said[:4] == b"\x88" + bytes([len(said) - 2]) + (1002).to_bytes(2, "big")
    writer.close()


async def test_a_message_that_is_too_large_ends_it(site: Site) -> None:
    got = holding(site, message_bytes_max=1000)
    websocket = await site.connect()
    websocket.send(b"x" * 100_000)
    assert (await closed(websocket)).code == 1009
    assert (await closed(await got)).code == 1009


# The server's part.


async def test_a_failure_of_the_server_is_told_and_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def serve(websocket: WebSocket) -> None:
        raise RuntimeError("oops")

    site.serves(serve)
    with caplog.at_level(logging.CRITICAL, "rota.server.upgrade"):
        websocket = await site.connect()
        told = await closed(websocket)
    assert told.code == 1011 and "oops" not in told.reason


async def test_it_is_told_once_that_it_began_and_ended(site: Site) -> None:
    seen: list[str] = []
    holding(site, on_start=lambda end: seen.append("began"), on_end=lambda: seen.append("ended"))
    websocket = await site.connect()
    assert seen == ["began"]
    await websocket.close()
    await until_so(lambda: site.http.connections, lambda there: not there, "no connections", poll_seconds=0)
    assert seen == ["began", "ended"]


async def test_it_can_be_ended_from_outside(site: Site) -> None:
    ends: list[object] = []
    holding(site, on_start=ends.append)
    websocket = await site.connect()
    (end,) = ends
    assert callable(end)
    end()
    assert (await closed(websocket)).code == 1008


async def test_it_is_ended_when_its_time_is_over(site: Site) -> None:
    holding(site, seconds_max=0.01)
    websocket = await site.connect()
    assert (await closed(websocket)).code == 1008


async def test_a_task_that_does_not_notice_the_end_is_cancelled(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_upgrade, "SERVE_END_SECONDS_MAX", 0.01)
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(websocket: WebSocket) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set_result(None)

    site.serves(serve)
    websocket = await site.connect()
    websocket.abort()
    await cancelled


async def test_a_server_that_stops_says_so(site: Site) -> None:
    holding(site)
    websocket = await site.connect()
    stopping = asyncio.create_task(site.http.close())
    told = await closed(websocket)
    assert (told.code, told.reason) == (1001, "the server stops")
    await stopping
    assert not site.http.connections


async def test_a_server_that_stops_waits_for_what_its_tasks_clear_up(site: Site) -> None:
    cleared: list[str] = []

    async def serve(websocket: WebSocket) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleared.append("all")

    site.serves(serve)
    await site.connect()
    await site.http.close(grace_seconds=0)
    assert cleared == ["all"]


async def test_the_time_limits_of_requests_do_not_apply_to_it(site: Site) -> None:
    websocket = await site.connect()
    for held in site.http.connections:
        held.check_time(asyncio.get_running_loop().time() + 1e6, 1.0)
    websocket.send("still there")
    assert await websocket.receive() == "still there"
    await websocket.close()
