"""The quickstart of the README, run exactly as it is written by somebody who has nothing yet."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.local.distributions import make_wheel, needed
from tests.local.place import processes_of

ROOT = Path(__file__).parents[2]
PORTS = (7443, 7480)
SECONDS_MAX = 110
BUILDER = "hatchling"
APART = """
import ctypes, fcntl, os, socket, struct, sys
CLONE_NEWNET, SIOCSIFFLAGS, UP_AND_RUNNING = 0x40000000, 0x8914, 0x41
if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
    sys.exit(os.strerror(ctypes.get_errno()))
with socket.socket() as lo:
    fcntl.ioctl(lo, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", UP_AND_RUNNING))
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Runs something on a network of its own, which has loopback and nothing else."""


def quickstart() -> str:
    section = (ROOT / "README.md").read_text().partition("## Quickstart\n")[2]
    block: str = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[0]
    return block


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """An index for whoever has no network: what is installed here."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for distribution in (metadata.distribution(BUILDER), *needed("rota", BUILDER)):
        make_wheel(distribution, folder)
    return folder


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_quickstart(tmp_path: Path, wheels: Path) -> None:
    home, programs = tmp_path / "home", tmp_path / "programs"
    home.mkdir()
    programs.mkdir()
    (programs / "python3").symlink_to(os.path.realpath(sys.executable))
    environment = {
        "HOME": str(home),
        "PATH": f"{programs}:{os.defpath}:/usr/local/bin",
        "LANG": "C.UTF-8",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_COMPILE": "1",
    }
    try:
        done = subprocess.run(
            [*_apart(), "sh", "-e", "-c", quickstart()],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith('{"message": "Hello, Ada!"}'), done.stdout
        assert "Rota is ready at https://127.0.0.1:7443; functions and webhooks at http://127.0.0.1:7480" in done.stdout
    finally:
        for rota in home.glob("*/bin/rota"):
            subprocess.run([rota, "stop", "--grace", "0"], env=environment, check=True, capture_output=True)
    assert processes_of(home) == []


def _apart() -> list[str]:
    """On a network of its own, where nobody else has its ports; without the right to that, if they are free."""
    apart = [sys.executable, "-c", APART]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode == 0:
        return apart
    for port in PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                pytest.skip(f"port {port} is taken, and no network of its own can be had")
    return []
