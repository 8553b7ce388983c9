"""Whatever comes over the socket, the keeper goes on."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import stat
from collections.abc import Callable
from typing import Any

import pytest

from rota.runtime.keeper import protocol
from tests.runtime.homes import Home, answer, ask, gone

GOOD_START = {"key": "k", "run": "1", "argv": ["true"], "env": {}, "cwd": "/", "log": {"path_prefix": "/nowhere/k"}}


async def alive_after(home: Home, act: Callable[[], None]) -> None:
    """Do it in a thread, beside a child that must not notice."""
    async with home.keeper() as keeper:
        record = await home.start(keeper, "a", "exec sleep 1000")
        first = keeper.hello
        await asyncio.to_thread(act)
        assert [r.pid for r in await keeper.list() if r.is_running] == [record.pid]
        assert keeper.hello == first


def greeted(home: Home) -> socket.socket:
    stream = home.dial()
    assert ask(stream, id=0, verb="hello", version=protocol.VERSION)["ok"]["version"] == protocol.VERSION
    return stream


async def test_the_socket_is_the_owners_alone(home: Home) -> None:
    async with home.keeper():
        path = home.path / "keeper" / "keeper.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_another_user_gets_no_answer(home: Home) -> None:
    """Even one who was let through by the permissions of the file."""

    def other_user() -> None:
        pid = os.fork()
        if pid == 0:
            try:
                folder = os.open(home.path / "keeper", os.O_PATH)
                os.fchmod(os.open(home.path / "keeper", os.O_RDONLY), 0o755)
                os.chmod(home.path / "keeper" / "keeper.sock", 0o666)
                os.setresuid(4321, 4321, 4321)
                stream = socket.socket(socket.AF_UNIX)
                stream.connect(f"/proc/self/fd/{folder}/keeper.sock")
                os._exit(0 if stream.recv(1) == b"" else 1)
            finally:
                os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0

    await alive_after(home, other_user)


async def test_rubbish_is_answered_with_an_error(home: Home) -> None:
    def rubbish() -> None:
        with greeted(home) as stream:
            for line in (
                b"\n",
                b"hello\n",
                b"[]\n",
                b'{"id": 1}\n',
                b"\xff\xfe\n",
                b"[" * 100_000 + b"\n",
                b'{"a": NaN}\n',
            ):
                stream.sendall(line)
                assert answer(stream)["error"]["reason"] in ("BadRequest", "UnknownVerb"), line

    await alive_after(home, rubbish)


@pytest.mark.parametrize(
    "bad",
    [
        {"key": ""},
        {"key": "x" * 1000},
        {"key": "\ud800"},
        {"key": 5},
        {"run": None},
        {"argv": []},
        {"argv": "true"},
        {"argv": ["a\0b"]},
        {"argv": [["true"]]},
        {"env": None},
        {"env": {"A=B": "1"}},
        {"env": {"A": 1}},
        {"cwd": None},
        {"uid": -1, "gid": 1},
        {"uid": 1},
        {"uid": True, "gid": 1},
        {"uid": 2**40, "gid": 1},
        {"limits": {"memory": -5}},
        {"limits": {"memory": "much"}},
        {"limits": {"cpu": 1e300}},
        {"log": {}},
        {"log": {"path_prefix": "relative"}},
        {"log": {"path_prefix": "/tmp/x", "files_max": 10**9}},
        {"pid_namespace": "yes"},
    ],
    ids=str,
)
async def test_a_start_with_a_wrong_field_is_refused(home: Home, bad: dict[str, Any]) -> None:
    def wrong() -> None:
        with greeted(home) as stream:
            assert ask(stream, id=1, verb="start", **{**GOOD_START, **bad})["error"]["reason"] == "BadRequest"

    await alive_after(home, wrong)


async def test_nothing_is_done_before_hello(home: Home) -> None:
    def hasty() -> None:
        with home.dial() as stream:
            assert ask(stream, id=1, verb="kill", key="a")["error"]["reason"] == "OtherVersion"

    await alive_after(home, hasty)


async def test_a_line_without_an_end_is_cut_off(home: Home) -> None:
    def endless() -> None:
        with greeted(home) as stream, pytest.raises(OSError):
            stream.sendall(b"x" * 2 * protocol.REQUEST_BYTES_MAX)

    await alive_after(home, endless)


async def test_descriptors_that_nobody_asked_for_are_closed(home: Home) -> None:
    def flood() -> None:
        read, write = os.pipe()
        with greeted(home) as stream:
            socket.send_fds(stream, [b" "], [write] * 3)
        os.close(write)
        assert os.read(read, 1) == b""  # the keeper's copies are gone too
        os.close(read)

    await alive_after(home, flood)


async def test_a_client_that_does_not_read_is_cut_off_and_delays_nobody(home: Home) -> None:
    def deaf() -> None:
        with greeted(home) as stream:
            asked = b'{"id": 1, "verb": "list", "pad": "' + b"x" * 100 + b'"}\n'
            # Its answers are longer than its questions.
            with pytest.raises(OSError):
                stream.sendall(asked * (2 * protocol.BACKLOG_BYTES_MAX // len(asked)))

    await alive_after(home, deaf)


async def test_more_connections_than_allowed_are_closed(home: Home) -> None:
    def many() -> None:
        streams = [home.dial() for _ in range(protocol.CONNECTIONS_MAX)]
        assert streams[-1].recv(1) == b""
        for stream in streams:
            stream.close()

    await alive_after(home, many)


async def test_random_bytes_and_random_requests_do_no_harm(home: Home) -> None:
    chance = random.Random(7)
    verbs = ["start", "stop", "kill", "signal", "list", "forget", "exec", "watch", "hello", "none"]
    values: list[Any] = [
        None,
        0,
        -1,
        2**70,
        1.5,
        True,
        "",
        "b",
        "\ud800",
        [],
        ["true"],
        {},
        {"A": "b"},
        {"path_prefix": "/"},
    ]
    names = ["key", "run", "argv", "env", "cwd", "log", "limits", "signal", "grace_seconds", "version", "uid", "tty"]

    def storm() -> None:
        for _ in range(20):
            with greeted(home) as stream:
                for _ in range(20):
                    request = {name: chance.choice(values) for name in names if chance.random() < 0.8}
                    if request.get("key") == "a":
                        continue
                    line = json.dumps({"id": 1, "verb": chance.choice(verbs), **request}).encode()
                    stream.sendall((chance.randbytes(50) if chance.random() < 0.2 else line) + b"\n")
                stream.shutdown(socket.SHUT_WR)
                while stream.recv(65536):
                    pass

    await alive_after(home, storm)


async def test_a_keeper_that_is_told_to_end_is_gone(home: Home) -> None:
    async with home.keeper() as keeper:
        assert keeper.hello is not None
        await keeper.shutdown()
        await gone(keeper.hello.pid)
        assert not (home.path / "keeper" / "keeper.sock").exists()
