"""Find the processes that a test run started and did not end.

A run marks its environment, which the processes that it starts inherit, however they detach themselves; pytest adds the
name of the test. A keeper has an environment of its own, which an ordinary user may not read either; it is found by its
home, below the run's temporary folder.

An ordinary user's podman starts a process of its own when it is first used, and keeps it on purpose: that one may stay.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

MARK = "TEST_RUN_OF_ROTA"
GRACE_SECONDS = 10.0
POLL_SECONDS = 0.1
KEPT_BY_PODMAN = "_PODMAN_PAUSE=1"


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
        except (ProcessLookupError, PermissionError):
            continue


def _of_run(mark: str, folder: Path) -> dict[int, str]:
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        if int(name) == os.getpid():
            continue
        environment, command = _words(name, "environ"), " ".join(_words(name, "cmdline"))
        if KEPT_BY_PODMAN in environment:
            continue
        if f"{MARK}={mark}" in environment or f"{folder}/" in command:
            test = next((one.partition("=")[2] for one in environment if one.startswith("PYTEST_CURRENT_TEST=")), "?")
            found[int(name)] = f"{command.strip()[:160]} (started by {test})"
    return found


def _words(pid: str, file: str) -> list[str]:
    """Return what a process says of itself; nothing if it is gone, or does not let this user read it."""
    try:
        return Path("/proc", pid, file).read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
