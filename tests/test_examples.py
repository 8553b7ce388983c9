"""The examples, each run by its README on a server of its own, as somebody who copies it does."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.place import processes_of
from tests.printed import ROOT
from tests.test_pages import Reader, blocks

EXAMPLES = ROOT / "examples"
SECONDS_MAX = 300

SIGNATURE = hmac.new(b"change-me", b"three orders, 6,540 EUR", hashlib.sha256).hexdigest()
SAID = {
    "agents": ["all 20 tasks are done"],
    "cities": [r"^everywhere +lhr +lhr-1 ", r"^the hub is down$"],
    "cron": [
        f'"report":"three orders, 6,540 EUR","signature":"{SIGNATURE}"',
        r"report-morning-run-\w+ +manual +Succeeded",
    ],
    "graph": ["^8 31 9$", "Task/summary is ready"],
    "sandboxes": ["^ada: passed$", r"^bob: AssertionError: add\(2, 2\) is 0$", "^eve: took longer than 10 s$"],
}
"""Lines that an example has to print, as patterns."""
ELSEWHERE = {"plan": "tests/cli/test_plan.py"}
"""Examples that other tests run."""


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("name", sorted(SAID))
def test_an_example_does_what_it_says(name: str, tmp_path: Path) -> None:
    if name == "cron" and (problem := cannot_install("humanize>=4", tmp_path)):
        pytest.skip(f"there is no package index to install humanize from: {problem}")
    reader = Reader(tmp_path)
    shutil.copytree(EXAMPLES / name, tmp_path / name)
    scripts = [text for language, text in blocks(tmp_path / name / "README.md") if language == "sh"]
    assert scripts
    try:
        # On free ports: somebody else may have those of the pages.
        reader.run("rota start --port 0 --edge-port 0")
        reader.run(f"cd {name}")
        said = "".join(reader.run(script) for script in scripts)
        for line in SAID[name]:
            assert re.search(line, said, re.MULTILINE), f"{line}\n{said}"
    finally:
        reader.run("rota fleet down" if name == "cities" else "rota stop --grace 0")
        assert not processes_of(tmp_path)


@pytest.mark.timeout(SECONDS_MAX)
def test_the_story_of_make_run_is_told_to_its_end_and_leaves_nothing_running(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    told = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo"), "--port", "0", "--edge-port", "0"],
        env=environment | {"ROTA_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "everything that the demo made is ended and taken away" in told.stdout
    assert not processes_of(home)


def cannot_install(requirement: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"--dest={folder / 'wheels'}", requirement],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def test_every_example_is_run() -> None:
    folders = {folder.name for folder in EXAMPLES.iterdir() if folder.is_dir() and folder.name != "__pycache__"}
    assert folders == {"demo", *SAID, *ELSEWHERE}
    for where in ELSEWHERE.values():
        assert (ROOT / where).exists(), where
