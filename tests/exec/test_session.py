"""One command and its client, whoever they are: real pipes and terminals, real processes, a plain runtime."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from rota.server.streams import Size
from tests.exec.conftest import Site
from tests.until import until_async, until_so


def open_descriptors() -> set[str]:
    return {os.readlink(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd") if _is_stream(one)}


def _is_stream(number: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").startswith(("pipe:", "/dev/pt"))
    except OSError:
        return False


async def gone(site: Site) -> None:
    """Returns when no command of this site is left, and nobody has a connection."""

    def left() -> list[object]:
        return [*site.http.connections, *(one for one in site.host.started if one.process.poll() is None)]

    await until_so(left, lambda found: not found, "no connections, no commands")


@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 3", 3), ("kill -9 $$", 137)])
async def test_the_exit_code_is_told(site: Site, script: str, code: int) -> None:
    async with site.running(script) as client:
        assert await client.code() == code


async def test_both_outputs_are_kept_apart(site: Site) -> None:
    async with site.running("echo out; echo err >&2") as client:
        assert await client.code() == 0
        assert [bytes(client.seen[1]), bytes(client.seen[2])] == [b"out\n", b"err\n"]


async def test_an_output_that_nobody_wants_goes_nowhere(site: Site) -> None:
    async with site.running("echo out; echo err >&2", stderr=False) as client:
        assert await client.code() == 0
        assert [bytes(client.seen[1]), bytes(client.seen[2])] == [b"out\n", b""]


async def test_input_is_passed_on_with_its_end(site: Site) -> None:
    async with site.running("cat; echo end") as client:
        client.send(0, b"one\n")
        client.send(0, b"two\n")
        client.close_stdin()
        assert await client.code() == 0
        assert client.seen[1] == b"one\ntwo\nend\n"


async def test_without_input_the_command_reads_nothing(site: Site) -> None:
    async with site.running("cat; echo end", stdin=False) as client:
        client.send(0, b"not for it\n")
        assert await client.code() == 0
        assert client.seen[1] == b"end\n"


async def test_input_for_a_command_that_closed_it_is_dropped(site: Site) -> None:
    async with site.running("exec <&-; echo closed; read x; sleep 0.1; echo on") as client:
        await client.until(b"closed")
        for _ in range(100):
            client.send(0, b"x" * 10_000)
        assert await client.code() == 0
        assert client.seen[1] == b"closed\non\n"


async def test_much_output_arrives_whole(site: Site) -> None:
    async with site.running("head -c 10485760 /dev/urandom | tee /dev/stderr") as client:
        assert await client.code() == 0
        assert len(client.seen[1]) == 10 * 1024 * 1024
        assert hashlib.sha256(client.seen[1]).digest() == hashlib.sha256(client.seen[2]).digest()


async def test_much_input_arrives_whole(site: Site) -> None:
    data = os.urandom(1024 * 1024)
    async with site.running("sha256sum") as client:
        for _ in range(10):
            client.send(0, data)
            await client.websocket.drain()
        client.close_stdin()
        assert await client.code() == 0
        assert client.seen[1].split()[0].decode() == hashlib.sha256(data * 10).hexdigest()


async def test_a_command_waits_for_a_client_that_does_not_read(site: Site, tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"i=0; while [ $i -lt 500 ]; do head -c 65536 /dev/zero; i=$((i+1)); echo $i > {count}; done"
    async with site.running(script) as client:
        await client.until(b"\0")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(site.host.started[0].wait(), 0.5)
        assert int(count.read_text()) < 200
        assert await client.code() == 0
        assert len(client.seen[1]) == 500 * 65536


async def test_output_of_what_is_left_behind_does_not_keep_the_client_waiting(site: Site) -> None:
    async with site.running("(sleep 1000; echo late) & echo early") as client:
        assert await client.code() == 0
        assert client.seen[1] == b"early\n"


async def test_one_that_goes_on_writing_after_the_end_is_not_heard_for_ever(site: Site) -> None:
    async with site.running("yes & echo early") as client:
        assert await client.code() == 0
        assert b"early" in client.seen[1]


# The end of the client.


async def test_a_command_does_not_outlive_its_client(site: Site) -> None:
    async with site.running("echo up; exec sleep 1000") as client:
        await client.until(b"up")
        client.websocket.abort()
        await gone(site)
    assert site.host.started[0].process.returncode == -9


async def test_a_command_does_not_outlive_a_client_that_closes(site: Site) -> None:
    async with site.running("echo up; exec sleep 1000") as client:
        await client.until(b"up")
        await client.websocket.close()
        await gone(site)


async def test_a_command_that_does_not_read_does_not_outlive_its_client(site: Site) -> None:
    async with site.running("echo up; exec sleep 1000") as client:
        await client.until(b"up")
        await client.flood()
        client.websocket.abort()
        await gone(site)


async def test_a_command_does_not_outlive_the_server(site: Site) -> None:
    async with site.running("echo up; exec sleep 1000") as client:
        await client.until(b"up")
        await site.http.close()
        await gone(site)


async def test_a_client_that_leaves_while_the_command_starts_leaves_no_command(site: Site) -> None:
    site.host.hold = asyncio.Event()
    async with site.running("exec sleep 1000") as client:
        await until_async(lambda: site.host.started, "no command has started", poll_seconds=0)
        client.websocket.abort()
        site.host.hold.set()
        await gone(site)


async def test_a_server_that_stops_while_the_command_starts_leaves_no_command(site: Site) -> None:
    site.host.hold = asyncio.Event()
    async with site.running("exec sleep 1000"):
        await until_async(lambda: site.host.started, "no command has started", poll_seconds=0)
        stopping = asyncio.create_task(site.http.close(grace_seconds=0))
        await asyncio.sleep(0)
        site.host.hold.set()
        await stopping
        await gone(site)


async def test_nothing_stays_open_after_commands(site: Site) -> None:
    before = open_descriptors()
    for tty in (False, True):
        async with site.running("echo hi", tty=tty) as client:
            await client.end()
        async with site.running("sleep 1000", tty=tty) as client:
            client.websocket.abort()
            await gone(site)
    await gone(site)
    assert open_descriptors() == before


async def test_why_a_command_cannot_start_is_told(site: Site) -> None:
    site.host.refuses = "box-0 is not running"
    async with site.running("true") as client:
        status = await client.end()
    assert (status["status"], status["code"]) == ("Failure", 500)
    assert "box-0 is not running" in status["message"]


# Terminals.


async def test_a_terminal_has_the_size_that_was_asked_for(site: Site) -> None:
    async with site.running("stty size; echo $TERM", tty=True, size=Size(91, 23), term="vt100") as client:
        assert await client.code() == 0
        assert client.seen[1].split() == [b"23", b"91", b"vt100"]


async def test_a_command_sees_the_terminal_being_resized(site: Site) -> None:
    script = "trap 'stty size; exit 5' WINCH; echo up; while :; do sleep 0.01; done"
    async with site.running(script, tty=True) as client:
        await client.until(b"up")
        client.send(4, b"no size")
        client.send(4, b'{"Width":100,"Height":40}')
        assert await client.code() == 5
        assert client.seen[1].split() == [b"up", b"40", b"100"]


async def test_keys_reach_the_command_as_its_terminal_has_it(site: Site) -> None:
    async with site.running(
        "trap 'echo caught; exit 6' INT; echo up; while :; do sleep 0.01; done", tty=True
    ) as client:
        await client.until(b"up")
        client.send(0, b"\x03")
        assert await client.code() == 6
        assert b"caught" in client.seen[1]


async def test_the_end_of_input_in_a_terminal_is_typed(site: Site) -> None:
    async with site.running("cat > /dev/null; echo end", tty=True) as client:
        client.close_stdin()
        assert await client.code() == 0
        assert b"end" in client.seen[1]


async def test_much_output_through_a_terminal_arrives_whole(site: Site) -> None:
    async with site.running("stty -opost; head -c 2097152 /dev/zero | tr '\\0' x", tty=True) as client:
        assert await client.code() == 0
        assert client.seen[1] == b"x" * 2097152


async def test_what_is_no_message_of_the_protocol_is_ignored(site: Site) -> None:
    async with site.running("cat") as client:
        client.websocket.send("text")
        client.websocket.send(b"")
        client.websocket.send(b"\xff")
        client.websocket.send(b"\xff\x01")
        client.send(17, b"?")
        client.send(0, b"fine")
        client.close_stdin()
        assert await client.code() == 0
        assert client.seen[1] == b"fine"
