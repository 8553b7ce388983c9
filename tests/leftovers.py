"""Find the processes that a test run started and did not end.

A run marks its environment, which the processes that it starts inherit, however they detach themselves; pytest adds the
name of the test. A keeper has an environment of its own and is found by its home, below the run's temporary folder.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

MARK = "TEST_RUN_OF_ROTA"
GRACE_SECONDS = 10.0
POLL_SECONDS = 0.1


def mark_run() -> str:
    os.environ[MARK] = os.urandom(8).hex()
    return os.environ[MARK]


def left_behind(mark: str, folder: Path, grace_seconds: float = GRACE_SECONDS) -> dict[int, str]:
    """Return the processes of a run that are still there after a grace period, each with a description."""
    deadline = time.monotonic() + grace_seconds
    while (found := _of_run(mark, folder)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return found


def end(pids: dict[int, str]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _of_run(mark: str, folder: Path) -> dict[int, str]:
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        if int(name) == os.getpid():
            continue
        try:
            environment = Path("/proc", name, "environ").read_bytes().decode(errors="replace").split("\0")
            command = Path("/proc", name, "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if f"{MARK}={mark}" in environment or f"{folder}/" in command:
            test = next((one.partition("=")[2] for one in environment if one.startswith("PYTEST_CURRENT_TEST=")), "?")
            found[int(name)] = f"{command.strip()[:160]} (started by {test})"
    return found
