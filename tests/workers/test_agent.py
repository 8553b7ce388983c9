"""The agent of a box, spoken to as its runner does: the one in Python, and the one in C."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.keeper.kernel import descendants_of
from rota.runtime.runner.agent import LENGTH_BYTES
from tests.agent import programs
from tests.runtime.homes import unsearchable
from tests.until import until

SECONDS_MAX = 20.0
DAEMON = "(setsid sh -c 'echo $$ > {note}; exec sleep 1000' &) ; while ! test -s {note}; do :; done"
"""Forked twice, in a session of its own: its parent is gone when the command ends."""


class Spoken:
    """An agent, and what it said that nobody asked for yet."""

    def __init__(self, folder: Path, argv: Sequence[str]) -> None:
        self.folder = folder
        self.control, its = socket.socketpair()
        self.control.settimeout(SECONDS_MAX)
        self.process = subprocess.Popen(
            argv, stdin=its.fileno(), env={"PATH": os.environ["PATH"], "OWN": "box"}, cwd="/"
        )
        its.close()
        self._arrived = b""
        self._heard: list[Any] = []
        assert self.next("ready")["ready"] == self.process.pid

    def send(self, *descriptors: int, **message: Any) -> None:
        content = json.dumps(message).encode()
        whole = len(content).to_bytes(LENGTH_BYTES, "big") + content
        if descriptors:
            socket.send_fds(self.control, [whole[:1]], list(descriptors))
            whole = whole[1:]
        self.control.sendall(whole)

    def start(self, id_: str, *argv: str, output: int | None = None, **more: Any) -> None:
        with open(os.devnull, "r+b") as nothing:
            to = nothing.fileno() if output is None else output
            self.send(nothing.fileno(), to, to, do="run", id=id_, argv=argv, env=more.get("env", {}), cwd="/")

    def run(self, *argv: str, **more: Any) -> tuple[int, bytes]:
        """The exit code of a command, and what it wrote."""
        reading, writing = os.pipe()
        self.start("one", *argv, output=writing, **more)
        os.close(writing)
        with open(reading, "rb") as file:
            said = file.read()
        return int(self.next("code")["code"]), said

    def clear(self, *but: str) -> int:
        self.send(do="clear", but=but)
        return int(self.next("cleared")["cleared"])

    def next(self, field: str) -> Any:
        """The next message that has this field."""
        while not (found := [one for one in self._heard if field in one]):
            self._heard.append(self._receive())
        self._heard.remove(found[0])
        return found[0]

    def _receive(self) -> Any:
        while len(self._arrived) < LENGTH_BYTES or len(self._arrived) < LENGTH_BYTES + self._length():
            data = self.control.recv(65536)
            assert data, "the agent is gone"
            self._arrived += data
        end = LENGTH_BYTES + self._length()
        message, self._arrived = json.loads(self._arrived[LENGTH_BYTES:end]), self._arrived[end:]
        return message

    def _length(self) -> int:
        return int.from_bytes(self._arrived[:LENGTH_BYTES], "big")

    def below(self) -> list[int]:
        return [pid for pid in descendants_of(self.process.pid) if not _is_dead(pid)]

    def daemon(self, name: str) -> int:
        """A process that has left everything behind."""
        note = self.folder / name
        self.start("daemon", "sh", "-c", DAEMON.format(note=note))
        assert self.next("code")["code"] == 0
        return int(note.read_text())

    def end(self) -> None:
        self.control.close()
        try:
            self.process.wait(SECONDS_MAX)
        finally:
            for pid in [*descendants_of(self.process.pid), self.process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(params=programs.KINDS)
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Spoken]:
    spoken = Spoken(tmp_path, programs.argv(request.param))
    yield spoken
    with contextlib.suppress(OSError):
        spoken.clear()
    spoken.end()


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_a_command_runs_with_the_boxs_environment_and_its_own_and_ends_with_its_code(agent: Spoken) -> None:
    code, said = agent.run("sh", "-c", "echo $OWN $MORE; pwd; exit 7", env={"MORE": "task"})
    assert (code, said) == (7, b"box task\n/\n")


def test_a_commands_own_environment_wins(agent: Spoken) -> None:
    assert agent.run("sh", "-c", "echo $OWN", env={"OWN": "task"}) == (0, b"task\n")


def test_the_signal_that_ended_a_command_is_told(agent: Spoken) -> None:
    assert agent.run("sh", "-c", "kill -USR1 $$")[0] == -signal.SIGUSR1


def test_a_program_that_is_not_there_is_told_and_the_agent_goes_on(agent: Spoken) -> None:
    agent.start("one", "no-such-program")
    ended = agent.next("code")
    assert ended["code"] == 127 and "no-such-program" in ended["error"]
    assert agent.run("true")[0] == 0


def test_a_folder_of_the_path_that_cannot_be_searched_is_passed_over(agent: Spoken) -> None:
    path = f"{unsearchable(agent.folder)}:{os.environ['PATH']}"
    assert agent.run("true", env={"PATH": path})[0] == 0
    agent.start("one", "no-such-program", env={"PATH": path})
    ended = agent.next("code")
    assert ended["code"] == 127 and "No such file" in ended["error"]


def test_a_program_that_may_not_be_run_is_told_apart(agent: Spoken) -> None:
    program = agent.folder / "program"
    program.write_text("#!/bin/sh\n")
    agent.start("one", str(program))
    assert agent.next("code")["code"] == 126


def test_what_is_no_argument_does_not_end_the_agent(agent: Spoken) -> None:
    agent.start("one", "echo", "a\0b")
    assert agent.next("code")["code"] == 127
    assert agent.run("true")[0] == 0


def test_a_command_that_has_no_place_to_run_in_is_told(agent: Spoken) -> None:
    with open(os.devnull, "r+b") as nothing:
        fd = nothing.fileno()
        agent.send(fd, fd, fd, do="run", id="one", argv=["true"], env={}, cwd="/nowhere")
    assert "/nowhere" in agent.next("code")["error"]


def test_a_signal_reaches_the_whole_group_of_a_command(agent: Spoken) -> None:
    reading, writing = os.pipe()
    agent.start("one", "sh", "-c", "sh -c 'echo up; exec sleep 1000'; true", output=writing)
    os.close(writing)
    with open(reading, "rb", buffering=0) as file:
        assert file.readline() == b"up\n"
        agent.send(do="signal", id="one", signal=int(signal.SIGTERM))
        assert file.read() == b""  # neither of both holds it any more
    assert agent.next("code")["code"] == -signal.SIGTERM


def test_a_signal_to_a_command_that_has_ended_is_nobodys(agent: Spoken) -> None:
    assert agent.run("true")[0] == 0
    agent.send(do="signal", id="one", signal=int(signal.SIGTERM))
    assert agent.run("true")[0] == 0


def test_the_end_of_a_command_is_told_though_what_it_started_goes_on(agent: Spoken) -> None:
    left = agent.daemon("note")
    assert left in agent.below()


def test_clear_ends_what_left_its_session_and_its_parents(agent: Spoken) -> None:
    left = [agent.daemon("one"), agent.daemon("two")]
    agent.start("busy", "sleep", "1000")
    agent.next("pid")
    assert agent.clear() == 0
    assert agent.below() == [] and all(_is_dead(pid) for pid in left)
    assert agent.next("code")["code"] == -signal.SIGKILL
    assert agent.run("true")[0] == 0


def test_clear_ends_what_is_stopped_and_what_ignores_signals(agent: Spoken) -> None:
    agent.start("deaf", "sh", "-c", "trap '' TERM INT HUP; while :; do sleep 0.1; done")
    agent.start("stopped", "sh", "-c", "kill -STOP $$")
    agent.next("pid")
    agent.next("pid")
    assert agent.clear() == 0 and agent.below() == []


def test_clear_ends_what_forks_all_the_time(agent: Spoken) -> None:
    agent.start("one", "sh", "-c", "while :; do (setsid sleep 1000 &); done")
    until(lambda: len(agent.below()) > 20)
    assert agent.clear() == 0 and agent.below() == []


def test_clear_keeps_what_is_named_and_ends_what_is_below_it(agent: Spoken) -> None:
    (reading, its), (input_, writing) = os.pipe(), os.pipe()
    script = "sleep 1000 & (setsid sleep 1000 &); echo up; read x; exit 3"
    agent.send(input_, its, its, do="run", id="kept", argv=["sh", "-c", script], env={}, cwd="/")
    kept = agent.next("pid")["pid"]
    agent.start("other", "sleep", "1000")
    assert os.read(reading, 3) == b"up\n"
    assert agent.clear("nobody", "kept") == 0
    assert agent.below() == [kept]
    os.write(writing, b"\n")
    ends = {one["id"]: one["code"] for one in (agent.next("code"), agent.next("code"))}
    assert ends == {"kept": 3, "other": -signal.SIGKILL}
    for descriptor in (reading, its, input_, writing):
        os.close(descriptor)


TEXTS = [
    *("", " ", "a\nb\t\r\b\f\x01\x7f", "\"\\/'", "é€\u2028", "\U0001f600\uffff", "\udc80\udcff", "\\u0041"),
    "x" * 100_000,
]


@pytest.mark.parametrize("escaped", [True, False])
def test_arguments_and_variables_are_passed_on_as_they_are(agent: Spoken, escaped: bool) -> None:
    texts = [text for text in TEXTS if escaped or "\udc80" not in text]
    reading, writing = os.pipe()
    argv = ["sh", "-c", 'printf "%s\\0" "$@" "$V"', "sh", *texts]
    message = {"do": "run", "id": "one", "argv": argv, "env": {"V": texts[-2], "W": "", "ü": "="}, "cwd": "/"}
    content = json.dumps(message, ensure_ascii=escaped).encode()
    whole = len(content).to_bytes(LENGTH_BYTES, "big") + content
    with open(os.devnull, "rb") as nothing:
        socket.send_fds(agent.control, [whole[:1]], [nothing.fileno(), writing, writing])
    agent.control.sendall(whole[1:])
    os.close(writing)
    with open(reading, "rb") as file:
        assert file.read().split(b"\0") == [*map(os.fsencode, texts), os.fsencode(texts[-2]), b""]
    assert agent.next("code")["code"] == 0


def test_no_dead_process_is_left_lying_about(agent: Spoken) -> None:
    os.kill(agent.daemon("note"), signal.SIGKILL)
    until(lambda: descendants_of(agent.process.pid) == [])


def test_output_is_the_commands_own_and_of_any_size(agent: Spoken) -> None:
    code, said = agent.run("head", "-c", str(32 * 1024 * 1024), "/dev/zero")
    assert code == 0 and len(said) == 32 * 1024 * 1024


def test_a_command_has_no_descriptor_but_its_three(agent: Spoken) -> None:
    pids = []
    for id_ in ("one", "other"):
        agent.start(id_, "sleep", "1000")
        pids.append(agent.next("pid")["pid"])
    for pid in pids:
        # A program that is just being loaded has files open for it.
        until(lambda pid=pid: sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"])  # type: ignore[misc]


def test_the_agent_keeps_no_descriptor_of_its_commands(agent: Spoken) -> None:
    folder = Path(f"/proc/{agent.process.pid}/fd")
    agent.run("true")
    if not os.access(folder, os.R_OK):
        pytest.skip("only root can look at the descriptors of what cannot be traced")
    before = len(list(folder.iterdir()))
    for argv in (("true",), ("no-such-program",)) * 20:
        agent.start("one", *argv)
        agent.next("code")
    assert len(list(folder.iterdir())) == before


def test_commands_that_come_at_once_get_each_their_own_descriptors(agent: Spoken) -> None:
    pipes = [os.pipe() for _ in range(20)]
    for number, (_, writing) in enumerate(pipes):
        agent.start(str(number), "echo", str(number), output=writing)
        os.close(writing)
    said = []
    for reading, _ in pipes:
        with open(reading, "rb") as file:
            said.append(int(file.read()))
    assert said == list(range(20))


def test_an_agent_without_its_runner_ends(agent: Spoken) -> None:
    agent.clear()
    agent.control.close()
    assert agent.process.wait(SECONDS_MAX) == 0


def test_a_message_beyond_the_bound_ends_it(agent: Spoken) -> None:
    agent.control.sendall(b"\xff\xff\xff\xff")
    assert agent.process.wait(SECONDS_MAX) == 0
