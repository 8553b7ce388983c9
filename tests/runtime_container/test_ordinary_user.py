"""The same containers, made by an ordinary user. The other tests run as whoever runs them; here root has them run."""

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

from rota.runtime.container import Engine
from rota.runtime.sandbox import system
from tests.amount import LONG

UID, SUB_UID, SUB_UIDS = 54322, 7_000_000, 65536
SECONDS_MAX = 110
REPOSITORY = Path(__file__).parents[2]
TESTS: tuple[str, ...] = ("test_environment.py", "test_exec.py")
if LONG:
    TESTS += ("test_container.py", "test_kept.py", "test_removal.py")
# Makes the user known, in a view of the disk that nobody else has, with ways to places where only root can look.
VIEW = """
set -e
files=$1 closed=$2 shown=$3 uid=$4
shift 4
for file in passwd group subuid subgid; do mount --bind "$files/$file" "/etc/$file"; done
number=0
for folder in $shown; do number=$((number + 1)); mkdir "$files/$number"; mount --bind "$folder" "$files/$number"; done
for folder in $closed; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
number=0
for folder in $shown; do number=$((number + 1)); mkdir -p "$folder"; mount --move "$files/$number" "$folder"; done
mount --make-rshared /
cd "$HOME"
exec setpriv --reuid $uid --regid $uid --clear-groups -- "$@"
"""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="becomes an ordinary user, which takes root"),
    pytest.mark.skipif(
        shutil.which("newuidmap") is None or not Path("/etc/subuid").exists(),
        reason="there is no newuidmap; install the package uidmap",
    ),
]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can get to, and nothing of the user afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="rota-ordinary-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{entry}").st_uid == UID:
                os.kill(int(entry), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue
    shutil.rmtree(folder)


def test_an_ordinary_user_has_them_too(engine: Engine, place: Path) -> None:
    files, home = place / "files", place / "home"
    for folder in (files, home, home / "run", home / "tmp"):
        folder.mkdir(mode=0o755)
        os.chown(folder, UID, UID)
    for name, line in (("passwd", f"ordinary:x:{UID}:{UID}::{home}:/bin/sh"), ("group", f"ordinary:x:{UID}:")):
        (files / name).write_text(f"{Path('/etc', name).read_text()}{line}\n")
    for name in ("subuid", "subgid"):
        (files / name).write_text(f"ordinary:{SUB_UID}:{SUB_UIDS}\n")
    folders = [*system.python_folders(), REPOSITORY]
    closed = {top for top in map(Path, ("/root", "/home")) for folder in folders if folder.is_relative_to(top)}
    shown = [folder for folder in folders if closed & {*folder.parents}]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", VIEW, "sh", str(files),
         " ".join(map(str, closed)), " ".join(map(str, shown)), str(UID),
         sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={home}/tmp/base",
         f"--rootdir={REPOSITORY}", f"--config-file={REPOSITORY}/pyproject.toml",
         *(str(REPOSITORY / "tests" / "runtime_container" / name) for name in TESTS)],
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(home),
             "USER": "ordinary", "XDG_RUNTIME_DIR": str(home / "run"), "PYTHONDONTWRITEBYTECODE": "1",
             "PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "cannot run a container" not in done.stdout, done.stdout
