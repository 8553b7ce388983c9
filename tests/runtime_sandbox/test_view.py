"""The view from inside a sandbox."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.runtime.sandbox import Bind
from tests.runtime_sandbox.conftest import Box


def test_a_file_of_the_home_cannot_be_read(box: Box) -> None:
    secret = box.folder.parent / "token"
    secret.write_text("s3cret")
    said = box.shell(f"cat {secret}; ls {box.folder.parent}", hide=[box.folder.parent])
    assert "s3cret" not in said
    assert said.count("No such file") == 2


def test_a_home_inside_a_folder_that_is_shown_is_masked(box: Box, tmp_path: Path) -> None:
    home = tmp_path / "shown" / "home"
    home.mkdir(parents=True)
    (home / "token").write_text("s3cret")
    (home.parent / "beside").write_text("seen")
    shown = [Bind(home.parent, "/data")]
    said = box.shell("cat /data/beside; cat /data/home/token; touch /data/home/x", read_only=shown, hide=[home])
    assert said.startswith("seen") and "s3cret" not in said
    assert "Read-only file system" in said or "Permission denied" in said


def test_another_instances_files_environment_and_sockets_are_out_of_reach(make_box: Callable[[str], Box]) -> None:
    mine, other = make_box("mine"), make_box("other")
    (other.storage / "file").write_text("s3cret")
    address = str(other.storage / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        with other.started("/bin/sh", "-c", "echo up; exec sleep 60", env={"TOKEN": "s3cret"}) as process:
            assert process.stdout is not None and process.stdout.readline() == "up\n"
            said = mine.shell(
                f"cat {other.storage}/file; cat /proc/[0-9]*/environ | tr '\\0' '\\n'; "
                f"python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('{address}')\""
            )
    assert "s3cret" not in said
    assert "FileNotFoundError" in said


def test_a_python_that_is_a_link_to_a_link_is_found(box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a virtual environment is whose own Python is a link in somebody's folder of programs."""
    programs, real = tmp_path / "programs", os.path.realpath(sys.executable)
    programs.mkdir()
    (programs / "python3").symlink_to(real)
    (programs / "secret").write_text("s3cret")
    (tmp_path / "python").symlink_to("programs/python3")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert box.shell(f"{sys.executable} -c 'print(6 * 7)'; ls {programs}") == "42\npython3\n"


def test_it_sees_no_process_of_the_host(box: Box) -> None:
    said = box.shell("for each in /proc/[0-9]*; do cat $each/comm; done").split()
    assert said[0] == "bwrap"
    assert set(said) <= {"bwrap", "sh", "cat"}


def test_its_first_process_is_not_the_hosts_and_says_nothing(box: Box) -> None:
    said = box.shell("cat /proc/1/environ; tr '\\0' ' ' < /proc/1/cmdline; readlink /proc/1/root", env={"A": "s3cret"})
    assert "s3cret" not in said if os.geteuid() == 0 else True
    assert str(box.folder) not in said
    if os.geteuid() == 0:
        assert "Permission denied" in said


def test_only_the_named_parts_of_the_disk_are_there(box: Box) -> None:
    said = set(box.shell("ls -A /").split())
    python = {Path(folder).parts[1] for folder in (sys.prefix, sys.base_prefix, __file__)}
    system = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "nix", "proc", "run", "sbin", "tmp", "usr", "var"}
    assert said <= system | python | {"workspace"}


def test_etc_names_nobody_but_itself(box: Box) -> None:
    users = box.shell("cut -d: -f1 /etc/passwd").split()
    assert users == ["root", "worker", "nobody"]
    assert "No such file" in box.shell("cat /etc/shadow")


def test_private_keys_beside_certificates_are_not_shown(box: Box) -> None:
    assert "No such file" in box.shell("ls /etc/ssl/private")


def test_the_python_of_the_workers_runs_with_its_packages(box: Box) -> None:
    done = box.run(sys.executable, "-c", "import msgspec, rota.api; print('imported')")
    assert done.stdout == "imported\n", done.stderr


def test_the_environment_is_the_given_one_and_nothing_of_the_host(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTS_OWN", "1")
    said = box.run("/usr/bin/env", env={"GIVEN": "a b\nc", "dotted.name": "x"}).stdout
    assert "GIVEN=a b\nc\n" in said and "dotted.name=x\n" in said
    names = {line.partition("=")[0] for line in said.splitlines()}
    expected = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "GIVEN", "dotted.name", "c"}
    assert names == expected


def test_files_are_readable_by_it_alone_and_cannot_be_changed(box: Box) -> None:
    said = box.shell(
        "stat -c '%a %U' /run/secrets/key; cat /run/secrets/key; chmod 777 /run/secrets/key",
        files={"/run/secrets/key": b"content\n"},
    )
    assert said.startswith("400 worker\ncontent\n")
    assert "Read-only file system" in said


def test_what_is_bound_read_only_cannot_be_written(box: Box, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir(mode=0o777)
    shown.chmod(0o777)
    assert "Read-only file system" in box.shell("touch /shown/x", read_only=[Bind(shown, "/shown")])
    assert not list(shown.iterdir())


def test_a_descriptor_that_slipped_through_is_closed(box: Box) -> None:
    slipped = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.set_inheritable(slipped, True)
        made = box.command("/bin/sh", "-c", f"ls /proc/self/fd/{slipped}/; ls -l /proc/$$/fd")
        said = subprocess.run(made.argv, env=made.env, close_fds=False, capture_output=True, text=True, timeout=30)
    finally:
        os.close(slipped)
    assert "No such file" in said.stderr
    assert len(said.stdout.splitlines()) == len(["total", 0, 1, 2])


def test_a_descriptor_that_was_named_is_kept(box: Box) -> None:
    reading, writing = os.pipe()
    try:
        done = box.run("/bin/sh", "-c", f"echo through > /dev/fd/{writing}", fds=[writing])
        if os.geteuid() == 0:
            # Opening anew is for the owner of the pipe; writing to what is open is not.
            done = box.run(sys.executable, "-c", f"import os; os.write({writing}, b'through\\n')", fds=[writing])
        assert done.returncode == 0, done.stderr
        assert os.read(reading, 100) == b"through\n"
    finally:
        os.close(reading)
        os.close(writing)


def test_it_has_its_own_hostname(box: Box) -> None:
    assert box.shell("hostname; cat /etc/hostname", hostname="pool-3") == "pool-3\npool-3\n"
