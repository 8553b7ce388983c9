"""A test run that leaves a process behind fails, and names the test that started it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.leftovers import MARK, end, left_behind


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
