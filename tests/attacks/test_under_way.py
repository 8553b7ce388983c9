"""Descriptors under way in sockets, and files in memory, made to be looked at for ever or not at all."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from rota.runtime.interface import Subject
from rota.runtime.keeper import in_flight, open_files
from rota.runtime.nameless import nameless_bytes
from tests.attacks.conftest import TENANT
from tests.until import until

SOMEBODY = Subject(TENANT, "greedy-0", "some-uid")
MIB = 1024 * 1024

CROWDED = """
import os, socket, time
ours, theirs = socket.socketpair()
memory = os.memfd_create("hoard")
os.write(memory, bytes(4 << 20))
for _ in range(4):
    socket.send_fds(ours, [b"x"], [memory] * 50)
os.close(memory)
kept = [os.dup(theirs.fileno()) for _ in range(200)]
print("there", flush=True)
time.sleep(600)
"""

RUN = """
import os
memory = os.memfd_create("hoard", 0)
with open("/bin/sleep", "rb") as program:
    os.write(memory, program.read())
os.write(memory, bytes(4 << 20))
readable = os.open(f"/proc/self/fd/{memory}", os.O_RDONLY | os.O_CLOEXEC)
os.close(memory)
print("there", flush=True)
os.execve(readable, ["sleep", "600"], {})
"""


@contextmanager
def running(code: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"there\n"
            yield child.pid
        finally:
            child.kill()


@pytest.fixture
def peeks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sockets that are looked into, each time."""
    found: list[int] = []
    peeked = in_flight._peek

    def counted(copy: int, *others: Any) -> in_flight.InFlight:
        found.append(copy)
        return peeked(copy, *others)

    monkeypatch.setattr(in_flight, "_peek", counted)
    return found


def test_to_have_one_socket_looked_into_hundreds_of_times(tmp_path: Path, peeks: list[int]) -> None:
    """It is once in each look, whoever looks: files of each time would be the server's memory."""
    with running(CROWDED) as pid:
        assert open_files.memory_bytes([pid]) in (0, 4 * MIB), "nothing is seen by an old kernel"
        assert len(peeks) <= 1
        peeks.clear()
        nameless_bytes({SOMEBODY: [pid]}, tmp_path.stat().st_dev)
        assert len(peeks) <= 1


def test_to_keep_whoever_looks_at_memory_busy(peeks: list[int]) -> None:
    """The keeper starts and ends what all others run: it looks for so long, and no longer."""
    with running(CROWDED) as pid:
        assert open_files.memory_bytes([pid], until=time.monotonic() - 1) == 0
        assert not peeks
        assert open_files.memory_bytes([pid], until=math.inf) in (0, 4 * MIB)


def test_to_keep_whoever_looks_at_memory_busy_with_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """To list the descriptors of one takes a while already."""
    listed: list[int] = []
    tables = open_files.tables

    def counted(pid: int) -> Iterator[open_files.Table]:
        listed.append(pid)
        return tables(pid)

    monkeypatch.setattr(open_files, "tables", counted)
    monkeypatch.setattr(open_files, "MEMORY_FILES_MAX", 10)
    with running(CROWDED) as pid:
        open_files.memory_bytes([pid] * 50)
        assert len(listed) == 1
        open_files.memory_bytes([pid] * 50, until=time.monotonic() - 1)
        assert len(listed) == 1


def test_to_hide_memory_in_a_program_that_is_run(tmp_path: Path) -> None:
    with running(RUN) as pid:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes
        until(lambda: b"sleep" in argv().split(b"\0")[0], argv)
        assert open_files.memory_bytes([pid]) >= 4 * MIB


LINGERING = """
import os, socket, struct, sys
there = socket.create_server(("127.0.0.1", 0))
one = socket.socket()
one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
one.connect(there.getsockname())
one.setblocking(False)
try:
    while True:
        one.send(bytes(65536))
except BlockingIOError:
    pass
if os.fork() == 0:
    mine, its = socket.socketpair()
    there.close()
    for _ in range(40):
        socket.send_fds(mine, [b"x"], [one.fileno()] * 100)
    one.close()
    print(os.getpid(), its.fileno(), flush=True)
one.close()
sys.stdin.read()
"""
"""One socket in flight that whoever closes it last waits for, since nobody reads at its other end."""


def test_to_have_whoever_looks_wait_for_a_socket_that_lingers() -> None:
    with subprocess.Popen([sys.executable, "-c", LINGERING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        pid, number = map(int, owner.stdout.readline().split())
        inode = os.readlink(f"/proc/{pid}/fd/{number}")

        def look() -> None:
            in_flight.in_flight(pid, number, set())
            in_flight.release()

        looking = Thread(target=look, daemon=True)
        looking.start()
        try:
            # The socket that it is in is copied: from now on the copy may be the last one.
            until(
                lambda: not looking.is_alive() or inode in links_of(os.getpid()),
                "there is no copy of the socket, and the look goes on",
                poll_seconds=0,
            )
        finally:
            os.kill(pid, signal.SIGKILL)
        looking.join(20)
        owner.kill()
        assert not looking.is_alive()


def links_of(pid: int) -> set[str]:
    links = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            links.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return links
