"""Lives of keepers and servers, which are not each other's."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota.runtime.keeper import kernel, protocol
from rota.runtime.keeper.client import Keeper, KeeperError, KeeperGone, Snapshot
from tests.runtime.homes import Home, ask, exit_of, gone, told

SERVER = """
import asyncio, sys
from pathlib import Path
from rota.runtime.keeper.client import Keeper, LogSpec

async def main(home, mark, options):
    async with Keeper.connect(Path(home), options) as keeper:
        for key, script in (("long", "exec sleep 1000"), ("short", f"read line < {home}/fifo; exit 6")):
            log = LogSpec(f"{home}/{key}")
            record = await keeper.start(key, "1", ["sh", "-c", script], env={"MARK": mark}, cwd="/", log=log)
            print(key, record.pid, record.pid_start, flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
"""


async def server(home: Home) -> tuple[asyncio.subprocess.Process, dict[str, tuple[int, int]]]:
    """Start another process that is the server, with two children under its keeper; return which these are, too."""
    argv = [sys.executable, "-c", SERVER, str(home.path), home.mark, *home.options]
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    lines = [(await process.stdout.readline()).decode().split() for _ in range(2)]
    return process, {key: (int(pid), int(began)) for key, pid, began in lines}


async def start_again_and_again(home: Home, keeper: Keeper) -> None:
    for number in itertools.count():
        await home.start(keeper, "b", "true", run=str(number))
        await exit_of(keeper, "b", str(number))


async def test_children_survive_the_death_of_the_server_and_are_adopted_with_their_history(home: Home) -> None:
    fifo = home.fifo()
    first, started = await server(home)
    before = await home.until_alive(2)
    first.kill()
    await first.communicate()
    await asyncio.to_thread(fifo.write_text, "go\n")
    async with home.keeper() as keeper:
        short = await exit_of(keeper, "short")
        assert short.exit and short.exit.code == 6
        snapshot = await anext(keeper.events())
        assert isinstance(snapshot, Snapshot)
        long = next(record for record in snapshot.records if record.key == "long")
        assert long.is_running and (long.pid, long.pid_start) == started["long"]
        assert kernel.is_alive(*started["long"])
        [left] = await home.until_alive(1)
        assert left in before


async def test_exits_are_on_disk_before_anybody_hears_of_them(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "exit 9")
        await exit_of(keeper, "a")
        stored = json.loads((home.path / "keeper" / "records" / f"{protocol.hash_of('a')}.json").read_bytes())
        assert stored["exit"]["code"] == 9


async def test_records_survive_a_keeper_that_was_shut_down(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "exec sleep 1000")
        await keeper.shutdown()
        assert home.processes() == []
        (record,) = await keeper.list()
        assert record.exit and (record.exit.signal, record.exit.reason) == (signal.SIGTERM, None)


async def test_the_end_of_the_keeper_is_seen_at_once(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "trap '' TERM; sleep 1000 & wait; sleep 1000")
        stop = asyncio.create_task(keeper.stop("a", 1000))
        events = keeper.events()
        await anext(events)
        assert keeper.hello is not None
        os.kill(keeper.hello.pid, signal.SIGKILL)
        with pytest.raises(KeeperGone):
            await stop
        again = await anext(events)
        assert isinstance(again, Snapshot)
        assert (lost := again.records[0].exit) and lost.reason == "KeeperLost"


async def test_a_second_keeper_of_a_home_is_refused(home: Home) -> None:
    async with home.keeper() as keeper:
        argv = [sys.executable, "-m", "rota.runtime.keeper", str(home.path), *home.options]
        second = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True)
        assert keeper.hello is not None
        assert second.returncode == protocol.EXIT_ALREADY_RUNS
        assert second.stderr == f"a keeper of this home runs already, as process {keeper.hello.pid}\n"


async def test_servers_that_come_at_the_same_time_find_one_keeper(home: Home) -> None:
    keepers = [home.keeper() for _ in range(5)]
    await asyncio.gather(*(keeper.__aenter__() for keeper in keepers))
    assert len({keeper.hello.pid for keeper in keepers if keeper.hello}) == 1
    for keeper in keepers:
        await keeper.__aexit__(None, None, None)


async def test_without_a_server_the_keeper_stops_everything_and_ends(home: Home) -> None:
    home.options += ["--orphan-seconds", "0.2"]
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "exec sleep 1000")
        assert keeper.hello is not None
    await gone(keeper.hello.pid)
    assert home.processes() == []
    assert home.groups() == []


async def test_a_server_that_is_there_keeps_the_keeper(home: Home) -> None:
    home.options += ["--orphan-seconds", "0.2"]
    async with home.keeper() as stays:
        async with home.keeper() as goes:
            assert goes.hello == stays.hello
        record = await home.start(stays, "a", "sleep 0.5")
        assert (await exit_of(stays, "a")).pid == record.pid


async def test_terminating_the_keeper_stops_everything(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "exec sleep 1000")
        assert keeper.hello is not None
        for ignored in (signal.SIGINT, signal.SIGHUP):
            os.kill(keeper.hello.pid, ignored)
        assert (await keeper.list())[0].is_running
        os.kill(keeper.hello.pid, signal.SIGTERM)
        await gone(keeper.hello.pid)
        assert home.processes() == []
        assert home.groups() == []


async def test_while_it_shuts_down_nothing_is_started(home: Home) -> None:
    async with home.keeper() as keeper:
        fifo = home.fifo()
        await home.start(keeper, "a", f"trap 'read line < {fifo}; exit' TERM; echo up > {fifo}; sleep 1000 & wait")
        await told(fifo)
        async with home.keeper() as other:
            end = asyncio.create_task(other.shutdown(1000))
            with pytest.raises(KeeperError, match="ShuttingDown"):
                await start_again_and_again(home, keeper)
            await asyncio.to_thread(fifo.write_text, "go\n")
            await end


async def test_a_pid_that_is_another_process_now_is_not_touched(home: Home) -> None:
    bystander = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        async with home.keeper() as keeper:
            await home.start(keeper, "a", "exec sleep 1000")
            assert keeper.hello is not None
            os.kill(keeper.hello.pid, signal.SIGKILL)
            await gone(keeper.hello.pid)
            path = home.path / "keeper" / "records" / f"{protocol.hash_of('a')}.json"
            stored = json.loads(path.read_bytes())
            start = kernel.start_time_of(bystander.pid)
            assert start is not None
            path.write_text(json.dumps(stored | {"pid": bystander.pid, "pid_start": start - 1}))
            (record,) = await keeper.list()
            assert record.exit and record.exit.reason == "KeeperLost"
            assert bystander.returncode is None
            assert kernel.is_alive(bystander.pid, start)
    finally:
        bystander.kill()
        await bystander.wait()


async def test_a_copied_home_does_not_end_what_runs_in_the_first(
    home: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "exec sleep 1000")
        before = await home.until_alive(1)
        copy = Home(tmp_path_factory.mktemp("copy"))
        (copy.path / "keeper" / "records").mkdir(parents=True)
        for name in ("cgroup", f"records/{protocol.hash_of('a')}.json"):
            source = home.path / "keeper" / name
            if source.exists():
                (copy.path / "keeper" / name).write_bytes(source.read_bytes())
        async with copy.keeper() as other:
            assert [(r.exit and r.exit.reason) for r in await other.list()] == ["KeeperLost"]
            await other.shutdown()
        assert home.processes() == before


async def test_a_damaged_record_does_not_keep_the_keeper_from_starting(home: Home) -> None:
    records = home.path / "keeper" / "records"
    records.mkdir(parents=True)
    (records / "half.json").write_text('{"key": "a", "st')
    (records / "left.part").write_text("{}")
    async with home.keeper() as keeper:
        assert await keeper.list() == []
    assert list(records.iterdir()) == []


async def test_an_older_or_newer_server_is_told_and_can_still_end_the_keeper(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "exec sleep 1000")
        assert keeper.hello is not None

        def other_version() -> None:
            with home.dial() as stream:
                assert ask(stream, id=1, verb="hello", version=99)["ok"]["version"] == protocol.VERSION
                assert ask(stream, id=2, verb="kill", key="a")["error"]["reason"] == "OtherVersion"
                assert len(ask(stream, id=3, verb="list")["ok"]["records"]) == 1
                assert ask(stream, id=4, verb="shutdown", surprise="ignored") == {"id": 4, "ok": {}}

        await asyncio.to_thread(other_version)
        await gone(keeper.hello.pid)
    assert home.processes() == []


async def test_a_home_with_a_long_path_has_a_keeper(tmp_path: Path) -> None:
    home = Home(tmp_path / ("long" * 40))
    async with home.keeper() as keeper:
        assert await keeper.list() == []
        await keeper.shutdown()


async def test_a_home_that_was_removed_and_made_anew_is_not_in_the_way_of_itself(home: Home) -> None:
    """As a folder for tests is: nothing but the groups of the kernel tells of the one before."""
    async with home.keeper() as keeper:
        assert keeper.hello is not None
        before = await home.start(keeper, "a", "sleep 1000")
        os.kill(keeper.hello.pid, signal.SIGKILL)
        await gone(keeper.hello.pid)
    shutil.rmtree(home.path / "keeper")
    async with home.keeper() as keeper:
        started = await home.start(keeper, "a", "sleep 1000")
        assert started.is_running
        await gone(before.pid)
