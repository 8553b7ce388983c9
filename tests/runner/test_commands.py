"""Commands in a box: what they get, what they leave, and what is told of them."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from pathlib import Path

import pytest

from rota.runtime.runner.box import BoxLost
from rota.runtime.runner.jobs import JOB_BYTES_MAX, RESULT_BYTES_MAX, Outcome
from rota.runtime.runner.tasklog import LOG_BYTES_MAX
from tests.amount import amount
from tests.runner.boxes import Bench, in_a_sandbox, in_both, plain
from tests.until import until_async

JOBS = amount(50, 150)
DAEMON = "setsid sh -c '{}' >/dev/null 2>&1 &"


@in_both
async def test_a_command_succeeds(bench: Bench) -> None:
    outcome = await bench.sh("echo said; pwd")
    assert (outcome.reason, outcome.exit_code, outcome.message) == ("Succeeded", 0, "")
    assert bench.said() == f"said\n{bench.inside_tree}\n"
    assert 0 < outcome.started <= outcome.ended


@in_both
async def test_a_command_fails_with_its_code_and_its_last_lines(bench: Bench) -> None:
    outcome = await bench.sh("echo one; echo two >&2; exit 7")
    assert (outcome.reason, outcome.exit_code, outcome.message) == ("Failed", 7, "one\ntwo")


@in_both
async def test_a_command_that_fails_without_a_word_says_its_code(bench: Bench) -> None:
    assert (await bench.run("false")).message == "exit code 1, and no output"


@in_both
async def test_the_signal_that_ended_a_command_is_told(bench: Bench) -> None:
    outcome = await bench.sh("echo last; kill -SEGV $$")
    assert (outcome.reason, outcome.exit_code) == ("Failed", 128 + signal.SIGSEGV)
    assert outcome.message == "it was ended by SIGSEGV\nlast"


@in_both
async def test_a_program_that_is_not_there_is_told(bench: Bench) -> None:
    outcome = await bench.run("no-such-program")
    assert (outcome.reason, outcome.exit_code) == ("Failed", 127) and "no-such-program" in outcome.message


@in_both
async def test_a_place_that_is_not_there_is_told(bench: Bench) -> None:
    outcome = await bench.run("true", cwd="/no/such/place")
    assert outcome.reason == "Failed" and "/no/such/place" in outcome.message


@in_both
async def test_the_environment_is_the_boxs_and_the_jobs_and_nobody_elses(bench: Bench) -> None:
    os.environ["OF_THE_RUNNER"] = "runner"
    await bench.run("env", env={"OF_THE_JOB": "job"})
    said = bench.said().splitlines()
    assert "OF_THE_BOX=box" in said and "OF_THE_JOB=job" in said
    assert not any("RUNNER" in line for line in said)
    await bench.run("env")
    assert bench.said().count("OF_THE_JOB") == 1


@in_both
async def test_standard_input_is_what_was_given(bench: Bench) -> None:
    text = "ü\n" * 300_000
    outcome = await bench.sh("wc -c; cat < /dev/stdin | wc -c", stdin=text)
    assert outcome.reason == "Succeeded"
    assert bench.said().split()[0] == str(len(text.encode()))


@in_both
async def test_standard_input_is_empty_when_there_is_none(bench: Bench) -> None:
    assert (await bench.sh("cat; echo end")).reason == "Succeeded"
    assert bench.said() == "end\n"


@in_both
async def test_standard_input_cannot_be_written_to(bench: Bench) -> None:
    await bench.sh("echo more >&0 || echo cannot; echo more > /dev/stdin || echo cannot", stdin="text")
    assert bench.said().count("cannot\n") == 2


@in_both
async def test_output_and_errors_are_in_the_order_in_which_they_were_written(bench: Bench) -> None:
    await bench.sh("for i in $(seq 200); do echo $i; echo $i >&2; done")
    assert bench.said().split() == [str(number) for number in range(1, 201) for _ in "ab"]


@in_both
async def test_a_command_can_open_its_output_anew(bench: Bench) -> None:
    assert (
        await bench.sh("echo one > /dev/stdout; echo two > /dev/stderr; echo three > /proc/self/fd/1")
    ).exit_code == 0
    assert bench.said() == "one\ntwo\nthree\n"


@in_both
async def test_the_log_has_what_was_said_while_it_runs(bench: Bench) -> None:
    running = asyncio.create_task(bench.sh("echo first; until test -e go; do sleep 0.01; done; echo second"))
    await until_async(lambda: bench.said() == "first\n")
    bench.write("go", "")
    assert (await running).reason == "Succeeded" and bench.said() == "first\nsecond\n"


@in_both
async def test_marks_give_outputs_and_a_result_and_stay_in_the_log(bench: Bench) -> None:
    outcome = await bench.sh("echo ::rota output a=1; printf '::rota result fine'")
    assert (outcome.outputs, outcome.result) == ({"a": "1"}, "fine")
    assert bench.said() == "::rota output a=1\n::rota result fine"


@in_both
async def test_an_agent_that_says_it_failed_has_failed(bench: Bench) -> None:
    event = '{"type":"result","subtype":"success","is_error":true,"result":"no credit","total_cost_usd":1}'
    outcome = await bench.run("echo", event, parse="claude-code")
    assert (outcome.reason, outcome.exit_code, outcome.message) == ("Failed", 0, "no credit")
    assert outcome.usage == {"costUSD": 1.0}


@in_both
async def test_what_was_left_out_is_said(bench: Bench) -> None:
    outcome = await bench.sh("echo ::rota output 1=2")
    assert outcome.reason == "Succeeded" and outcome.message == "output '1' was left out: not a name"


@in_both
async def test_a_job_without_a_log_has_none(bench: Bench) -> None:
    assert (await bench.sh("echo x", log="")).reason == "Succeeded"
    assert not bench.log.exists()


@plain
async def test_a_log_that_cannot_be_written_is_not_the_tasks_fault(bench: Bench) -> None:
    outcome = await bench.sh("echo ::rota result fine", log="/proc/no/log")
    assert (outcome.reason, outcome.result) == ("Succeeded", "fine")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"argv": ()}, "argv is empty"),
        ({"argv": ("",)}, "argv is empty"),
        ({"stdin": "x" * (JOB_BYTES_MAX + 1)}, "more than"),
        ({"files": {"../x": ""}}, "'../x'"),
        ({"files": {"/etc/x": ""}}, "'/etc/x'"),
        ({"files": {f"{number}": "" for number in range(100)}}, "more than"),
        ({"kind": "python", "argv": ("module",)}, "module:callable"),
    ],
)
def test_what_cannot_be_run_is_told(tmp_path: Path, more: dict[str, object], message: str) -> None:
    @plain
    async def test(bench: Bench) -> None:
        outcome = await bench.run("true", **more)
        assert outcome.reason == "Failed" and message in outcome.message
        assert (await bench.run("true")).reason == "Succeeded"

    test(tmp_path, "none", "python")


@plain
async def test_arguments_that_are_too_long_for_the_kernel_are_told(bench: Bench) -> None:
    outcome = await bench.run("true", "x" * 300_000)
    assert outcome.reason == "Failed" and "Argument list too long" in outcome.message


# How much it may write.


@in_both
async def test_a_hundred_megabytes_are_read_and_the_log_has_its_bound(bench: Bench) -> None:
    script = (
        "echo ::rota output first=1; yes 'some line of output' | head -c 100000000; echo; echo ::rota output last=1"
    )
    outcome = await bench.sh(script)
    assert outcome.reason == "Succeeded" and outcome.outputs == {"first": "1", "last": "1"}
    assert bench.log.stat().st_size <= LOG_BYTES_MAX
    assert b"bytes are missing here" in bench.log.read_bytes()


@plain
async def test_memory_does_not_grow_with_the_output(bench: Bench) -> None:
    await bench.sh("yes | head -c 1000000")
    before = _resident()
    outcome = await bench.sh("head -c 30000000 /dev/zero | tr '\\0' x; yes 0123456789 | head -c 30000000")
    assert outcome.reason == "Succeeded" and _resident() - before < 4_000_000


@in_both
async def test_a_line_of_ten_megabytes_is_no_trouble(bench: Bench) -> None:
    outcome = await bench.sh("head -c 10000000 /dev/zero | tr '\\0' x; echo; echo ::rota result fine")
    assert (outcome.reason, outcome.result) == ("Succeeded", "fine")


@in_both
async def test_a_result_of_ten_megabytes_is_left_out(bench: Bench) -> None:
    outcome = await bench.sh("printf '::rota result '; head -c 10000000 /dev/zero | tr '\\0' x; echo")
    assert outcome.reason == "Succeeded" and len(outcome.result) <= RESULT_BYTES_MAX


@in_both
async def test_rubbish_is_no_trouble(bench: Bench) -> None:
    outcome = await bench.sh(
        "head -c 3000000 /dev/urandom; echo; echo ::rota result fine; head -c 1000 /dev/urandom; exit 1"
    )
    assert (outcome.reason, outcome.result) == ("Failed", "fine")
    assert len(outcome.message.encode()) <= 2048 and "\x1b" not in outcome.message
    assert bench.log.stat().st_size > 3_000_000


# What it leaves.


@in_both
async def test_a_process_that_left_its_parents_does_not_outlive_the_job(bench: Bench) -> None:
    before = bench.below()
    assert (await bench.sh(DAEMON.format("exec sleep 1000"))).reason == "Succeeded"
    assert bench.below() == before


@in_both
async def test_a_daemon_that_holds_the_output_is_not_waited_for(bench: Bench) -> None:
    async with asyncio.timeout(10):
        outcome = await bench.sh("(setsid sh -c 'while :; do echo daemon; sleep 0.01; done' &); echo main")
    assert outcome.reason == "Succeeded" and "main\n" in bench.said()
    said = bench.said()
    assert (await bench.run("true")).reason == "Succeeded" and bench.said() == said


@in_both
async def test_what_ignores_signals_does_not_outlive_the_job(bench: Bench) -> None:
    before = bench.below()
    await bench.sh("(trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &) ; true")
    assert bench.below() == before


@in_both
async def test_many_jobs_leave_no_descriptor_no_process_and_no_memory(bench: Bench) -> None:
    for _ in range(20):
        await bench.sh("echo x")
    descriptors, processes, memory = _descriptors(bench), bench.below(), _resident()
    for number in range(JOBS):
        outcome = await bench.sh(
            "echo ::rota output a=b; (setsid sleep 1000 &)", files={"f": "x"} if number % 20 == 0 else {}
        )
        bench.journal.acknowledged(outcome.id)
    assert (_descriptors(bench), bench.below()) == (descriptors, processes)
    assert _resident() - memory < 2_000_000


@in_both
async def test_a_command_has_no_descriptor_but_its_three(bench: Bench) -> None:
    await bench.sh("exec ls /proc/self/fd", stdin="x")
    assert bench.said().split() == ["0", "1", "2", "3"]  # The last one is the folder that it lists.


# Time.


@in_both
async def test_a_job_that_takes_too_long_is_asked_to_end(bench: Bench) -> None:
    script = "trap 'echo asked; exit 3' TERM; echo begun; while :; do sleep 0.01; done"
    outcome = await bench.sh(script, timeout_seconds=0.3)
    assert (outcome.reason, outcome.exit_code) == ("Timeout", 3)
    lines = outcome.message.splitlines()
    assert lines[:2] == ["it took longer than 0.3 s", "begun"] and lines[-1] == "asked"


@in_both
async def test_a_job_that_does_not_end_when_asked_is_ended(bench: Bench) -> None:
    pytest.MonkeyPatch().setattr("rota.runtime.runner.stopping.GRACE_SECONDS", 0.2)
    before = bench.below()
    outcome = await bench.sh("trap '' TERM; echo begun; while :; do sleep 0.01; done", timeout_seconds=0.2)
    assert (outcome.reason, outcome.exit_code) == ("Timeout", 128 + signal.SIGKILL)
    assert bench.below() == before


@in_both
async def test_a_job_within_its_time_is_not_disturbed(bench: Bench) -> None:
    assert (await bench.sh("sleep 0.05", timeout_seconds=60)).reason == "Succeeded"


@in_both
async def test_cancel_ends_a_job_and_all_of_it(bench: Bench) -> None:
    before = bench.below()
    job = bench.job("sh", "-c", DAEMON.format("exec sleep 1000") + " echo begun; sleep 1000")
    running = asyncio.create_task(bench.do(job))
    await until_async(lambda: "begun" in bench.said())
    bench.executor.cancel(job.id, 5)
    outcome = await running
    assert (outcome.reason, outcome.exit_code) == ("Cancelled", 128 + signal.SIGTERM)
    assert bench.below() == before


@in_both
async def test_cancel_without_grace_ends_it_at_once(bench: Bench) -> None:
    job = bench.job("sh", "-c", "trap '' TERM; echo begun; while :; do sleep 0.01; done")
    running = asyncio.create_task(bench.do(job))
    await until_async(lambda: "begun" in bench.said())
    bench.executor.cancel(job.id, 0)
    assert (await running).exit_code == 128 + signal.SIGKILL


@in_both
async def test_who_cancels_again_can_only_shorten_the_grace(bench: Bench) -> None:
    job = bench.job("sh", "-c", "trap '' TERM; echo begun; while :; do sleep 0.01; done")
    running = asyncio.create_task(bench.do(job))
    await until_async(lambda: "begun" in bench.said())
    bench.executor.cancel(job.id, 1000)
    bench.executor.cancel(job.id, 0.05)
    bench.executor.cancel(job.id, 1000)
    async with asyncio.timeout(10):
        assert (await running).reason == "Cancelled"


@plain
async def test_a_job_that_is_cancelled_before_it_comes_does_not_begin(bench: Bench) -> None:
    job = bench.job("sh", "-c", "echo begun")
    bench.executor.cancel(job.id, 5)
    outcome = await bench.do(job)
    assert (outcome.reason, outcome.exit_code) == ("Cancelled", None) and bench.said() == ""
    assert bench.journal.pending() == [outcome]


@plain
async def test_a_job_that_is_cancelled_while_it_waits_for_its_turn_does_not_begin(bench: Bench) -> None:
    first = asyncio.create_task(bench.sh("until test -e go; do sleep 0.01; done"))
    job = bench.job("sh", "-c", "echo begun")
    second = asyncio.create_task(bench.do(job))
    await asyncio.sleep(0)
    bench.executor.cancel(job.id, 5)
    bench.write("go", "")
    assert (await first).reason == "Succeeded" and (await second).reason == "Cancelled" and bench.said() == ""


@plain
async def test_cancel_at_any_moment_leaves_one_outcome_and_nothing_else(bench: Bench) -> None:
    before = bench.below()
    for step in range(60):
        job = bench.job("sh", "-c", "(setsid sleep 1000 &); echo x")
        running = asyncio.create_task(bench.do(job))
        for _ in range(step):
            await asyncio.sleep(0)
        bench.executor.cancel(job.id, 1)
        outcome = await running
        assert outcome.reason in ("Succeeded", "Cancelled") and bench.journal.pending() == [outcome]
        bench.journal.acknowledged(job.id)
        assert bench.below() == before


@plain
async def test_cancel_after_the_end_changes_nothing(bench: Bench) -> None:
    job = bench.job("true")
    outcome = await bench.do(job)
    bench.executor.cancel(job.id, 0)
    assert await bench.do(job) == outcome and outcome.reason == "Succeeded"


# Once.


@plain
async def test_a_job_is_run_once_however_often_it_comes(bench: Bench) -> None:
    job = bench.job("sh", "-c", "echo run")
    first = await bench.do(job)
    assert await bench.do(job) == first
    bench.journal.acknowledged(job.id)
    again = await bench.do(job)
    assert (again.id, again.reason) == (first.id, first.reason) and bench.said() == "run\n"


@plain
async def test_a_job_that_comes_twice_at_once_is_run_once(bench: Bench) -> None:
    job = bench.job("sh", "-c", "echo run")
    first, *others = await asyncio.gather(*(bench.do(job) for _ in range(3)))
    assert others == [first, first]
    assert bench.said() == "run\n"


@plain
async def test_jobs_that_come_at_once_are_run_one_after_the_other(bench: Bench) -> None:
    jobs = [bench.job("sh", "-c", f"echo {number}; echo {number}") for number in range(5)]
    assert all(one.reason == "Succeeded" for one in await asyncio.gather(*map(bench.do, jobs)))
    assert bench.said().split() == [str(number) for number in range(5) for _ in "ab"]


@plain
async def test_the_outcome_is_in_the_journal_before_it_is_told(bench: Bench) -> None:
    outcome = await bench.run("true")
    assert bench.journal.pending() == [outcome]


@in_both
async def test_neither_journal_nor_log_nor_any_command_line_has_a_secret(bench: Bench) -> None:
    secret = "very-secret-text"
    job = bench.job("sh", "-c", "touch begun; until test -e go; do sleep 0.01; done; no-such", env={"KEY": secret})
    job = bench.job(*job.argv, env=job.env, files={".key": secret}, stdin=secret)
    running = asyncio.create_task(bench.do(job))
    await until_async((bench.tree / "begun").exists)
    assert not any(secret in command for command in bench.below().values())
    bench.write("go", "")
    outcome = await running
    assert outcome.reason == "Failed" and secret not in repr(outcome)
    for path in (*bench.journal_folder.iterdir(), bench.log):
        assert secret not in path.read_text(errors="replace")


# When its box is lost.


@in_both
async def test_when_the_box_is_lost_so_is_the_job_and_all_of_it(bench: Bench) -> None:
    job = bench.job("sh", "-c", "(setsid sleep 1000 &); echo begun; sleep 1000")
    running = asyncio.create_task(bench.do(job))
    await until_async(lambda: "begun" in bench.said())
    _kill_agent(bench)
    with pytest.raises(BoxLost):
        await running
    [outcome] = bench.journal.pending()
    assert outcome.reason == "WorkerLost" and "its box was lost" in outcome.message
    assert bench.below() == {}
    bench.box = bench.new_box()
    await bench.box.start()
    assert await bench.do(job) == outcome
    assert (await bench.run("true")).reason == "Succeeded"


@in_a_sandbox
async def test_a_job_that_ends_its_own_box_is_lost(bench: Bench) -> None:
    script = "kill -9 $PPID; test $PPID = 1 || sleep 1000"
    if isinstance(outcome := await _outcome(bench, script), BoxLost):
        assert [one.reason for one in bench.journal.pending()] == ["WorkerLost"]
    else:
        # Its agent is the first process there, which nothing in the box can end.
        assert outcome.reason == "Succeeded" and os.geteuid() != 0


async def _outcome(bench: Bench, script: str) -> Outcome | BoxLost:
    try:
        return await bench.sh(script)
    except BoxLost as lost:
        return lost


@plain
async def test_an_end_that_was_seen_counts_though_the_box_is_lost_then(bench: Bench) -> None:
    async def clear(but: object = (), *, alone: bool) -> None:
        raise BoxLost("cannot be cleared")

    pytest.MonkeyPatch().setattr(bench.box, "clear", clear)
    with pytest.raises(BoxLost):
        await bench.sh("(setsid sleep 1000 &); exit 3")
    [outcome] = bench.journal.pending()
    assert (outcome.reason, outcome.exit_code) == ("Failed", 3)


@plain
async def test_trouble_that_nobody_thought_of_is_a_lost_box(bench: Bench) -> None:
    async def run(*_: object, **__: object) -> None:
        raise RuntimeError("trouble")

    pytest.MonkeyPatch().setattr(bench.box, "run", run)
    with pytest.raises(BoxLost, match="trouble"):
        await bench.run("true")
    assert [one.reason for one in bench.journal.pending()] == ["WorkerLost"]


@plain
async def test_a_run_that_nobody_waits_for_any_more_has_no_outcome_before_its_box_is_gone(bench: Bench) -> None:
    descriptors = _descriptors(bench)
    job = bench.job("sh", "-c", "echo begun; sleep 1000")
    running = asyncio.create_task(bench.do(job))
    await until_async(lambda: "begun" in bench.said())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert bench.journal.pending() == []
    await bench.box.stop()
    assert bench.below() == {} and len(_descriptors(bench)) <= len(descriptors)
    bench.box = bench.new_box()
    await bench.box.start()
    assert (await bench.do(job)).reason == "WorkerLost" and bench.said() == "begun\n"


def _kill_agent(bench: Bench) -> None:
    os.kill(bench.agent(), signal.SIGKILL)


def _descriptors(bench: Bench) -> dict[str, int]:
    """Return the number of descriptors of each kind, here and in the box."""
    found: dict[str, int] = {}
    for pid in (os.getpid(), *(pid for pid, command in bench.below().items() if "runner" in command)):
        folder = Path(f"/proc/{pid}/fd")
        if not os.access(folder, os.R_OK):
            continue  # The agent's, which nobody but root may see.
        for each in folder.iterdir():
            try:
                kind = stat.S_IFMT(each.stat().st_mode)
            except OSError:
                continue  # The listing's own.
            found[f"{pid} {kind:o}"] = found.get(f"{pid} {kind:o}", 0) + 1
    return found


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
