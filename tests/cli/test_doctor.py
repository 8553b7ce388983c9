"""`rota doctor`: what is looked at, and what is said of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.cli.doctor import doctor, file_system
from rota.cli.session import Session, Settings
from rota.runtime import sandbox
from rota.runtime.container import availability
from rota.runtime.sandbox import system

COMMAND = str(Path(sys.executable).parent / "rota")
THINGS = (
    "Python", "SQLite", "uvloop", "TLS", "kubectl", "git", "cgroups", "sandbox", "isolation", "containers", "home",
    "free disk", "clock",
)  # fmt: skip


def run(home: Path) -> str:
    environment = {**os.environ, "ROTA_HOME": str(home), "NO_COLOR": ""}
    done = subprocess.run([COMMAND, "doctor"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """None of the programs that runtimes use."""
    sandbox.available.cache_clear()
    availability.forget()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(availability, "PATH", str(tmp_path))
    monkeypatch.setattr(system, "PATH", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name, **_: None)
    yield
    sandbox.available.cache_clear()
    availability.forget()


def test_everything_is_looked_at_and_it_is_said_what_it_is_for(tmp_path: Path) -> None:
    shown = run(tmp_path)
    for thing in THINGS:
        assert f" {thing} " in shown, thing
    assert "keeps all objects" in shown


def test_it_leaves_nothing_behind(tmp_path: Path) -> None:
    run(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not [path for path, _, _ in os.walk("/sys/fs/cgroup") if "rota-doctor" in path]


@pytest.mark.usefixtures("nothing_installed")
def test_what_is_missing_is_said_with_what_to_do_and_what_comes_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session(Settings(home=str(tmp_path)))
    doctor(ctx=Context(session), namespace=None, context=None, kubeconfig=None, home=None)
    shown = capsys.readouterr().out
    assert "missing sandbox     bwrap is not installed; install the package bubblewrap" in shown
    assert "missing isolation   none: what an admin starts runs as this user, what others start is refused" in shown
    assert "absent  containers  neither podman nor docker is installed; install the package podman" in shown
    assert "To put right: sandbox, isolation." in shown
    assert "It does without" in shown and "containers" in shown.partition("It does without")[2]


class Context:
    """The session in which a command runs."""

    def __init__(self, session: Session) -> None:
        self.obj = session


def test_the_file_system_of_the_innermost_mount_counts(tmp_path: Path) -> None:
    mounts = f"overlay / overlay rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\ntmpfs {tmp_path}2 tmpfs rw 0 0\n"
    assert file_system(tmp_path / "home", mounts) == "nfs4"
    assert file_system(tmp_path.parent, mounts) == "overlay"


def test_a_home_that_others_may_look_into_is_warned_of(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert f"chmod 700 {tmp_path}" in run(tmp_path)
