"""A tree ends as a whole, however it is held."""

from __future__ import annotations

import asyncio
import os
import signal

from tests.runtime.homes import DAEMON, Home, exit_of, gone, told


async def test_stopping_ends_daemonised_grandchildren(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        fifo = any_home.fifo()
        await any_home.start(keeper, "a", f"({DAEMON.format(fifo=fifo)}) ; exec sleep 1000")
        await told(fifo)
        await any_home.until_alive(2)
        record = await keeper.stop("a", 20)
        assert any_home.processes() == []
        assert record.exit and record.exit.signal == signal.SIGTERM


async def test_what_a_program_leaves_behind_ends_with_it(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        fifo = any_home.fifo()
        await any_home.start(keeper, "a", f"({DAEMON.format(fifo=fifo)}) ; read line < {fifo}; exit 4")
        record = await exit_of(keeper, "a")
        assert record.exit and record.exit.code == 4
        assert any_home.processes() == []


async def test_what_ignores_the_request_to_end_is_killed_after_the_grace(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        fifo = any_home.fifo()
        await any_home.start(keeper, "a", f"trap '' TERM; echo up > {fifo}; while :; do sleep 1000; done")
        await told(fifo)
        record = await keeper.stop("a", 0.05)
        assert record.exit and record.exit.signal == signal.SIGKILL
        assert any_home.processes() == []


async def test_a_stop_lets_a_program_end_in_its_own_way(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        fifo = any_home.fifo()
        script = f"trap 'echo bye; exit 3' TERM; echo up > {fifo}; while :; do sleep 1000 & wait; done"
        await any_home.start(keeper, "a", script)
        await told(fifo)
        record = await keeper.stop("a", 20)
        assert record.exit and record.exit.code == 3
    assert any_home.log("a").read_text() == "bye\n"


async def test_killing_ends_the_whole_tree_at_once(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        fifo = any_home.fifo()
        await any_home.start(keeper, "a", f"trap '' TERM; ({DAEMON.format(fifo=fifo)}) ; while :; do sleep 1000; done")
        await told(fifo)
        await keeper.kill("a")
        assert any_home.processes() == []


async def test_trees_that_fork_all_the_time_are_ended_too(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        fifo = any_home.fifo()
        loop = "while :; do (sleep 1000 & sleep 0.001); done"
        await any_home.start(keeper, "a", f"(setsid sh -c '{loop}' &); ({loop}) & echo up > {fifo}; wait")
        await told(fifo)
        await keeper.stop("a", 0)
        assert any_home.processes() == []


async def test_one_tree_ends_and_the_others_go_on(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        fifo = any_home.fifo()
        await any_home.start(keeper, "a", "sleep 1000")
        await any_home.start(keeper, "b", f"({DAEMON.format(fifo=fifo)}) ; exec sleep 1000")
        daemon = await told(fifo)
        before = await any_home.until_alive(3)
        await keeper.kill("a")
        assert 0 < len(any_home.processes()) < len(before)
        assert daemon
        assert [record.key for record in await keeper.list() if record.is_running] == ["b"]


async def test_a_killed_leader_takes_its_tree_with_it(any_home: Home) -> None:
    """In the fallbacks the pid is the minder's, whose death must not free what it minded."""
    async with any_home.keeper() as keeper:
        fifo = any_home.fifo()
        record = await any_home.start(keeper, "a", f"({DAEMON.format(fifo=fifo)}) ; exec sleep 1000")
        await told(fifo)
        os.kill(record.pid, signal.SIGKILL)
        record = await exit_of(keeper, "a")
        assert record.exit and record.exit.signal == signal.SIGKILL
        assert any_home.processes() == []


async def test_a_pid_namespace_of_its_own_can_be_asked_for(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "echo $$; exec sleep 1000", pid_namespace=True)
        record = await keeper.stop("a", 20)
        assert record.exit and record.exit.signal == signal.SIGTERM
    assert home.log("a").read_text() in ("2\n", "")


async def test_when_the_keeper_is_killed_its_children_die_and_the_next_one_says_so(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        fifo = any_home.fifo()
        await any_home.start(keeper, "a", f"({DAEMON.format(fifo=fifo)}) ; exec sleep 1000")
        await any_home.start(keeper, "done", "exit 2")
        await told(fifo)
        await exit_of(keeper, "done")
        assert keeper.hello is not None
        first = keeper.hello.pid
        os.kill(first, signal.SIGKILL)
        await gone(first)
        records = {record.key: record for record in await keeper.list()}
        assert any_home.processes() == []
        assert keeper.hello.pid != first
        assert (lost := records["a"].exit) and lost.reason == "KeeperLost"
        assert (kept := records["done"].exit) and (kept.code, kept.reason) == (2, None)
        await any_home.start(keeper, "a", "sleep 1000", run="2")


async def test_many_are_stopped_together(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await asyncio.gather(*(any_home.start(keeper, f"c{number}", "exec sleep 1000") for number in range(30)))
        await asyncio.gather(*(keeper.stop(f"c{number}", 20) for number in range(30)))
        assert any_home.processes() == []


async def test_a_stopped_tree_can_be_ended(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        record = await any_home.start(keeper, "a", "exec sleep 1000")
        null = os.open(os.devnull, os.O_RDWR)
        env = {"MARK": any_home.mark}
        execution = await keeper.exec("a", ["sleep", "1000"], env=env, cwd="/", streams=(null, null, null))
        os.close(null)
        for pid in (*any_home.processes(), execution.pid, record.pid):
            os.kill(pid, signal.SIGSTOP)
        await keeper.kill("a")
        assert any_home.processes() == []
