"""The descriptors, limits and environment of a child, and its record."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from rota.runtime.keeper.client import Exited, KeeperError, Limits, LogSpec, Snapshot, Started
from rota.runtime.keeper.kernel import descendants_of
from tests.runtime.homes import Home, exit_of, told, unsearchable


async def test_an_exit_code_is_recorded(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        started = await any_home.start(keeper, "a", "exit 7")
        record = await exit_of(keeper, "a")
        assert record.exit and (record.exit.code, record.exit.signal) == (7, None)
        assert record.exit.time >= record.started == started.started


async def test_a_death_by_signal_is_recorded(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "a", "kill -USR1 $$")
        record = await exit_of(keeper, "a")
        assert record.exit and (record.exit.code, record.exit.signal) == (None, signal.SIGUSR1)


async def test_both_outputs_are_in_the_log(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "a", "echo out; echo err >&2")
        await exit_of(keeper, "a")
    assert any_home.log("a").read_text() == "out\nerr\n"
    assert any_home.log("a").stat().st_mode & 0o777 == 0o600


async def test_a_log_is_rotated_within_its_bounds(home: Home) -> None:
    async with home.keeper() as keeper:
        log = LogSpec(str(home.path / "a"), bytes_max=1000, files_max=3)
        await home.start(keeper, "a", "seq 1 2000", log=log)
        await exit_of(keeper, "a")
    sizes = {path.name: path.stat().st_size for path in home.path.glob("a.log*")}
    assert sizes.keys() == {"a.log", "a.log.1", "a.log.2"}
    assert max(sizes.values()) <= 1000
    kept = "".join((home.path / name).read_text() for name in ("a.log.2", "a.log.1", "a.log"))
    assert "".join(f"{number}\n" for number in range(1, 2001)).endswith(kept)


async def test_a_next_run_goes_on_in_the_same_log(home: Home) -> None:
    async with home.keeper() as keeper:
        for run in ("1", "2"):
            await home.start(keeper, "a", f"echo {run}", run=run)
            await exit_of(keeper, "a", run)
    assert home.log("a").read_text() == "1\n2\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
async def test_a_log_that_cannot_be_written_does_not_stop_the_child(home: Home) -> None:
    async with home.keeper() as keeper:
        os.symlink("/dev/full", home.path / "full")
        log = LogSpec(str(home.path / "full" / "a"))
        with pytest.raises(KeeperError, match="Not a directory"):
            await home.start(keeper, "a", "true", log=log)
        full = home.path / "b.log"
        os.mknod(full, 0o600 | 0o020000, os.makedev(1, 7))  # /dev/full
        await home.start(keeper, "b", "echo lost")
        record = await exit_of(keeper, "b")
        assert record.exit and record.exit.code == 0
        assert record.log_bytes_lost == len("lost\n")


async def test_the_environment_is_exactly_what_was_given(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        argv = ["/usr/bin/env"]
        log = LogSpec(str(any_home.path / "a"))
        await keeper.start("a", "1", argv, env={"ONE": "1", "TWO": "a b\nc"}, cwd="/", log=log)
        await exit_of(keeper, "a")
    assert any_home.log("a").read_text() == "ONE=1\nTWO=a b\nc\n"


async def test_no_descriptor_but_the_three_streams_is_inherited(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "z", "sleep 1000")
        await any_home.start(keeper, "a", "readlink /proc/self/fd/*; readlink /proc/self/fd/0")
        await exit_of(keeper, "a")
    *opened, stdin = any_home.log("a").read_text().splitlines()
    assert stdin == "/dev/null"
    assert [link.partition(":")[0] for link in opened] == ["/dev/null", "pipe", "pipe"]


async def test_a_child_leads_its_own_session_and_has_default_signals(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(
            keeper, "a", "cut -d' ' -f5,6 /proc/$$/stat; echo $$; grep -E 'Sig(Blk|Ign)' /proc/self/status"
        )
        await exit_of(keeper, "a")
    ids, pid, blocked, ignored = any_home.log("a").read_text().splitlines()
    # Those of the C library, 32 and 33, nobody can change: they are as whoever runs the tests has them.
    libc = 1 << 31 | 1 << 32
    assert [int(mask.split()[1], 16) & ~libc for mask in (blocked, ignored)] == [0, 0]
    assert ids == f"{pid} {pid}" or any_home.options[-1] == "namespace"  # which sees itself under another number


async def test_a_child_gets_no_new_privileges(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "grep NoNewPrivs /proc/self/status; cat /proc/self/oom_score_adj")
        await exit_of(keeper, "a")
    own = Path("/proc/self/oom_score_adj").read_text()
    assert home.log("a").read_text() == f"NoNewPrivs:\t1\n{own}"


async def test_the_working_folder_is_the_one_given(home: Home) -> None:
    async with home.keeper() as keeper:
        await keeper.start("a", "1", ["pwd"], env={}, cwd="/usr", log=LogSpec(str(home.path / "a")))
        await exit_of(keeper, "a")
    assert home.log("a").read_text() == "/usr\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another")
async def test_a_child_runs_as_the_user_it_was_given(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "a", "id -u; id -g; id -G", uid=4321, gid=1234)
        await exit_of(keeper, "a")
    assert any_home.log("a").read_text().split() == ["4321", "1234", "1234"]


async def test_limits_are_held_or_said_to_be_unmet(home: Home) -> None:
    async with home.keeper() as keeper:
        script = "ulimit -n; python3 -c 'bytearray(300_000_000)'"
        env = {"PATH": os.environ["PATH"]}
        limits = Limits(memory=100_000_000, nofile=99, cpu=0.5)
        record = await home.start(keeper, "a", script, env=env, limits=limits)
        ended = await exit_of(keeper, "a")
    assert ended.exit and ended.exit.code != 0
    assert home.log("a").read_text().startswith("99\n")
    assert "memory" not in record.limits_unmet and "nofile" not in record.limits_unmet


@pytest.mark.parametrize(
    ("argv", "cwd", "said"),
    [(["no-such-program"], "/", "no-such-program: No such file"), (["true"], "/no/folder", "/no/folder: No such file")],
)
async def test_what_cannot_start_says_why_and_leaves_nothing(
    any_home: Home, argv: list[str], cwd: str, said: str
) -> None:
    async with any_home.keeper() as keeper:
        with pytest.raises(KeeperError, match=said) as refused:
            await keeper.start("a", "1", argv, env={}, cwd=cwd, log=LogSpec(str(any_home.path / "a")))
        assert refused.value.reason == "StartFailed"
        assert await keeper.list() == []
        await any_home.start(keeper, "a", "true")


async def test_a_folder_of_the_path_that_cannot_be_searched_is_passed_over(home: Home) -> None:
    path = f"{unsearchable(home.path)}:{os.defpath}"
    async with home.keeper() as keeper:
        with pytest.raises(KeeperError, match="no-such-program: No such file"):
            await keeper.start(
                "a", "1", ["no-such-program"], env={"PATH": path}, cwd="/", log=LogSpec(str(home.path / "a"))
            )
        await home.start(keeper, "a", "exit 3", env={"PATH": path})
        ended = await exit_of(keeper, "a")
        assert ended.exit and ended.exit.code == 3


async def test_what_is_around_a_program_does_not_look_like_one_more_keeper(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        record = await any_home.start(keeper, "a", "exec sleep 1000", pid_namespace=True)
        await any_home.until_alive(1)
        assert keeper.hello is not None
        own = Path(f"/proc/{keeper.hello.pid}/cmdline").read_bytes()
        around = [record.pid, *descendants_of(record.pid)]
        assert own not in [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in around]
        shown = Path(f"/proc/{record.pid}/cmdline").read_text().rstrip("\0").split("\0")
        assert shown == ["rota-minder", str(any_home.path), "a"]


async def test_repeating_a_start_has_no_second_effect(home: Home) -> None:
    async with home.keeper() as keeper:
        both = await asyncio.gather(*(home.start(keeper, "a", "echo once; sleep 1000") for _ in range(2)))
        assert both[0] == both[1] == await home.start(keeper, "a", "echo once; sleep 1000")
        ended = await keeper.kill("a")
        assert await home.start(keeper, "a", "echo once; sleep 1000") == ended
    assert home.log("a").read_text() == "once\n"


async def test_a_key_that_runs_cannot_be_started_as_another_run(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "sleep 1000")
        with pytest.raises(KeeperError, match="a runs already, as run 1") as refused:
            await home.start(keeper, "a", "sleep 1000", run="2")
        assert refused.value.reason == "AlreadyRuns"


async def test_a_late_stop_of_an_earlier_run_does_nothing(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "true")
        await exit_of(keeper, "a")
        await home.start(keeper, "a", "sleep 1000", run="2")
        with pytest.raises(KeeperError, match="OtherRun"):
            await keeper.stop("a", 0, run="1")
        assert [record.state for record in await keeper.list()] == ["running"]


async def test_watching_begins_with_a_snapshot_and_tells_every_start_and_exit(home: Home) -> None:
    async with home.keeper() as keeper, home.keeper() as other:
        await home.start(keeper, "a", "sleep 1000")
        events = other.events()
        first = await anext(events)
        assert isinstance(first, Snapshot) and [record.key for record in first.records] == ["a"]
        await home.start(keeper, "b", "exit 3")
        assert isinstance(started := await anext(events), Started) and started.record.key == "b"
        assert isinstance(exited := await anext(events), Exited) and exited.record.exit and exited.record.exit.code == 3


async def test_a_signal_reaches_the_child(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        fifo = any_home.fifo()
        script = f"trap 'echo got; exit 5' USR1; echo up > {fifo}; while :; do sleep 1000 & wait; done"
        await any_home.start(keeper, "a", script)
        await told(fifo)
        await keeper.signal("a", signal.SIGUSR1)
        record = await exit_of(keeper, "a")
        assert record.exit and record.exit.code == 5


async def test_a_record_is_kept_until_it_is_forgotten(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "sleep 1000")
        with pytest.raises(KeeperError, match="StillRuns"):
            await keeper.forget("a")
        await keeper.kill("a")
        assert [record.key for record in await keeper.list()] == ["a"]
        assert len(list((home.path / "keeper" / "records").iterdir())) == 1
        await keeper.forget("a")
        assert await keeper.list() == []
    assert list((home.path / "keeper" / "records").iterdir()) == []


async def test_no_environment_is_written_to_disk(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "true", env={"TOKEN": "s3cr3t-t0ken"})
        await exit_of(keeper, "a")
    assert not [p for p in home.path.rglob("*") if p.is_file() and b"s3cr3t-t0ken" in p.read_bytes()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another")
async def test_processes_of_a_childs_own_user_are_limited(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        script = "for n in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; echo all"
        record = await any_home.start(keeper, "a", script, uid=43210, gid=43210, limits=Limits(pids=5, cpu=0.5))
        await exit_of(keeper, "a")
    assert "pids" not in record.limits_unmet
    assert "all" not in any_home.log("a").read_text()
