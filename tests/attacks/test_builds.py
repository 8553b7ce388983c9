"""By the build of a package, which runs what the package brings."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from pathlib import Path

import pytest

from rota.runtime import sandbox
from rota.runtime.code import CodeRefused, Packages, building
from rota.runtime.code.places import PACKAGES
from rota.runtime.space import Space
from tests.runtime.test_closed_addresses import offered
from tests.until import until

NAME = "evilthing"
MIB = 1024 * 1024
PYPROJECT = f"""\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "{NAME}"
version = "1.0"
"""
BACKEND = """\
import os, time
def build_wheel(*_, **__):
    {}
"""
WAIT = "time.sleep(60)"
DOES = {
    "processes and threads": f"[os.fork() or {WAIT} for _ in range(300)]; {WAIT}",
    # By two of them, of which none has too much alone.
    "of memory": f"os.fork(); kept = bytearray(200 << 20); kept[::4096] = b'x' * (200 << 8); {WAIT}",
    "bytes on the disk": f"open('/workspace/hoard', 'wb').write(bytes(20 << 20)); {WAIT}",
    "where each file counts": f"[os.symlink('x', f'/workspace/{{i}}') for i in range(3_000)]; {WAIT}",
    "longer than": WAIT,
}


def packed(folder: Path, does: str) -> Path:
    """A folder with a package that has no wheel."""
    folder.mkdir()
    with tarfile.open(folder / f"{NAME}-1.0.tar.gz", "w:gz") as archive:
        for name, text in {"backend.py": BACKEND.format(does), "pyproject.toml": PYPROJECT}.items():
            member = tarfile.TarInfo(f"{NAME}-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not sandbox.available().ok:
        pytest.skip(sandbox.available().why_not)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))
    monkeypatch.setattr(building, "DISK_BYTES_MAX", 8 * MIB)
    monkeypatch.setattr(building, "PIDS_MAX", 200)
    monkeypatch.setattr("rota.runtime.code.packages.default_memory", lambda: 2 * 300 * MIB)
    return tmp_path / "home"


def refused(home: Path) -> CodeRefused:
    with pytest.raises(CodeRefused) as raised:
        asyncio.run(Packages(home).install([NAME]))
    return raised.value


@pytest.mark.parametrize("what", DOES)
def test_to_take_more_than_a_build_may(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    packed(tmp_path / "packages", DOES[what])
    if what == "longer than":
        monkeypatch.setattr(building, "BUILD_SECONDS_MAX", 1.0)
    if what == "processes and threads":
        monkeypatch.setattr("rota.runtime.code.packages.default_memory", lambda: 1 << 40)
    error = refused(home)
    assert error.reason == "RequirementsFailed" and what in str(error)
    # Nothing of it stays.
    left = (home / "functions" / PACKAGES).iterdir
    until(lambda: not list(left()), lambda: list(left()))


@pytest.mark.skipif(offered() != "", reason=offered())
def test_to_reach_metadata_by_a_build(home: Path, tmp_path: Path) -> None:
    knock = "import socket; socket.socket(type=socket.SOCK_DGRAM).connect(('169.254.169.254', 80))"
    packed(tmp_path / "packages", f"{knock}; raise RuntimeError('reached')")
    error = refused(home)
    assert error.reason == "PackageBuildFailed"
    assert "Operation not permitted" in str(error) and "reached" not in str(error)


def test_to_build_on_a_disk_that_is_short(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(tmp_path / "packages", WAIT)
    monkeypatch.setattr("rota.runtime.space.space_of", lambda path: Space(1000 * MIB, MIB))
    assert refused(home).reason == "NoSpace"
