"""kill -9 of a runner at every step: its job is run at most once, has one outcome, and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota.runtime.keeper.kernel import descendants_of
from tests.runner import crashing_queue
from tests.runner.crashing import STEPS
from tests.workers.apart import apart

RUN_SECONDS_MAX = 30
ENDED = {"before sync", "after sync", "after told", "before acknowledged", "after acknowledged", "never"}
"""The steps after which the outcome is written."""


def run(folder: Path, step: str, program: str = "tests.runner.crashing") -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", program, str(folder), step],
        stdout=subprocess.PIPE,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    # That is what a keeper sees to.
    while below := descendants_of(os.getpid()):
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return done.returncode, done.stdout.decode().splitlines()


@pytest.mark.parametrize("step", STEPS)
def test_a_job_is_run_at_most_once_and_has_one_outcome(tmp_path: Path, step: str) -> None:
    @apart
    async def test() -> None:
        (tmp_path / "home").mkdir()
        code, said = run(tmp_path, step)
        assert code == (0 if step == "never" else -signal.SIGKILL)
        first = [line for line in said if line.startswith("told")]
        effects = _lines(tmp_path / "effects")
        code, said = run(tmp_path, "never")
        assert code == 0
        [told] = [line for line in said if line.startswith("told")]
        if step == "before begun":
            # Nobody ever heard of it: now it is run for the first time.
            assert said == ["told Succeeded fine"] and _lines(tmp_path / "effects") == ["run"]
        else:
            assert _lines(tmp_path / "effects") == effects
            was_acknowledged = step in ("after acknowledged", "never")
            known = "Succeeded fine" if step in ENDED else "WorkerLost "
            assert told == f"told {'Succeeded ' if was_acknowledged else known}"
            assert [line for line in said if line.startswith("pending")] == (
                [] if was_acknowledged else [f"pending {known}"]
            )
        assert all(line == "told Succeeded fine" for line in first)
        assert not (tmp_path / "home" / "key").exists()

    test()


@pytest.mark.parametrize("step", crashing_queue.STEPS)
def test_each_of_many_jobs_begins_at_most_once_and_its_end_is_sent_by_the_next_runner(
    tmp_path: Path, step: str
) -> None:
    @apart
    async def test() -> None:
        code, said = run(tmp_path, step, crashing_queue.__name__)
        assert code == (0 if step == "never" else -signal.SIGKILL)
        began = set(_lines(tmp_path / "effects"))
        code, again = run(tmp_path, "never", crashing_queue.__name__)
        assert code == 0
        sent = [line.split()[1:] for line in again]
        # Nothing was acknowledged: the next runner sends each outcome, once, and none that contradicts the first.
        assert sorted(id_ for id_, _ in sent) == sorted(crashing_queue.JOBS)
        assert set(said) <= set(again)
        effects = _lines(tmp_path / "effects")
        assert len(effects) == len(set(effects))
        assert set(effects) >= {id_ for id_, reason in sent if reason == "Succeeded"} | began

    test()


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
