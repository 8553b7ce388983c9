"""Commands beside a child."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import termios
from contextlib import closing

import pytest

from rota.runtime.keeper.client import Keeper, KeeperError, KeeperExecution, KeeperGone
from tests.runtime.homes import Home, told


def read_all(descriptor: int) -> str:
    """To the end, which a terminal says with an error."""
    found = b""
    try:
        while data := os.read(descriptor, 65536):
            found += data
    except OSError:
        pass
    os.close(descriptor)
    return found.decode()


async def run(home: Home, keeper: Keeper, script: str) -> tuple[KeeperExecution, str]:
    """Run a command to its end. Returns it with its output."""
    read, write = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    env = {"MARK": home.mark}
    execution = await keeper.exec("a", ["sh", "-c", script], env=env, cwd="/", streams=(null, write, write))
    os.close(write)
    os.close(null)
    return execution, await asyncio.to_thread(read_all, read)


async def test_a_command_runs_on_the_streams_it_was_given(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "a", "exec sleep 1000")
        in_read, in_write = os.pipe()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        streams = (in_read, out_write, err_write)
        script = "read line; echo got $line; echo bad >&2; exit 5"
        execution = await keeper.exec("a", ["sh", "-c", script], env={}, cwd="/", streams=streams)
        for descriptor in streams:
            os.close(descriptor)
        os.write(in_write, b"this\n")
        os.close(in_write)
        assert await asyncio.to_thread(read_all, out_read) == "got this\n"
        assert await asyncio.to_thread(read_all, err_read) == "bad\n"
        ended = await execution.wait()
        assert (ended.code, ended.signal) == (5, None)
        assert [record.is_running for record in await keeper.list()] == [True]


async def test_with_a_terminal_the_command_has_it_as_its_own(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "a", "exec sleep 1000")
        near, far = os.openpty()
        fcntl.ioctl(near, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
        script = "test -t 0 && stty size; : < /dev/tty && echo own; kill -INT $$"
        execution = await keeper.exec("a", ["sh", "-c", script], env={}, cwd="/", streams=(far, far, far), tty=True)
        os.close(far)
        assert (await asyncio.to_thread(read_all, near)).split() == ["33", "77", "own"]
        assert (await execution.wait()).signal == signal.SIGINT


async def test_control_c_in_the_terminal_interrupts_the_command(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "exec sleep 1000")
        near, far = os.openpty()
        fifo = home.fifo()
        script = f"echo up > {fifo}; exec sleep 1000"
        execution = await keeper.exec("a", ["sh", "-c", script], env={}, cwd="/", streams=(far, far, far), tty=True)
        os.close(far)
        await told(fifo)
        os.write(near, b"\x03")
        assert (await execution.wait()).signal == signal.SIGINT
        os.close(near)


async def test_a_command_is_in_the_tree_of_the_child(any_home: Home) -> None:
    """In its cgroup; and it ends when the child does."""
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "a", "cat /proc/self/cgroup; exec sleep 1000")
        read, write = os.pipe()
        script = "cat /proc/self/cgroup; exec sleep 1000"
        streams = (read, write, write)
        execution = await keeper.exec("a", ["sh", "-c", script], env={"MARK": any_home.mark}, cwd="/", streams=streams)
        os.close(write)
        await keeper.kill("a")
        assert any_home.processes() == []
        assert (await execution.wait()).signal == signal.SIGKILL
        where = await asyncio.to_thread(read_all, read)
    assert any_home.log("a").read_text().startswith(where)


async def test_a_command_can_be_signalled(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "a", "exec sleep 1000")
        fifo = any_home.fifo()
        null = os.open(os.devnull, os.O_RDWR)
        script = f"trap 'exit 8' TERM; echo up > {fifo}; while :; do sleep 1000 & wait; done"
        execution = await keeper.exec("a", ["sh", "-c", script], env={}, cwd="/", streams=(null, null, null))
        os.close(null)
        await told(fifo)
        await execution.signal(signal.SIGTERM)
        assert (await execution.wait()).code == 8


async def test_a_command_ends_with_the_connection_that_asked_for_it(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        record = await any_home.start(keeper, "a", "exec sleep 1000")
        read, write = os.pipe()
        async with any_home.keeper() as other:
            null = os.open(os.devnull, os.O_RDWR)
            execution = await other.exec("a", ["sleep", "1000"], env={}, cwd="/", streams=(null, write, write))
            os.close(null)
            os.close(write)
        with pytest.raises(KeeperGone):
            await execution.wait()
        assert await asyncio.to_thread(read_all, read) == ""  # ends with the last that could write
        assert [one.pid for one in await keeper.list() if one.is_running] == [record.pid]


async def test_a_command_that_cannot_start_says_why(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "a", "exec sleep 1000")
        with closing(open(os.devnull, "r+b")) as null:
            streams = (null.fileno(),) * 3
            with pytest.raises(KeeperError, match="no-such: No such file"):
                await keeper.exec("a", ["no-such"], env={}, cwd="/", streams=streams)
            with pytest.raises(KeeperError, match="b does not run"):
                await keeper.exec("b", ["true"], env={}, cwd="/", streams=streams)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another")
async def test_a_command_runs_as_the_user_of_the_child(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "a", "exec sleep 1000", uid=4321, gid=1234)
        execution, said = await run(any_home, keeper, "id -u; id -g; grep -E 'CapEff|NoNew' /proc/self/status")
        assert said.split() == ["4321", "1234", "CapEff:", "0" * 16, "NoNewPrivs:", "1"]
        assert (await execution.wait()).code == 0
