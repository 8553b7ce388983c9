"""Tasks under fire: whatever is killed, every task ends, and no attempt does its work twice."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.api.task import ATTEMPTS_MAX
from rota.control.tasks.lifecycle import LOSSES_MAX
from rota.runtime import sandbox
from tests.server.live import ROTA
from tests.tasks.chaos import Storm, is_over

KILLS = int(os.environ.get("ROTA_TASK_KILLS", "5"))
"""More of them: `make chaos`."""
SEED = int(os.environ.get("ROTA_TASK_SEED", "1"))
FAILURE_CODE = 3
Step = Callable[[Storm], None]
STEPS: dict[str, tuple[int, Step]] = {
    "command": (4, lambda storm: storm.kill("instance")),
    "runner": (3, lambda storm: storm.kill("runner")),
    "agent": (3, lambda storm: storm.kill("agent")),
    "box": (2, lambda storm: storm.kill("box")),
    "server": (3, lambda storm: storm.kill("server")),
    "keeper": (1, lambda storm: storm.kill("keeper")),
    "submit": (7, Storm.submit),
    "cancel": (1, Storm.cancel),
    "delete a task": (1, Storm.delete_task),
    "delete an instance": (2, Storm.delete_instance),
    "roll": (1, Storm.roll),
    "scale": (1, Storm.scale),
    "restart": (1, Storm.restart),
}
"""Events, each with its weight."""

pytestmark = pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Storm]:
    made = Storm(tmp_path, SEED)
    try:
        yield made
    finally:
        made.live.kill()
        argv = (ROTA, "stop", "--grace", "0", "--home", str(made.home))
        subprocess.run(argv, capture_output=True, timeout=60, check=True)


@pytest.mark.timeout(420 + 8 * KILLS)
def test_whatever_is_killed_every_task_ends_and_each_attempt_did_its_work_at_most_once(storm: Storm) -> None:
    storm.apply()
    storm.until(storm.is_settled)
    storm.submit()
    while sum(storm.kills.values()) < KILLS:
        [step] = storm.chance.choices(list(STEPS), [often for often, _ in STEPS.values()])
        STEPS[step][1](storm)
    storm.settle()
    tasks = storm.tasks()
    ends = Counter(one["status"].get("reason") or one["status"]["phase"] for one in tasks.values())
    print(
        f"seed {SEED}: killed {dict(storm.kills)}, {dict(storm.done)};"
        f" of {len(storm.made)} tasks there are {dict(ends)},"
        f" with {sum(one['status'].get('tries', 0) for one in tasks.values())} attempts,"
        f" {sum(one['status'].get('losses', 0) for one in tasks.values())} of them lost; in {storm.seconds:.0f} s"
    )
    for task in tasks.values():
        _is_accounted_for(task, storm.effects.count())
    assert {id_: count for id_, count in storm.effects.count().items() if count > 1} == {}
    _nothing_is_left(storm)


def _is_accounted_for(task: Any, effects: Counter[str]) -> None:
    """Assert that the status of a task has all of its attempts, and no others."""
    status, uid = task["status"], task["metadata"]["uid"]
    attempts, tries = status.get("attempts", []), status.get("tries", 0)
    assert is_over(task) and len(attempts) == min(tries, ATTEMPTS_MAX), task
    reasons = [one["reason"] for one in attempts]
    assert status.get("losses", 0) == reasons.count("WorkerLost") <= LOSSES_MAX + 1, task
    retry = task["spec"].get("retry", {})
    assert tries - status.get("losses", 0) <= 1 + retry.get("limit", 0), task
    ids = {f"{uid}.{number}" for number in range(tries)}
    assert {id_ for id_ in effects if id_.startswith(f"{uid}.")} <= ids, task
    for number, attempt in enumerate(attempts):
        if attempt["reason"] == "Succeeded" or attempt.get("exitCode") == FAILURE_CODE:
            assert effects[f"{uid}.{number}"] == 1, (number, task)
    is_success = status["phase"] == "Succeeded"
    assert reasons.count("Succeeded") == is_success and (not is_success or reasons[-1] == "Succeeded"), task
    if is_success:
        assert status["outputs"] == {"attempt": f"{uid}.{tries - 1}"}, task


def _nothing_is_left(storm: Storm) -> None:
    storm.until(lambda: not any("assignment" in one["spec"] for one in storm.live.read("inst")["items"]))
    assert storm.instances().keys() == storm.wanted()
    storm.until(lambda: storm.pending() == [])
    storm.until(lambda: storm.commands() == [])
    storm.until(lambda: not any("deletionTimestamp" in one["metadata"] for one in storm.tasks().values()))
    uids = {task["metadata"]["uid"] for task in storm.tasks().values()}
    storm.until(lambda: storm.logs() <= uids)
    storm.until(lambda: len(storm.names("instances", "default")) == len(storm.wanted()))
    if groups := storm.groups():
        assert len(groups) == len(storm.wanted())
    assert len(storm.keepers()) == 1 and storm.mounts() == []
    storm.stop()
    assert [one.command for one in storm.processes()] == [] and storm.groups() == []
