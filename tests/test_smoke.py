"""The round that every supported version of Python makes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.smoke import smoke

ROOT = Path(__file__).parent.parent


def test_server_function_pool_task_and_claim_work(tmp_path: Path) -> None:
    assert smoke(tmp_path) == ["server", "function", "pool", "task", "claim"]


def test_the_same_versions_of_python_are_tried_declared_and_promised() -> None:
    tried = re.search(r"^supported=\((.*)\)$", (ROOT / ".ci" / "versions").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [one.rpartition(" ")[2] for one in project["classifiers"] if one.startswith("Programming Language")]
    promised = re.search(r"Both need Python ([0-9., or]+) and nothing else", (ROOT / "README.md").read_text())
    assert tried is not None and promised is not None
    versions = tried[1].split()
    assert declared == ["3", *versions]
    assert project["requires-python"] == f">={versions[0]}"
    assert re.findall(r"[0-9.]+", promised[1].replace(",", "")) == versions
