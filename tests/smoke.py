"""A first round of everything with one interpreter: server, function, pool, task and claim.

`PYTHON tests/smoke.py` needs Rota installed beside that interpreter and nothing else, so that every supported version
of Python can run it without the tools of the suite.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND_SECONDS_MAX = 120.0
ROTA = (str(Path(sys.executable).parent / "rota"),)


def smoke(folder: Path) -> list[str]:
    """Return what was tried. Raises AssertionError, with what the command printed, at the first thing that fails."""
    environment = {**os.environ, "ROTA_HOME": str(folder / "home")}
    project = folder / "project"

    def rota(*arguments: str) -> str:
        done = subprocess.run(
            [*ROTA, *arguments],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            env=environment,
            cwd=folder,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"rota {' '.join(arguments)}: exit code {done.returncode}\n{said}"
        return said

    rota("init", "project")
    rota("start", "--port", "0", "--edge-port", "0")
    try:
        rota("deploy", "-f", str(project))
        rota("wait", "wp/workers", "fn/hello", "--for", "condition=Ready", "--timeout", "60s")
        assert "Hello, Ada!" in rota("call", "hello", "--data", '{"name": "Ada"}')
        assert "from a task" in rota("run", "--follow", "--", "echo", "from a task")
        assert "from a claim" in rota("claim", "workers", "--", "echo", "from a claim")
    finally:
        rota("stop")
    return ["server", "function", "pool", "task", "claim"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tried = smoke(Path(folder))
    print(f"Python {platform.python_version()}: {', '.join(tried)} work")


if __name__ == "__main__":
    main()
