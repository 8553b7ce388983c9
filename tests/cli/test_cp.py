"""`rota cp` as people use it: a real server, real instances with a sandbox and without."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from rota.trees.replacing import TEMPORARY
from tests.files.conftest import SANDBOX, Farm, farm  # noqa: F401 - the same server
from tests.server.live import ROTA, die_with_parent
from tests.until import until

WAYS = ["bare", pytest.param("box", marks=SANDBOX)]


@pytest.mark.parametrize("way", WAYS)
def test_a_file_goes_there_and_back_with_its_mode(farm: Farm, tmp_path: Path, way: str) -> None:  # noqa: F811
    source = tmp_path / "source"
    source.write_bytes(os.urandom(5_000_000))
    source.chmod(0o751)
    assert farm.cp(str(source), f"{way}-0:cp/copied").returncode == 0
    done = farm.cp(f"default/{way}-0:cp/copied", str(tmp_path / "back"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o751


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_goes_there_and_back(farm: Farm, tmp_path: Path, way: str) -> None:  # noqa: F811
    source = tmp_path / "tree"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "ünï").write_text("text")
    (source / "link").symlink_to("sub/ünï")
    (source / "out").symlink_to("/etc/passwd")
    farm.shell(way, "rm -rf cp/tree")
    done = farm.cp(str(source), f"{way}-0:cp/tree")
    assert done.returncode == 0 and "left out, for it leads out of the folder: out -> /etc/passwd" in done.stderr
    assert farm.shell(way, "cat cp/tree/link") == "text"
    assert farm.cp(f"{way}-0:cp/tree", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back" / "link").read_text() == "text"


def test_in_a_folder_that_is_there_it_keeps_its_name(farm: Farm, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "own").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").write_text("y")
    farm.shell("bare", "rm -rf cp/there; mkdir -p cp/there")
    assert farm.cp(str(tmp_path / "own"), "bare-0:cp/there").returncode == 0
    assert farm.cp(str(tmp_path / "folder"), "bare-0:cp/there").returncode == 0
    assert farm.cp(str(tmp_path / "own"), "bare-0:cp/new/").returncode == 0
    assert farm.shell("bare", "cat cp/there/own cp/there/folder/inner cp/new/own") == "xyx"
    assert farm.cp("bare-0:cp/there", str(tmp_path / "folder")).returncode == 0
    assert (tmp_path / "folder" / "there" / "own").read_text() == "x"


def test_what_an_instance_has_planted_does_not_leave_the_folder_here(farm: Farm, tmp_path: Path) -> None:  # noqa: F811
    farm.shell("bare", f"rm -rf cp/trap; mkdir -p cp/trap; ln -s {tmp_path} cp/trap/out; ln -s ../.. cp/trap/up")
    (tmp_path / "here").mkdir()
    done = farm.cp("bare-0:cp/trap", str(tmp_path / "here"))
    assert done.returncode == 0 and done.stderr.count("left out") == 2
    assert os.listdir(tmp_path / "here" / "trap") == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["a", "b"], 2, "one side is in an instance"),
        (["bare-0:a", "bare-0:b"], 2, "one side is in an instance"),
        (["bare-0:", "b"], 2, "say where in bare-0"),
        (["/no/such/file", "bare-0:x"], 1, "/no/such/file: no such file"),
        (["bare-0:no/such", "x"], 1, "no/such: no such file"),
        (["none-0:x", "x"], 1, 'instances.rota.dev "none-0" not found'),
        (["-c", "other", "bare-0:x", "x"], 1, "there are main"),
        (["/dev/null", "bare-0:x"], 1, "neither a file nor a folder"),
        (["/etc/hostname", "bare-0:../../x"], 1, "leads out of the folder"),
    ],
    ids=range(9),
)
def test_what_is_wrong_is_said_in_words(farm: Farm, words: list[str], code: int, said: str) -> None:  # noqa: F811
    done = farm.cp(*words)
    assert done.returncode == code and said in done.stderr, done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_copy_that_is_ended_leaves_nothing_half(farm: Farm, tmp_path: Path, how: signal.Signals) -> None:  # noqa: F811
    farm.shell("bare", "mkdir -p cp; truncate -s 900M cp/long")
    (tmp_path / "to").mkdir()
    client = subprocess.Popen(
        [ROTA, "cp", "--home", str(farm.live.home), "bare-0:cp/long", str(tmp_path / "to")],
        stderr=subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    until(farm.programs)
    client.send_signal(how)
    _, said = client.communicate(timeout=20)
    assert (client.returncode, said) == ({signal.SIGINT: 130, signal.SIGTERM: 143}[how], b"")
    assert [name for name in os.listdir(tmp_path / "to") if name.startswith(TEMPORARY)] == []
    assert os.listdir(tmp_path / "to") == []
    until(lambda: not farm.programs())
