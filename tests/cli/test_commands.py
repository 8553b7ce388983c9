"""The command line, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import rota


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).parent / "rota"
    return subprocess.run([command, *arguments], capture_output=True, text=True, check=False)


def test_version_prints_the_version() -> None:
    assert run("version").stdout == f"{rota.__version__}\n"


def test_crds_prints_a_list_that_kubectl_can_apply() -> None:
    printed = json.loads(run("crds").stdout)
    assert printed["kind"] == "List"
    assert "workerpools.rota.dev" in [item["metadata"]["name"] for item in printed["items"]]


def test_an_unknown_command_is_refused_with_the_known_ones() -> None:
    refused = run("frobnicate")
    assert refused.returncode == 2
    assert "'version', 'crds'" in refused.stderr
