"""`rota claim` and `rota release` as people use them."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.claims.conftest import SECONDS_MAX, Site, shared  # noqa: F401 - the same server
from tests.control.running.test_processes import until
from tests.server.live import ROTA, die_with_parent


class Command:
    """Runs the command line against a server."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def words(self, *words: str) -> list[str]:
        return [ROTA, words[0], "--home", str(self.site.live.home), *words[1:]]

    def __call__(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words), input=stdin, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )

    def held(self) -> list[str]:
        """Names of what is held."""
        lines = self("get", "claims").stdout.splitlines()
        return [line.split()[0] for line in lines if " Bound " in line]


@pytest.fixture
def rota(shared: Site) -> Iterator[Command]:  # noqa: F811
    made = Command(shared)
    yield made
    assert made.held() == []


def test_a_command_runs_and_its_exit_code_is_passed_on(rota: Command) -> None:
    done = rota("claim", "boxes", "--wait", "20s", "-e", "A=1 2", "--", "sh", "-c", "echo $A; echo no >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "1 2\n", "no\n")


def test_standard_input_is_passed_on(rota: Command) -> None:
    assert rota("claim", "boxes", "--wait", "20s", "-i", "--", "cat", stdin="typed").stdout == "typed"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_command_and_gives_it_back(rota: Command, number: int, code: int) -> None:
    command = ("claim", "boxes", "--wait", "20s", "--", "sh", "-c", "echo up; sleep 1000")
    running = subprocess.Popen(rota.words(*command), stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    assert running.stdout is not None and running.stdout.readline() == "up\n"
    assert len(rota.held()) == 1
    running.send_signal(number)
    running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == code
    assert rota.held() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_waiting(rota: Command, number: int) -> None:
    running = subprocess.Popen(rota.words("claim", "none", "--wait", "1h", "--", "true"), preexec_fn=die_with_parent)
    until(lambda: " Waiting " in rota("get", "claims").stdout)
    running.send_signal(number)
    assert running.wait(SECONDS_MAX) == 128 + number
    until(lambda: " Waiting " not in rota("get", "claims").stdout)


def test_what_is_kept_is_told_and_released(rota: Command) -> None:
    kept = rota("claim", "boxes", "--wait", "20s", "--keep", "--name", "mine", "--lease", "10m")
    assert kept.returncode == 0 and kept.stdout == "claim/mine\n"
    assert "boxes-" in kept.stderr and " release mine`" in kept.stderr
    assert rota.held() == ["mine"]
    instance = kept.stderr.split()[0]
    assert rota("exec", instance, "--", "echo", "there").stdout == "there\n"
    released = rota("release", "claim/mine")
    assert (released.returncode, released.stdout) == (0, "claim/mine released\n")
    assert rota("release", "mine").returncode == 0


def test_a_shell_opens_on_a_terminal(rota: Command) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(ROTA, rota.words("claim", "boxes", "--wait", "20s"))
    try:
        os.write(terminal, b"stty size >/dev/null && echo a-$((40+2)); exit 5\n")
        seen = b""
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline and select.select([terminal], [], [], 1) is not None:
            try:
                piece = os.read(terminal, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    assert b"a-42" in seen and b"given back" in seen
    assert os.waitstatus_to_exitcode(status) == 5


def test_errors_say_what_to_do(rota: Command) -> None:
    wrong = rota("claim", "boxs", "--", "true")
    assert wrong.returncode == 1 and "there are boxes, none" in wrong.stderr and "crds" not in wrong.stderr
    busy = rota("claim", "none", "--wait", "0s", "--", "true")
    assert busy.returncode == 1 and "come again in" in busy.stderr and "--wait" in busy.stderr
    for words, said in (
        (("claim", "boxes"), " claim boxes -- COMMAND`"),
        (("claim", "boxes", "--env", "A", "--", "true"), "NAME=VALUE"),
        (("claim", "boxes", "--lease", "soon", "--", "true"), "30s"),
        (("claim", "boxes", "-t", "--", "true"), "--tty needs a terminal"),
    ):
        done = rota(*words)
        assert done.returncode == 2 and said in done.stderr, done.stderr
    missing = rota("release", "nobody")
    assert missing.returncode == 1 and 'claims.rota.dev "nobody" not found' in missing.stderr
