"""The availability of a sandbox, with the reason if there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.runtime.keeper.kernel import is_alive, start_time_of
from rota.runtime.sandbox import SandboxUnavailable, available, command, own, system, uid_of
from rota.runtime.sandbox.identity import UID_COUNT, UID_FIRST
from tests.until import until

ORDINARY_UID = "54321"


@pytest.fixture
def asked_anew() -> Iterator[None]:
    available.cache_clear()
    yield
    available.cache_clear()


@pytest.mark.usefixtures("asked_anew")
def test_without_bubblewrap_it_says_what_to_install_and_fails_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(system, "PATH", "/nowhere")
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    assert available() == (False, "bwrap is not installed; install the package bubblewrap")
    with pytest.raises(SandboxUnavailable, match="install the package bubblewrap"):
        command(["true"], scratch=tmp_path / "scratch")


@pytest.mark.usefixtures("asked_anew")
def test_a_bubblewrap_that_cannot_run_is_told_with_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(system, "PATH", f"{tmp_path}:{system.PATH}")
    found = available()
    assert not found.ok and "No permissions to create new namespace" in found.why_not


@pytest.mark.usefixtures("asked_anew")
def test_a_trial_that_hangs_is_ended_with_all_that_it_has_begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow, begun = tmp_path / "bwrap", tmp_path / "begun"
    slow.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {begun}.new && mv {begun}.new {begun}\nwait\n")
    slow.chmod(0o755)
    monkeypatch.setattr(system, "PATH", f"{tmp_path}:{system.PATH}")
    monkeypatch.setattr("rota.runtime.sandbox.availability.TRIAL_SECONDS_MAX", 1)
    while not begun.exists():
        available.cache_clear()
        found = available()
        assert not found.ok and "timed out" in found.why_not
    child = int(begun.read_text())

    def has_ended() -> bool:
        began = start_time_of(child)
        return began is None or not is_alive(child, began)

    until(has_ended, f"process {child}, which the trial had begun, goes on")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes an ordinary user, which takes root")
def test_an_ordinary_user_has_one_too(tmp_path: Path) -> None:
    """The other tests of this folder run as whoever runs them; here root has them run by somebody else."""
    if not available().ok:
        pytest.skip(available().why_not)
    # Python and the tests may be in places where nobody but root can look: the same disk, with ways there.
    repository = Path(__file__).parents[2]
    folders = [*system.python_folders(), repository]
    closed = {Path("/", folder.parts[1]) for folder in folders} & {Path("/root"), Path("/home")}
    covered = closed | {Path("/tmp")}
    parents = sorted({parent for each in folders for parent in each.parents if covered & {*parent.parents}})
    ways = ["--perms", "1777", "--tmpfs", "/tmp"]
    ways += [option for folder in sorted(closed) for option in ("--perms", "0755", "--tmpfs", str(folder))]
    ways += [option for folder in parents for option in ("--perms", "0755", "--dir", str(folder))]
    ways += [option for folder in folders for option in ("--ro-bind", str(folder), str(folder))]
    tests = [str(path) for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    done = subprocess.run(
        ["bwrap", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--dev-bind", "/proc", "/proc", *ways,
         "--chdir", str(repository), "--",
         "setpriv", "--reuid", ORDINARY_UID, "--regid", ORDINARY_UID, "--clear-groups", "--",
         sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        capture_output=True, text=True, timeout=100, env={"PATH": system.PATH},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bubblewrap cannot run" not in done.stdout


def test_a_uid_is_always_the_same_for_a_name_and_in_its_range() -> None:
    assert uid_of("default/pool/0") == uid_of("default/pool/0") != uid_of("default/pool/1")
    uids = {uid_of(f"default/pool/{ordinal}") for ordinal in range(1000)}
    assert len(uids) == 1000
    assert all(UID_FIRST <= uid < UID_FIRST + UID_COUNT for uid in uids)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away, which takes root")
def test_ownership_is_given_without_following_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    storage = tmp_path / "storage"
    (storage / "deep" / "er").mkdir(parents=True)
    (storage / "deep" / "link").symlink_to(outside)
    (storage / "folder-link").symlink_to(tmp_path)
    os.mkfifo(storage / "fifo")
    own(storage, UID_FIRST)
    assert outside.stat().st_uid == 0 and tmp_path.stat().st_uid == 0
    assert {path.lstat().st_uid for path in (storage, *storage.rglob("*"))} == {UID_FIRST}
