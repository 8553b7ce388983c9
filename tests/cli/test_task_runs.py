"""Tasks from the command line, on real workers: their output, their end, and what a terminal shows of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.live import ROTA, Live

PATIENCE_SECONDS = 40
COLUMNS = 70
ERASE = b"\r\x1b[2K"
WORKERS = 2
FOR_EVER = "while :; do sleep 0.1; done"


class Place(Live):
    """A server with a pool of workers."""

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "ROTA_HOME": str(self.home), **more}

    def rota(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        """Return the output of a command."""
        ran = self.ran(*arguments, stdin=stdin)
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout

    def ran(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROTA, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env=self.environment(),
            check=False,
        )

    @contextlib.contextmanager
    def begun(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on."""
        pipe = subprocess.PIPE
        environment = self.environment()
        with subprocess.Popen([ROTA, *arguments], stdout=pipe, stderr=pipe, text=True, env=environment) as process:
            try:
                yield process
            finally:
                process.kill()

    def make_pool(self, name: str, replicas: int) -> None:
        pool: dict[str, Any] = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": name}}
        file = self.home / f"{name}.json"
        file.write_text(json.dumps({**pool, "spec": {"replicas": replicas, "reset": "Keep", "worker": {}}}))
        self.rota("apply", "-f", str(file))
        self.rota("wait", f"wp/{name}", "--for=condition=Ready", "--timeout", f"{PATIENCE_SECONDS}s")

    def status(self, name: str) -> Any:
        return json.loads(self.rota("get", "task", name, "-o", "json"))["status"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    started = Place(tmp_path_factory.mktemp("home"))
    try:
        started.make_pool("crew", WORKERS)
        yield started
    finally:
        started.end()


def output(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return process.stdout


def ending(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, and the last line that is said beside the output."""
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, said.splitlines()[-1]


# What is seen of a run.


def test_the_output_is_shown_and_the_exit_code_is_the_tasks(place: Place) -> None:
    ran = place.ran(
        "run", "-f", "--name", "three", "--", "sh", "-c", "echo one; echo two >&2; sleep 1; printf end; exit 3"
    )
    assert (ran.returncode, ran.stdout) == (3, "one\ntwo\nend\n")
    first, *_, last = ran.stderr.splitlines()
    assert first == "task.rota.dev/three"
    assert re.fullmatch(r"task\.rota\.dev/three failed in \d\.\ds: exit code 3", last)
    assert re.search(r"^task\.rota\.dev/three: Running on crew-\d$", ran.stderr, re.MULTILINE)


def test_a_run_that_succeeds_is_0(place: Place) -> None:
    ran = place.ran("run", "-f", "--", "true")
    assert (ran.returncode, ran.stdout) == (0, "") and " succeeded in " in ran.stderr.splitlines()[-1]


def test_a_run_whose_time_is_up_is_124(place: Place) -> None:
    ran = place.ran("run", "-f", "--timeout", "1s", "--", "sh", "-c", FOR_EVER)
    assert ran.returncode == 124 and "Timeout: it took longer than 1 s" in ran.stderr.splitlines()[-1]


def test_a_run_that_cannot_begin_says_why(place: Place) -> None:
    ran = place.ran("run", "-f", "-p", "fix it")
    assert ran.returncode == 1 and "NotAnAgent: a prompt is for a worker of an agent's type" in ran.stderr


def test_input_reaches_the_command(place: Place) -> None:
    assert place.rota("run", "-f", "-i", "--", "tr", "a-z", "A-Z", stdin="hello\n") == "HELLO\n"


def test_what_is_piped_in_is_not_filled_in(place: Place) -> None:
    text = "{{ tasks.nothing.outputs.x }}\n"
    assert place.rota("run", "-f", "-i", "--", "cat", stdin=text) == text


def test_outputs_reach_the_tasks_that_depend_on_them(place: Place) -> None:
    place.rota("run", "--name", "first", "--", "echo", "::rota output colour=blue")
    told = place.rota("run", "-f", "--depends-on", "first", "--", "echo", "{{ tasks.first.outputs.colour }}")
    assert told == "blue\n"


def test_what_a_terminal_would_obey_is_shown_instead(place: Place) -> None:
    assert place.rota("run", "-f", "--", "printf", r"\033[2Jgone\tor\r\n") == "\\x1b[2Jgone\tor\\r\n"


def test_a_reader_that_leaves_is_no_error(place: Place) -> None:
    script = "echo one; while :; do echo more; done"
    with place.begun("run", "-f", "--timeout", "3s", "--", "sh", "-c", script) as process:
        assert output(process).readline() == "one\n"
        output(process).close()
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(PATIENCE_SECONDS) == 1 and "error" not in said


# Ctrl-C.


def test_ctrl_c_cancels_the_task_and_waits_for_its_end(place: Place) -> None:
    script = f"trap 'echo cleaned; exit 1' TERM; echo begun; {FOR_EVER}"
    with place.begun("run", "-f", "--name", "stopped", "--", "sh", "-c", script) as process:
        assert output(process).readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        while output(process).readline() != "cleaned\n":
            assert process.poll() is None
        code, last = ending(process)
    assert code == 130 and last.startswith("task.rota.dev/stopped was cancelled")
    assert place.status("stopped")["phase"] == "Cancelled"


def test_a_second_ctrl_c_leaves_the_task_to_itself(place: Place) -> None:
    script = f"trap '' TERM; echo begun; {FOR_EVER}"
    with place.begun("run", "-f", "--name", "left", "--timeout", "20s", "--", "sh", "-c", script) as process:
        assert output(process).readline() == "begun\n"
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert any("is being cancelled" in line for line in iter(process.stderr.readline, "")), "it ended"
        place.rota("wait", "task/left", "--for=jsonpath={.spec.cancel}=true")
        process.send_signal(signal.SIGINT)
        code, last = ending(process)
    assert code == 130
    assert last == (
        "task.rota.dev/left was asked to end, and is left to itself; `rota logs -f task/left` follows it again"
    )
    assert "was cancelled" in place.ran("wait", "task/left", "--timeout", f"{PATIENCE_SECONDS}s").stderr


# Logs.


def test_logs_of_several_tasks_are_told_apart(place: Place) -> None:
    for name in ("red", "green"):
        place.rota("run", "--name", name, "--", "echo", f"I am {name}")
    shown = place.rota("logs", "-f", "task/red", "task/green")
    assert sorted(shown.splitlines()) == ["green  I am green", "red    I am red"]


def test_logs_are_kept_when_the_worker_is_gone(place: Place) -> None:
    place.make_pool("brief", 1)
    place.rota("run", "-f", "--name", "old", "--pool", "brief", "--", "seq", "150")
    place.rota("delete", "wp/brief")
    assert place.rota("logs", "task/old").splitlines() == [str(number) for number in range(1, 151)]
    assert place.rota("logs", "task/old", "--tail", "2") == "149\n150\n"
    assert place.rota("logs", "-f", "task/old", "--tail", "1") == "150\n"


def test_logs_of_what_is_not_there_are_refused(place: Place) -> None:
    for flags in ((), ("-f",), ("--tail", "3")):
        ran = place.ran("logs", *flags, "task/nothing")
        assert ran.returncode == 1 and 'error: tasks.rota.dev "nothing" not found' in ran.stderr


# Cancel, retry.


def test_a_task_is_cancelled_and_tried_once_more(place: Place) -> None:
    place.rota("run", "--name", "long", "--", "sh", "-c", FOR_EVER)
    place.rota("wait", "task/long", "--for=jsonpath={.status.phase}=Running")
    assert place.rota("cancel", "task/long") == "task.rota.dev/long is being cancelled\n"
    assert place.ran("wait", "task/long").stderr == "error: task.rota.dev/long was cancelled\n"
    assert place.rota("retry", "task/long") == "task.rota.dev/long-retry-1\n"
    place.rota("wait", "task/long-retry-1", "--for=jsonpath={.status.phase}=Running")
    assert place.rota("cancel", "-l", "rota.dev/retry-of=long") == "task.rota.dev/long-retry-1 is being cancelled\n"
    place.rota("wait", "task/long-retry-1", code=1)


# On a terminal.


class Screen:
    """A command on a terminal."""

    def __init__(self, place: Place, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            [ROTA, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=place.environment(TERM="xterm-256color", NO_COLOR="1"),
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = b""

    def until(self, text: str) -> None:
        """Go on when this was sent to the terminal."""
        while text.encode() not in self._seen:
            assert self._take(), self._seen

    def end(self) -> tuple[int, bytes]:
        """The exit code, and everything that was sent to the terminal."""
        try:
            while self._take():
                pass
            return self._process.wait(PATIENCE_SECONDS), self._seen
        finally:
            self._process.kill()
            os.close(self._ours)

    def _take(self) -> bool:
        is_more, _, _ = select.select([self._ours], [], [], PATIENCE_SECONDS)
        piece = b""
        with contextlib.suppress(OSError):  # Nobody has the other side any more.
            piece = os.read(self._ours, 65536) if is_more else b""
        self._seen += piece
        return bool(piece)


def shown(sent: bytes) -> list[str]:
    """The lines that a terminal shows in the end."""
    lines = [line.rpartition(ERASE)[2] for line in sent.replace(b"\r\n", b"\n").split(b"\n")]
    assert not any(b"\x1b" in line or b"\r" in line for line in lines)
    return [line.decode() for line in lines]


def drawn(sent: bytes) -> list[str]:
    """Return the lines that the bottom of the screen has shown, one after the other."""
    lines = [piece for line in sent.replace(b"\r\n", b"\n").split(b"\n") for piece in line.split(ERASE)[1:-1]]
    return [line.decode() for line in lines if line]


def test_the_line_at_the_bottom_never_gets_into_the_output(place: Place) -> None:
    script = "for i in $(seq 20); do echo line $i; sleep 0.05; done; printf 'no end'"
    code, sent = Screen(place, "run", "-f", "--name", "shown", "--", "sh", "-c", script).end()
    name, *lines, last, nothing = shown(sent)
    assert (code, name, nothing) == (0, "task.rota.dev/shown", "")
    assert lines == [f"line {number}" for number in range(1, 21)] + ["no end"]
    assert last.startswith("task.rota.dev/shown succeeded in ")
    status = drawn(sent)
    assert any(re.fullmatch(r"task\.rota\.dev/shown  Running on crew-\d  \ds", each) for each in status)
    assert all(len(each) < COLUMNS for each in status)


def test_many_tasks_are_waited_for_with_a_bar(place: Place) -> None:
    names = [f"many-{number}" for number in range(6)]
    for name in names:
        script = f"echo no luck; exit {int(name == 'many-3')}"
        place.rota("run", "--name", name, "--depends-on", "start", "--", "sh", "-c", script)
    waiting = [f"task/{name}" for name in names]
    screen = Screen(place, "wait", *waiting, "--timeout", f"{PATIENCE_SECONDS}s")
    screen.until("─" * 24 + "  0/6  0s  6 waiting")
    place.rota("run", "--name", "start", "--", "true")
    code, sent = screen.end()
    failed, last, nothing = shown(sent)
    assert (code, failed, nothing) == (1, "error: task.rota.dev/many-3 failed: no luck", "")
    assert re.fullmatch(r"5 succeeded, 1 failed in \d+s", last)
    done = [int(bar.partition("/")[0].split()[-1]) for bar in drawn(sent)]
    assert done == sorted(done)


# What does not begin.


def test_who_follows_a_run_that_does_not_begin_is_told_what_to_do(place: Place) -> None:
    place.make_pool("empty", 0)
    with place.begun("run", "-f", "--name", "stuck", "--pool", "empty", "--", "date") as process:
        assert process.stderr is not None
        said = iter(process.stderr.readline, "")
        assert any("waits for a worker of WorkerPool/empty, which has none" in line for line in said)
        advice = next(said)
        assert advice.startswith("  next: give WorkerPool/empty a worker: `rota"), advice
        assert "scale workerpool/empty --replicas=1`" in advice
        place.rota("scale", "workerpool/empty", "--replicas=1")
        assert output(process).read()
        assert process.wait(PATIENCE_SECONDS) == 0


# A server that goes away.


def test_a_run_is_followed_through_the_death_of_the_server(tmp_path: Path) -> None:
    script = "for i in $(seq 40); do echo line $i; sleep 0.1; done; exit 7"
    place = Place(tmp_path / "home")
    try:
        place.make_pool("crew", 1)
        with place.begun("run", "-f", "--", "sh", "-c", script) as process:
            assert output(process).readline() == "line 1\n"
            place.kill()
            place.start()
            # By the same reader: what it has read ahead would be lost to another.
            assert output(process).read().splitlines() == [f"line {number}" for number in range(2, 41)]
            assert process.wait(PATIENCE_SECONDS) == 7
    finally:
        place.end()


def test_a_wait_lives_through_the_death_of_the_server(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    limit = ("--timeout", f"{PATIENCE_SECONDS}s")
    goal = "--for=jsonpath={.status.phase}=Cancelled"
    try:
        place.make_pool("crew", 1)
        place.rota("run", "--name", "long", "--", "sh", "-c", FOR_EVER)
        with place.begun("wait", "task/long", *limit) as over, place.begun("wait", "task/long", goal, *limit) as met:
            place.kill()
            assert all("the server is away, and is waited for: " in said(process) for process in (over, met))
            place.start()
            assert [said(process) for process in (over, met)] == ["the server is back\n"] * 2
            place.rota("cancel", "task/long")
            assert over.communicate(timeout=PATIENCE_SECONDS)[1] == "error: task.rota.dev/long was cancelled\n"
            assert met.communicate(timeout=PATIENCE_SECONDS)[1] == "" and met.returncode == 0
    finally:
        place.end()


def said(process: subprocess.Popen[str]) -> str:
    """The next line beside the output."""
    assert process.stderr is not None
    return process.stderr.readline()


def test_that_a_server_does_not_come_back_is_3_and_no_failure(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    place.end()
    ran = place.ran("wait", "task/long", "--timeout", "1s")
    assert ran.returncode == 3
    assert ran.stderr.endswith("1 of 1 tasks are in doubt\n") and "start one with `rota start`" in ran.stderr
    assert place.ran("wait", "-l", "app=shop", "--timeout", "1s").returncode == 3
    assert place.ran("wait", "wp/crew", "--for=delete", "--timeout", "1s").returncode == 3
