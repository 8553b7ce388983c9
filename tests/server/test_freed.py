"""A closed connection leaves nothing for the garbage collector, which comes once in many requests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SECONDS_MAX = 100


def test_a_connection_is_freed_when_it_ends(tmp_path: Path) -> None:
    # In a process of its own: here, whoever looks at tests may keep what they see.
    program = [sys.executable, "-m", "tests.server.freed_program", str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (done.returncode, done.stderr) == (0, "")
