"""Messages that no runner would send, in front of the static agent: it ends, or refuses a command, and does no more."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.runtime.runner.agent import LENGTH_BYTES, MESSAGE_BYTES_MAX
from tests.agent import programs
from tests.amount import LONG, amount
from tests.runtime.homes import unsearchable
from tests.workers.test_agent import Spoken

SECONDS_MAX = 20.0
FUZZED = amount(300_000, 20_000_000)
STREAMS = amount(60, 3000)
ARGUMENTS_MAX, VARIABLES_MAX = 65536, 4096
"""As in agent.h."""


@pytest.fixture(params=["c", "sanitized"])
def spoken(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Spoken]:
    spoken = Spoken(tmp_path, programs.argv(request.param))
    yield spoken
    spoken.end()


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def test_messages_that_were_changed_at_random_are_read_within_their_bounds() -> None:
    seed = random.randrange(1 << 30) if LONG else 1
    argv = [str(programs.program("fuzz")), str(FUZZED), str(seed)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=1000, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr[-4000:]}"
    could_be_read = int(done.stdout.split()[0])
    assert FUZZED * 0.05 < could_be_read < FUZZED * 0.95


RUBBISH = {
    "nothing": b"",
    "no JSON": b"{]",
    "no object": b"[]",
    "two objects": b"{}{}",
    "nothing in it": b"{}",
    "half of it": b'{"do":"clear"',
    "no text": b'{"do":"cl\xffear"}',
    "a line end in a text": b'{"do":"clear","x":"\n"}',
    "an escape that is none": b'{"do":"clear","x":"\\x41"}',
    "half of an escape": b'{"do":"clear","x":"\\u12',
    "another deed": b'{"do":"dance"}',
    "a deed without what it takes": b'{"do":"signal","id":"1"}',
    "a field twice": b'{"do":"signal","id":"1","id":"2","signal":15}',
    "no identifier": b'{"do":"signal","id":"","signal":15}',
    "a long identifier": b'{"do":"signal","id":"' + b"1" * 129 + b'","signal":15}',
    "a zero byte in an identifier": b'{"do":"signal","id":"1\\u0000","signal":15}',
    "an identifier that is no text": b'{"do":"signal","id":"\\udc80","signal":15}',
    "a signal that there is not": b'{"do":"signal","id":"1","signal":65}',
    "a negative signal": b'{"do":"signal","id":"1","signal":-9}',
    "a long number": b'{"do":"signal","id":"1","signal":' + b"9" * 1000 + b"}",
    "a number of another type": b'{"do":"signal","id":"1","signal":"9"}',
    "nested too deeply": b'{"x":' + b"[" * 1000 + b"]" * 1000 + b',"do":"clear"}',
    "more to keep than there can be": b'{"do":"clear","but":["1"' + b',"1"' * 1024 + b"]}",
    "arguments that are no list": b'{"do":"run","id":"1","argv":"true","env":{},"cwd":"/"}',
    "arguments that are no text": b'{"do":"run","id":"1","argv":[1],"env":{},"cwd":"/"}',
    "an environment that is no object": b'{"do":"run","id":"1","argv":["true"],"env":[],"cwd":"/"}',
    "variables that are no text": b'{"do":"run","id":"1","argv":["true"],"env":{"A":null},"cwd":"/"}',
    "a place that is no text": b'{"do":"run","id":"1","argv":["true"],"env":{},"cwd":null}',
    "a command without descriptors": b'{"do":"run","id":"1","argv":["true"],"env":{},"cwd":"/"}',
    "a key, where nobody connects": b'{"do":"keep","key":"1"}',
    "an end beyond all codes": b'{"do":"end","code":256}',
}


@pytest.mark.parametrize("content", RUBBISH.values(), ids=RUBBISH)
def test_an_agent_that_is_sent_rubbish_ends(spoken: Spoken, content: bytes) -> None:
    spoken.control.sendall(frame(content))
    assert spoken.process.wait(SECONDS_MAX) == 0


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_command_has_three_descriptors(spoken: Spoken, count: int) -> None:
    # It may end before it has been sent the rest.
    with open(os.devnull, "r+b") as nothing, contextlib.suppress(BrokenPipeError):
        spoken.send(*[nothing.fileno()] * count, do="run", id="1", argv=["true"], env={}, cwd="/")
    assert spoken.process.wait(SECONDS_MAX) == 0


def test_a_signal_has_no_descriptor(spoken: Spoken) -> None:
    with contextlib.suppress(BrokenPipeError):
        spoken.send(0, do="signal", id="1", signal=15)
    assert spoken.process.wait(SECONDS_MAX) == 0


def test_a_message_may_come_in_pieces(spoken: Spoken) -> None:
    with open(os.devnull, "r+b") as nothing:
        fd = nothing.fileno()
        content = json.dumps({"do": "run", "id": "1", "argv": ["true"], "env": {}, "cwd": "/", "more": [{}, -1e3]})
        whole = frame(content.encode())
        socket.send_fds(spoken.control, [whole[:1]], [fd, fd, fd])
    for at in range(1, len(whole)):
        spoken.control.sendall(whole[at : at + 1])
    assert spoken.next("code")["code"] == 0


TOO_MUCH = {
    "arguments": {"argv": ["true"] + [""] * ARGUMENTS_MAX, "env": {}},
    "an argument": {"argv": ["true", "x" * 300_000], "env": {}},
    "variables": {"argv": ["true"], "env": {f"A{number}": "" for number in range(VARIABLES_MAX + 1)}},
    "a name": {"argv": ["x" * 5000], "env": {}},
}


@pytest.mark.parametrize("more", TOO_MUCH.values(), ids=TOO_MUCH)
def test_more_than_a_command_can_have_is_refused_and_the_agent_goes_on(spoken: Spoken, more: dict[str, object]) -> None:
    with open(os.devnull, "r+b") as nothing:
        fd = nothing.fileno()
        spoken.send(fd, fd, fd, do="run", id="1", cwd="/", **more)
    ended = spoken.next("code")
    assert ended["code"] == 127 and len(ended["error"]) < 1024
    assert spoken.run("true")[0] == 0


def test_why_a_program_does_not_begin_is_not_that_another_folder_cannot_be_searched(spoken: Spoken) -> None:
    path = f"{unsearchable(spoken.folder)}:{os.environ['PATH']}"
    spoken.start("one", "true", "x" * 300_000, env={"PATH": path})
    ended = spoken.next("code")
    assert ended["code"] == 127 and "too long" in ended["error"]


@pytest.mark.parametrize("variables", [{"A=B": "c"}, {"A": "b\0"}, {"": "x", "=": ""}])
def test_what_is_no_environment_is_refused(spoken: Spoken, variables: dict[str, str]) -> None:
    spoken.start("1", "true", env=variables)
    assert spoken.next("code")["code"] == 127
    assert spoken.run("true")[0] == 0


def test_the_longest_message_is_read_and_its_memory_is_given_back(tmp_path: Path) -> None:
    spoken = Spoken(tmp_path, programs.argv("c"))
    content = {"do": "signal", "id": "1", "signal": 15, "more": ""}
    content["more"] = "x" * (MESSAGE_BYTES_MAX - len(json.dumps(content)))
    assert len(json.dumps(content)) == MESSAGE_BYTES_MAX
    spoken.send(**content)
    assert spoken.run("true")[0] == 0
    resident = int(Path(f"/proc/{spoken.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert resident < 2_000_000
    spoken.end()


def test_a_runner_that_does_not_read_is_waited_for_and_misses_nothing(spoken: Spoken) -> None:
    count = 3000

    def send() -> None:
        for number in range(count):
            spoken.start(str(number), "no-such-program")

    sending = threading.Thread(target=send)
    spoken.control.settimeout(None)
    sending.start()
    sending.join(2.0)
    assert [spoken.next("code")["id"] for _ in range(count)] == [str(number) for number in range(count)]
    sending.join()


def test_streams_that_were_changed_at_random_end_the_agent_or_are_understood(tmp_path: Path) -> None:
    """None of them names `alone`, which would end what else runs on this machine."""
    draw = random.Random(None if LONG else 1)
    seeds = [
        b'{"do":"run","id":"1","argv":["true","a"],"env":{"A":"b"},"cwd":"/"}',
        b'{"do":"signal","id":"1","signal":15}',
        b'{"do":"clear","but":["1"]}',
    ]
    argv = programs.argv("sanitized")
    for _ in range(STREAMS):
        spoken = Spoken(tmp_path, argv)
        for _ in range(10):
            content = bytearray(draw.choice(seeds))
            for _ in range(draw.choice((0, 0, 1, 1, 3))):
                at = draw.randrange(len(content))
                content[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(3))
            whole = frame(bytes(content))
            if draw.random() < 0.1:
                whole = whole[: draw.randrange(1, len(whole) + 1)]
            try:
                with open(os.devnull, "r+b") as nothing:
                    count = 3 if content.startswith(b'{"do":"run"') else draw.choice((0, 0, 0, 1))
                    socket.send_fds(spoken.control, [whole[:1]], [nothing.fileno()] * count)
                spoken.control.sendall(whole[1:])
            except OSError:
                break
        spoken.control.shutdown(socket.SHUT_WR)
        assert spoken.process.wait(SECONDS_MAX) == 0
        spoken.end()
