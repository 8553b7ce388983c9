"""`rota claim` and `rota release` as people use them."""

from __future__ import annotations

import logging
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from rota.cli import typed_commands
from rota.cli.claim import _warnings_printed
from rota.cli.session import Settings
from tests.claims.conftest import SCRIPT, SECONDS_MAX, Site, manifest, shared  # noqa: F401 - the same server
from tests.server.live import ROTA, die_with_parent
from tests.until import until


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
    assert busy.returncode == 1 and "`rota " in busy.stderr and "scale workerpool/none" in busy.stderr
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


def lease_of(rota: Command, name: str) -> str:
    return rota("get", "claim", name, "-o", "jsonpath={.spec.leaseSeconds}").stdout.strip()


def test_a_claim_of_one_command_has_a_short_lease_and_one_that_others_know_by_name_a_long_one(rota: Command) -> None:
    command = ("claim", "boxes", "--wait", "20s", "--", "sh", "-c", "echo up; sleep 1000")
    running = subprocess.Popen(rota.words(*command), stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    assert running.stdout is not None and running.stdout.readline() == "up\n"
    (name,) = rota.held()
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=SECONDS_MAX)
    assert lease_of(rota, name) == "60"
    assert rota("claim", "boxes", "--wait", "20s", "--name", "known", "--", "true").returncode == 0
    assert lease_of(rota, "known") == "3600"


def test_what_is_held_is_told_with_the_time_zone(rota: Command) -> None:
    kept = rota("claim", "boxes", "--wait", "20s", "--keep", "--name", "zoned")
    try:
        assert re.search(r"held until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+\n", kept.stderr)
    finally:
        rota("release", "zoned")


def test_a_claim_that_waits_says_for_what_and_in_the_end_who_had_all(rota: Command) -> None:
    try:
        for name in ("full-one", "full-two"):
            assert rota("claim", "boxes", "--wait", "20s", "--keep", "--name", name).returncode == 0
        for wait in ("3s", "10s", "30s"):
            done = rota("claim", "boxes", "--wait", wait, "--", "true")
            if "it is next" in done.stderr:
                break  # Where much goes on, a moment may pass before it is known what is waited for.
    finally:
        for name in ("full-one", "full-two"):
            rota("release", name)
    assert done.returncode == 1
    # At first one of them may not have been known as held.
    *_, waits, failed, again = done.stderr.splitlines()
    state = "2 of 2 busy (claim full-one, claim full-two)"
    assert re.fullmatch(
        rf"claim claim-\w+ waits for a worker of WorkerPool/boxes: {re.escape(state)}, it is next", waits
    )
    assert failed == f"error: no instance of WorkerPool/boxes was free in time: {state}"
    assert again.strip().startswith("come again in")


def test_a_pool_that_cannot_come_up_is_told_with_the_reason(rota: Command) -> None:
    none = rota("claim", "none", "--wait", "0s", "--", "true").stderr
    assert "spec.replicas is 0" in none and "scale workerpool/none --replicas=1`" in none and "come again" not in none
    crashing = manifest("crashing", 1).replace(SCRIPT, "exit 3")
    assert rota("apply", "-f", "-", stdin=crashing).returncode == 0
    told: list[str] = []

    def is_told() -> bool:
        told[:] = rota("claim", "crashing", "--wait", "3s", "--", "true").stderr.splitlines()
        return len(told) > 1 and all("exited with code 3" in line for line in (told[0], told[-1]))

    try:
        until(is_told)  # it has no reason at the moment at which it is started again
    finally:
        rota("delete", "wp/crashing")
    first, *_, failed = told
    assert "0 of 1 busy, 1 not ready" in first
    assert "was free in time: 0 of 1 ready" in failed
    assert " why workerpool/crashing` tells what to do" in failed


def test_what_could_not_be_given_back_is_told_with_the_command_that_does(capsys: pytest.CaptureFixture[str]) -> None:
    with typed_commands.given(Settings(home="/a home")), _warnings_printed():
        logging.getLogger("rota.client.claims.context").warning("left; `rota release mine` gives it back sooner")
    assert capsys.readouterr().err == "left; `rota --home '/a home' release mine` gives it back sooner\n"
