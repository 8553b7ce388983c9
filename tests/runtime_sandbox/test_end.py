"""The end of a sandbox, after which nothing of it stays."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota.runtime.sandbox import enter, main_process
from tests.runtime.homes import unsearchable
from tests.runtime_sandbox.conftest import INSIDE, SECONDS_MAX, Box

# Two forks and a session of its own: what a daemon does to be nobody's child.
DAEMON = (
    "import os, sys, time\n"
    "reading, writing = os.pipe()\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        print('daemon', flush=True)\n"
    "        os.write(writing, b'x')\n"
    "        time.sleep(600)\n"
    "    os._exit(0)\n"
    "os.wait()\n"
    "os.read(reading, 1)\n"
)


def hangs_up(process: subprocess.Popen[str]) -> str:
    """Read the rest, once nobody holds the other end: every process that could write to it has ended."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], SECONDS_MAX)
    assert readable
    return process.stdout.read()


def test_a_daemon_dies_when_the_command_ends(box: Box) -> None:
    # It ends only when the output is closed by all; a daemon that lived on would hold it for ten minutes.
    assert box.run(sys.executable, "-c", DAEMON).stdout == "daemon\n"


def test_everything_dies_when_what_was_started_is_killed(box: Box) -> None:
    with box.started(sys.executable, "-c", DAEMON + "time.sleep(600)") as process:
        assert process.stdout is not None and process.stdout.readline() == "daemon\n"
        process.kill()
        assert hangs_up(process) == ""


def test_everything_dies_with_whoever_started_it(box: Box) -> None:
    made = box.command(sys.executable, "-c", DAEMON + "time.sleep(600)")
    parent = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *made.argv],
        env=made.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with parent:
        assert parent.stdout is not None and parent.stdout.readline() == "daemon\n"
        parent.kill()
        assert hangs_up(parent) == ""


def test_the_exit_code_is_the_commands(box: Box) -> None:
    assert box.run("/bin/sh", "-c", "exit 42").returncode == 42
    assert box.run("/bin/sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL


def test_a_command_that_is_not_there_is_told(box: Box) -> None:
    done = box.run("/no/such/program")
    assert (done.returncode, done.stderr) == (127, "cannot run /no/such/program: No such file or directory\n")


def test_a_folder_of_the_path_that_cannot_be_searched_is_passed_over(box: Box) -> None:
    unsearchable(box.storage)
    env = {"PATH": f"{INSIDE}/locked:{INSIDE}/loop:{os.defpath}"}
    assert box.run("true", env=env).returncode == 0
    done = box.run("no-such-program", env=env)
    assert (done.returncode, done.stderr) == (127, "cannot run no-such-program: No such file or directory\n")


def test_a_signal_is_delivered_to_the_command_which_may_end_with_grace(box: Box) -> None:
    script = "trap 'echo graceful; exit 7' TERM; echo up; while :; do sleep 0.01; done"
    with box.started("/bin/sh", "-c", script) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        main = main_process(process.pid)
        assert main is not None
        os.kill(main, signal.SIGTERM)
        assert hangs_up(process) == "graceful\n"
        assert process.wait(SECONDS_MAX) == 7
    assert main_process(process.pid) is None


@pytest.mark.parametrize("network", ["none", "egress", "host"])
def test_a_further_command_enters_the_same_sandbox(box: Box, network: str) -> None:
    with box.started("/bin/sh", "-c", "echo hello > /tmp/note; echo up; exec sleep 60", network=network) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        entered = enter(
            process.pid,
            ["/bin/sh", "-c", 'cat /tmp/note; pwd; id -u; echo $B; grep -E "CapEff|CapBnd|Seccomp:" /proc/self/status'],
            env={"B": "2"}, cwd="/workspace", uid=box.uid, home="/workspace",
        )  # fmt: skip
        done = subprocess.run(entered.argv, env=entered.env, capture_output=True, text=True, timeout=SECONDS_MAX)
    uid = os.geteuid() if box.uid is None else box.uid
    assert done.stdout.split() == [
        "hello",
        "/workspace",
        str(uid),
        "2",
        "CapEff:",
        "0" * 16,
        "CapBnd:",
        "0" * 16,
        "Seccomp:",
        "2",
    ], done.stderr


def test_a_command_that_entered_dies_with_the_sandbox(box: Box) -> None:
    with box.started("/bin/sh", "-c", "echo up; exec sleep 60") as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        entered = enter(process.pid, ["/bin/sh", "-c", "echo in; sleep 60"], env={}, cwd="/", uid=box.uid)
        second = subprocess.Popen(entered.argv, env=entered.env, stdout=subprocess.PIPE, text=True)
        with second:
            assert second.stdout is not None and second.stdout.readline() == "in\n"
            process.kill()
            assert hangs_up(second) == ""


def test_the_exit_code_of_a_command_that_entered_is_its_own(box: Box) -> None:
    with box.started("/bin/sh", "-c", "echo up; exec sleep 60") as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        for script, code in (("exit 9", 9), ("kill -9 $$", 128 + signal.SIGKILL)):
            entered = enter(process.pid, ["/bin/sh", "-c", script], env={}, cwd="/", uid=box.uid)
            assert subprocess.run(entered.argv, env=entered.env, timeout=SECONDS_MAX).returncode == code


def test_a_command_that_entered_dies_with_whoever_runs_it(box: Box) -> None:
    with box.started("/bin/sh", "-c", "echo up; exec sleep 60") as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        entered = enter(process.pid, ["/bin/sh", "-c", "echo in; exec sleep 60"], env={}, cwd="/", uid=box.uid)
        with subprocess.Popen(entered.argv, env=entered.env, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None and second.stdout.readline() == "in\n"
            second.kill()
            assert hangs_up(second) == ""
        assert process.poll() is None


def test_one_cannot_enter_what_is_not_there() -> None:
    with pytest.raises(ProcessLookupError):
        enter(os.getpid(), ["true"], env={}, cwd="/", uid=None)


def test_no_mount_is_left_on_the_host(box: Box) -> None:
    def mounts() -> set[str]:
        # Containers of other tests come and go meanwhile.
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return {line for line in lines if "/containers/" not in line}

    before = mounts()
    box.shell("true")
    assert mounts() <= before


def test_there_is_no_main_process_of_what_is_no_sandbox() -> None:
    assert main_process(os.getpid()) is None
