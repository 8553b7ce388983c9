"""The same commands, typed by an ordinary user. The other tests run as whoever runs them; here root has them run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.runtime.sandbox import system
from tests.amount import LONG
from tests.runtime_container.conftest import found
from tests.runtime_container.test_ordinary_user import VIEW

# Not those of other tests: all processes of the user are ended.
UID, SUB_UID, SUB_UIDS = 54323, 7_100_000, 65536
SECONDS_MAX = 110
REPOSITORY = Path(__file__).parents[2]
NATIVE = (
    "test_background.py::test_status_tells_where_it_is_and_what_it_does",
    "test_background.py::test_a_killed_server_is_told_with_the_end_of_its_log_and_its_work_goes_on",
    "test_restart.py::test_what_runs_goes_on_under_a_new_server_at_the_same_address",
)
FROM_IMAGE = ("test_image.py::test_a_server_in_a_container_is_stopped_with_it",)

pytestmark = [
    pytest.mark.skipif(not LONG, reason="for an ordinary user, all of it: `make long`"),
    pytest.mark.skipif(os.geteuid() != 0, reason="becomes an ordinary user, which takes root"),
    pytest.mark.skipif(
        shutil.which("newuidmap") is None or not Path("/etc/subuid").exists(),
        reason="there is no newuidmap; install the package uidmap",
    ),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody can get to, and nothing of the user afterwards."""
    made = Path(tempfile.mkdtemp(prefix="rota-ordinary-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{entry}").st_uid == UID:
                os.kill(int(entry), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue
    shutil.rmtree(made)


def test_an_ordinary_user_has_a_server_too(folder: Path) -> None:
    assert f"{len(NATIVE)} passed" in _tested(folder, NATIVE)


def test_an_ordinary_user_has_a_server_from_an_image_too(folder: Path) -> None:
    facts = found()
    if isinstance(facts, str):
        pytest.skip(facts)
    assert f"{len(FROM_IMAGE)} passed" in _tested(folder, FROM_IMAGE)


def _tested(folder: Path, tests: tuple[str, ...]) -> str:
    """Run these tests as the user. Returns the result."""
    files, home = folder / "files", folder / "home"
    for made in (files, home, home / "run"):
        made.mkdir(mode=0o755)
        os.chown(made, UID, UID)
    for name, line in (("passwd", f"ordinary:x:{UID}:{UID}::{home}:/bin/sh"), ("group", f"ordinary:x:{UID}:")):
        (files / name).write_text(f"{Path('/etc', name).read_text()}{line}\n")
    for name in ("subuid", "subgid"):
        (files / name).write_text(f"ordinary:{SUB_UID}:{SUB_UIDS}\n")
    folders = [*system.python_folders(), REPOSITORY]
    closed = {top for top in map(Path, ("/root", "/home")) for one in folders if one.is_relative_to(top)}
    shown = [one for one in folders if closed & {*one.parents}]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", VIEW, "sh", str(files),
         " ".join(map(str, closed)), " ".join(map(str, shown)), str(UID),
         sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={home}/base",
         f"--rootdir={REPOSITORY}", f"--config-file={REPOSITORY}/pyproject.toml",
         *(str(REPOSITORY / "tests" / "local" / name) for name in tests)],
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(home),
             "USER": "ordinary", "XDG_RUNTIME_DIR": str(home / "run"), "PYTHONDONTWRITEBYTECODE": "1",
             "PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
