"""The agents that speak the protocol: the one in Python, the static one in C, and that with sanitizers in it."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rota.runtime.composing import AGENT

SOURCES = Path(__file__).parent.parent.parent / "agent"
BUILD_SECONDS_MAX = 100
PYTHON = (sys.executable, *AGENT)
KINDS = ("python", "c", "sanitized")
TARGETS = {"c": "agent", "sanitized": "agent-sanitized", "fuzz": "fuzz"}


@functools.cache
def _folder() -> Path:
    """Return where this process builds. Other users run it there, too; it is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="rota-agent-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def built(kind: str) -> Path | str:
    """Return the program of a kind, or why there is none."""
    if sys.platform != "linux":
        return "the agent in C is for Linux"
    if shutil.which("cc") is None or shutil.which("make") is None:
        return "the agent in C is built with make and cc, of which one is not installed"
    target = _folder() / TARGETS[kind]
    make = ["make", "-s", "-C", str(SOURCES), f"BUILD={_folder()}", str(target)]
    done = subprocess.run(make, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False)
    if "cannot find " in done.stderr:
        return f"this machine has no libraries to build the {kind} agent with"
    assert done.returncode == 0, done.stderr
    return target


def program(kind: str) -> Path:
    """Return the program of a kind, or skip the test that wants it."""
    found = built(kind)
    if isinstance(found, str):
        pytest.skip(found)
    return found


def argv(kind: str) -> tuple[str, ...]:
    """Return what starts an agent of a kind, or skip the test that wants it."""
    return PYTHON if kind == "python" else (str(program(kind)),)
