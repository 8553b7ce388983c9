"""kr8s against `rota up`: its objects for our kinds, looked up by discovery."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.server.live import live

PROGRAM = "tests.server.kr8s_program"
SECONDS_MAX = 120


def test_pools_are_found_made_awaited_scaled_marked_watched_and_removed(tmp_path: Path) -> None:
    with live(tmp_path / "home") as server:
        command = [sys.executable, "-m", PROGRAM, str(server.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (done.returncode, done.stdout.split()) == (0, ["discover", "change", "watch"]), done.stderr
