"""The code of the how-to runs as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rota.client.claims.gateway import AWAY_SECONDS_MAX
from rota.client.claims.result import OUTPUT_BYTES_MAX
from tests.server.live import ROTA, Live

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "sandboxes.md").read_text()
SECONDS_MAX = 60


def shown(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def run(home: Path, *words: str) -> str:
    environment = {**os.environ, "ROTA_HOME": str(home), "PATH": f"{Path(ROTA).parent}:{os.environ['PATH']}"}
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0 and "Error" not in done.stderr and "Warning" not in done.stderr, done.stderr
    return done.stdout


def test_the_page_runs_as_written(tmp_path: Path) -> None:
    live = Live(tmp_path)
    try:
        (manifest,), (first, held), (asynchronous, plain) = shown("yaml"), shown("sh"), shown("python")
        (tmp_path / "boxes.yaml").write_text(manifest)
        assert "from /" in run(tmp_path, "sh", "-ec", first)
        assert run(tmp_path, sys.executable, "-W", "error", "-c", asynchronous) == "0 passed\n\n"
        assert run(tmp_path, sys.executable, "-W", "error", "-c", plain) == "remember the milk\n"
        said = run(tmp_path, "sh", "-ec", held)
        assert said.count("claim/review") == 3 and "the same instance" in said
        assert " Bound " not in run(tmp_path, ROTA, "get", "claims")
    finally:
        live.end()


@pytest.mark.parametrize("bound", [f"{AWAY_SECONDS_MAX:g} seconds", f"{OUTPUT_BYTES_MAX // 2**20} MiB"])
def test_the_bounds_are_on_the_page(bound: str) -> None:
    assert bound in PAGE
