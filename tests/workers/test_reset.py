"""The leftovers of a holder, and those that the next holder finds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rota.runtime import sandbox
from rota.runtime.runner.box import read_note
from tests.server.live import ROTA
from tests.workers.farm import Farm, farm, pool, running, workspace
from tests.workspace.conftest import Repo

pytestmark = pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")

DEEP = 3000
"""Folders in each other: more than a path can name, and more than a program can call itself."""
SLEEP = f"sleep {os.getpid()}.{{}}"
"""One that can be told from all others."""


class Left(NamedTuple):
    """The acts of a holder, and the command whose silence says that nothing of them is there."""

    plant: str
    look: str


LEFT = {
    "a hook": Left(
        "mkdir -p .git/hooks; printf '#!/bin/sh\\n' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout",
        "ls .git/hooks 2>/dev/null",
    ),
    "a program that git runs": Left("git config core.fsmonitor /tmp/evil", "git config --get core.fsmonitor"),
    "hooks elsewhere": Left("git config core.hooksPath /workspace/repo", "git config --get core.hooksPath"),
    "objects elsewhere": Left(
        "mkdir -p .git/objects/info; echo /tmp > .git/objects/info/alternates", "ls .git/objects/info/alternates 2>&-"
    ),
    "a commit": Left("git -c user.name=a -c user.email=b commit -q --allow-empty -m x", "git log --format=%s | grep x"),
    "settings in the home": Left("echo '[core] pager = evil' > ~/.gitconfig", "cat ~/.gitconfig 2>/dev/null"),
    "a profile": Left("echo evil > ~/.profile", "cat ~/.profile 2>/dev/null"),
    "a changed file": Left("echo changed > file", "grep changed file"),
    "a file that may gain rights": Left(
        "cp /bin/sh ~/sh; chmod u+s,g+s ~/sh", "find /workspace -perm /6000 2>/dev/null"
    ),
    "a file in /tmp": Left("echo x > /tmp/left", "find /tmp -name left"),
    "shared memory": Left("echo x > /dev/shm/left", "ls -A /dev/shm"),
    "a hard link": Left("ln file linked; ln linked ~/linked", "find /workspace/repo/linked /workspace/home -type f"),
    "a symbolic link": Left(
        "ln -s / root; ln -s /etc/passwd ~/passwd", "find /workspace -type l -not -path '*/.git/*'"
    ),
    "a pipe": Left("mkfifo pipe", "find /workspace -type p"),
    "a socket": Left(
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"", "find /workspace -type s"
    ),
    "a deep tree": Left(
        f"python3 -c \"import os; [(os.mkdir('d'), os.chdir('d')) for _ in range({DEEP})]\"", "ls -d d 2>/dev/null"
    ),
    "a folder that nobody may enter": Left("mkdir shut; touch shut/in; chmod 000 shut", "ls -d shut 2>/dev/null"),
    "odd names": Left("touch -- '-rf' 'a\nb' \"$(printf '\\377')\"", "ls -A | grep -v '^\\(file\\|[.]git\\)$'"),
    "a file beside the tree": Left("touch /workspace/beside", "ls /workspace/beside 2>/dev/null"),
    "an attribute": Left(
        "python3 -c \"import os; os.setxattr('/workspace', 'user.left', b'x')\"",
        "python3 -c \"import os; [print(x) for x in os.listxattr('/workspace')]\"",
    ),
}
HOME_ELSEWHERE = "rm -rf ~; ln -s /tmp ~"
DAEMON = "(setsid sh -c 'trap \"\" TERM HUP; {}' >/dev/null 2>&1 &)"


class Seen(NamedTuple):
    """The traces that a second holder found, of each thing that the first one left."""

    found: dict[str, str]
    farm: Farm


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """One hold in which everything is done, and the next."""
    folder = tmp_path_factory.mktemp("reset")
    repo = Repo(folder / "origin")
    repo.commit("file", "content\n")
    with farm(folder / "home") as made:
        kinds = {"clean": "Clean", "keep": "Keep", "anew": "Recreate"}
        worker = {"type": "shell", "workspaceRef": {"name": "code"}}
        pools = [pool(name, worker=worker, storage={"size": "1Gi"}, reset=reset) for name, reset in kinds.items()]
        made.apply(workspace("code", repo.url), *pools)
        for name in kinds:
            made.ready(name, 1)
        made.hold("clean-0", "first")
        before = _look(made, "clean-0", LEFT)
        assert [name for name, found in before.items() if found] == []
        made.execute("clean-0", " && ".join(f"({left.plant})" for left in LEFT.values()))
        planted = _look(made, "clean-0", LEFT)
        assert [name for name, found in planted.items() if not found] == []
        made.execute("clean-0", DAEMON.format(SLEEP.format(1)))
        made.execute("clean-0", HOME_ELSEWHERE)
        made.until(lambda: running(SLEEP.format(1)))
        made.release("clean-0")
        made.hold("clean-0", "second")
        yield Seen(_look(made, "clean-0", LEFT), made)


def _look(made: Farm, instance: str, things: dict[str, Left]) -> dict[str, str]:
    """Return the traces of each."""
    marked = (f"echo '==={name}'; ({left.look}) 2>/dev/null" for name, left in things.items())
    said = made.execute(instance, "; ".join([*marked, "true"]))
    return {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in said.split("===")[1:]}


@pytest.mark.parametrize("name", LEFT)
def test_nothing_of_it_is_left(seen: Seen, name: str) -> None:
    assert seen.found[name] == ""


def test_no_process_is_left_whatever_it_left_behind(seen: Seen) -> None:
    assert running(SLEEP.format(1)) == []


def test_a_home_that_led_elsewhere_is_a_folder_again(seen: Seen) -> None:
    assert seen.farm.execute("clean-0", "test -d ~ && ! test -L ~ && ls -A ~") == ""


def test_it_is_the_same_instance_with_the_repository_as_it_is(seen: Seen) -> None:
    assert seen.farm.execute("clean-0", "cat file; git status --porcelain") == "content\n"


def test_all_of_it_belongs_to_the_worker_again(seen: Seen) -> None:
    uids = seen.farm.execute("clean-0", "find /workspace -printf '%U\\n' | sort -u; id -u").split()
    assert len(set(uids)) == 1


def test_a_command_that_still_runs_ends_with_the_hold(seen: Seen) -> None:
    made = seen.farm
    script = f"echo up; exec {SLEEP.format(2)}"
    argv = [ROTA, "exec", "inst/clean-0", "--home", str(made.home), "--", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as command:
        assert command.stdout is not None and command.stdout.readline() == "up\n"
        made.release("clean-0")
        assert running(SLEEP.format(2)) == []
        assert command.wait(20) != 0
    made.hold("clean-0", "third")


def test_what_only_root_could_protect_is_removed_all_the_same(seen: Seen) -> None:
    if shutil.which("chattr") is None:
        pytest.skip("there is no chattr; install the package e2fsprogs")
    made = seen.farm
    made.execute("clean-0", "mkdir kept; touch kept/file")
    kept = made.storage("clean-0") / "repo" / "kept"
    if subprocess.run(["chattr", "+i", kept / "file", kept], check=False, capture_output=True).returncode:
        pytest.skip("this file system has no such flag, or it takes root")
    made.release("clean-0")
    assert not kept.exists()
    made.hold("clean-0", "fourth")


def test_keep_keeps_the_tree_and_no_process(seen: Seen) -> None:
    made = seen.farm
    made.hold("keep-0", "first")
    fresh = made.execute("keep-0", "ls -A /tmp")
    made.execute("keep-0", f"echo mine > work; echo x > /tmp/left; {DAEMON.format(SLEEP.format(3))}")
    made.until(lambda: running(SLEEP.format(3)))
    made.release("keep-0")
    assert running(SLEEP.format(3)) == []
    made.hold("keep-0", "second")
    assert made.execute("keep-0", "cat work; ls -A /tmp") == "mine\n" + fresh


def test_recreate_gives_a_new_instance_and_new_storage(seen: Seen) -> None:
    made = seen.farm
    made.hold("anew-0", "first")
    uid = made.instance("anew-0")["metadata"]["uid"]
    # The number of a folder that is still open is not given to another.
    folder = os.open(made.storage("anew-0"), os.O_DIRECTORY)
    made.execute("anew-0", "echo mine > work; echo '[a]' > ~/.gitconfig")
    made.release("anew-0")
    made.hold("anew-0", "second")
    assert made.instance("anew-0")["metadata"]["uid"] != uid
    assert os.stat(made.storage("anew-0")).st_ino != os.fstat(folder).st_ino
    os.close(folder)
    assert made.execute("anew-0", "cat work ~/.gitconfig 2>/dev/null || true") == ""
    made.until(lambda: list((made.home / "discarded").iterdir()) == [])


def test_a_box_that_is_killed_ends_the_hold_and_leaves_nothing(seen: Seen) -> None:
    made = seen.farm
    fresh = made.execute("clean-0", "ls -A /tmp").split()
    made.execute("clean-0", "echo x > work; echo x > ~/work; echo x > /tmp/left")
    box = read_note(next((made.home / "instances" / "default").glob("clean-0-*/box")))
    assert box is not None
    os.kill(int(box.process.partition("@")[0]), 9)
    made.until(lambda: made.instance("clean-0")["status"].get("assignment", {}).get("phase") == "Done")
    left = made.execute("clean-0", "ls -A . ~; ls -A /tmp").split()
    assert left == [".:", ".git", "file", "/workspace/home:", *fresh]
    made.release("clean-0")


def test_the_events_say_nothing_of_what_was_in_the_tree(seen: Seen) -> None:
    said = json.dumps(seen.farm.read("events"))
    assert "evil" not in said
