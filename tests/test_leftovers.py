"""A test run that leaves a process behind fails, and names the test that started it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rota.runtime.keeper.client import LogSpec
from rota.runtime.keeper.kernel import descendants_of
from tests.leftovers import GRACE_SECONDS, MARK, end, left_behind
from tests.runtime.homes import Home


def test_a_process_that_detached_itself_is_found_named_and_ended(tmp_path: Path) -> None:
    environment = {**os.environ, MARK: "another-run"}
    with subprocess.Popen(["sleep", "1000"], env=environment, start_new_session=True) as process:
        found = left_behind("another-run", tmp_path, grace_seconds=0)
        assert found == {process.pid: f"sleep 1000 (started by {os.environ['PYTEST_CURRENT_TEST']})"}
        end(found)
        assert process.wait(10) == -9
    assert left_behind("another-run", tmp_path, grace_seconds=0) == {}


def test_a_process_without_the_environment_is_found_by_a_path_it_was_given(tmp_path: Path) -> None:
    with subprocess.Popen(["tail", "-f", "/dev/null", tmp_path / "home"], env={}, stderr=subprocess.DEVNULL) as process:
        found = left_behind("no-run", tmp_path, grace_seconds=0)
        assert list(found) == [process.pid]
        end(found)


async def test_a_keeper_is_found_with_what_it_runs_though_nobody_may_read_their_environment(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with home.keeper() as keeper:
        record = await keeper.start("a", "1", ["sleep", "1000"], env={}, cwd="/", log=LogSpec(str(tmp_path / "a")))
        assert keeper.hello is not None
        found = left_behind("no-run", tmp_path, grace_seconds=0)
        assert {keeper.hello.pid} <= found.keys() <= {keeper.hello.pid, record.pid, *descendants_of(record.pid)}
        end({keeper.hello.pid: ""})
        assert left_behind("no-run", tmp_path, grace_seconds=GRACE_SECONDS) == {}


def test_what_podman_keeps_for_its_user_is_left_alone(tmp_path: Path) -> None:
    environment = {MARK: "another-run", "_PODMAN_PAUSE": "1"}
    with subprocess.Popen(["sleep", "1000"], env=environment) as process:
        assert left_behind("another-run", tmp_path, grace_seconds=0) == {}
        process.kill()
