"""Files of a job in its home: there for it alone, and never anywhere else."""

from __future__ import annotations

import asyncio
import stat

import pytest

from rota.runtime.runner.box import BoxLost
from rota.runtime.runner.executor import Executor
from rota.runtime.runner.journal import Journal
from tests.runner.boxes import Bench, in_both, plain
from tests.until import until_async

FILES = {".agent/key.json": "secret", "note": "ünd"}


@in_both
async def test_they_are_there_for_the_job_and_its_user_alone_and_then_gone(bench: Bench) -> None:
    outcome = await bench.sh("cd ~; cat .agent/key.json note; stat -c ' %a %u' note; id -u", files=FILES)
    assert outcome.reason == "Succeeded"
    content, mode, owner, uid = bench.said().split()
    assert (content, mode, owner) == ("secretünd", "600", uid)
    assert [path for path in bench.home.rglob("*") if path.is_file()] == []
    assert stat.S_IMODE((bench.home / ".agent").stat().st_mode) == 0o700


@in_both
async def test_they_are_gone_after_a_job_that_was_made_to_end(bench: Bench) -> None:
    job = bench.job("sh", "-c", "cat ~/note; sleep 1000", files=FILES)
    running = asyncio.create_task(bench.do(job))
    await until_async(lambda: "ünd" in bench.said())
    bench.executor.cancel(job.id, 1)
    assert (await running).reason == "Cancelled"
    assert [path for path in bench.home.rglob("*") if path.is_file()] == []


@in_both
async def test_what_was_in_their_place_is_replaced(bench: Bench) -> None:
    await bench.sh("cd ~; echo old > note; chmod 666 note")
    outcome = await bench.sh("cd ~; cat note; stat -c ' %a' note", files=FILES)
    assert outcome.reason == "Succeeded" and bench.said().split() == ["ünd", "600"]


@in_both
async def test_a_link_in_their_place_is_not_followed(bench: Bench) -> None:
    await bench.sh("echo kept > target; ln -s $PWD/target ~/note")
    outcome = await bench.sh("cat ~/note", files=FILES)
    assert outcome.reason == "Succeeded" and bench.said() == "ünd"
    assert (bench.tree / "target").read_text() == "kept\n"


@in_both
async def test_a_link_on_the_way_to_them_is_not_followed(bench: Bench) -> None:
    await bench.sh("mkdir elsewhere; ln -s $PWD/elsewhere ~/.agent")
    outcome = await bench.sh("echo run", files=FILES)
    assert outcome.reason == "Failed" and ".agent/key.json: Not a directory" in outcome.message
    assert bench.said() == "" and list((bench.tree / "elsewhere").iterdir()) == []


@in_both
async def test_a_home_that_is_a_link_is_not_followed(bench: Bench) -> None:
    await bench.sh("mkdir elsewhere; rmdir ~; ln -s $PWD/elsewhere ~")
    outcome = await bench.sh("echo run", files=FILES)
    assert outcome.reason == "Failed" and bench.said() == ""
    assert list((bench.tree / "elsewhere").iterdir()) == []


@in_both
async def test_a_folder_in_their_place_is_told(bench: Bench) -> None:
    await bench.sh("mkdir ~/note")
    outcome = await bench.sh("echo run", files=FILES)
    assert outcome.reason == "Failed" and "note: Is a directory" in outcome.message
    assert (await bench.sh("echo run")).reason == "Succeeded"
    assert [path for path in bench.home.rglob("*") if path.is_file()] == []


@in_both
async def test_a_job_that_removes_or_replaces_them_does_no_harm(bench: Bench) -> None:
    outcome = await bench.sh("cd ~; rm note; mkdir note; rm -r .agent; ln -s / .agent", files=FILES)
    assert outcome.reason == "Succeeded"
    assert (await bench.run("true")).reason == "Succeeded"


@in_both
async def test_what_a_runner_that_was_killed_left_is_removed_before_the_next_job(bench: Bench) -> None:
    job = bench.job("sh", "-c", "cat ~/note; sleep 1000", files=FILES)
    running = asyncio.create_task(bench.do(job))
    await until_async(lambda: "ünd" in bench.said())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await bench.box.stop()
    bench.journal.close()
    assert (bench.home / "note").exists()
    bench.journal = Journal(bench.journal_folder)
    bench.executor, bench.box = Executor(bench.journal), bench.new_box()
    await bench.box.start()
    assert (await bench.sh("ls -A ~ ~/.agent | grep -c . || true", log=f"{bench.log}.2")).reason == "Succeeded"
    assert [path for path in bench.home.rglob("*") if path.is_file()] == []


@plain
async def test_a_note_of_them_that_cannot_be_read_is_nothing(bench: Bench) -> None:
    (bench.journal_folder / "placed").write_bytes(b"{")
    bench.executor = Executor(bench.journal)
    assert (await bench.run("true")).reason == "Succeeded"
    assert not (bench.journal_folder / "placed").exists()


@plain
async def test_a_box_in_which_they_cannot_be_handled_is_lost(bench: Bench) -> None:
    pytest.MonkeyPatch().setattr("rota.runtime.runner.job_files.PLACE_SECONDS_MAX", 0.0)
    with pytest.raises(BoxLost, match="put took longer"):
        await bench.sh("echo run", files=FILES)
    assert [one.reason for one in bench.journal.pending()] == ["WorkerLost"] and bench.said() == ""
