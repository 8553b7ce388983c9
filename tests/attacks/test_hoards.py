"""By files that no folder shows: those of containers, of what hides itself, and what does not stand still."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rota.runtime import watchdog
from rota.runtime.code import building
from rota.runtime.container import Engine
from rota.runtime.disk import Disk
from rota.runtime.freezing import RESTLESS_MAX, Stillness, frozen
from rota.runtime.interface import Order, Owner, Subject
from rota.runtime.keeper.client import Keeper
from rota.runtime.local import LocalRuntime
from rota.runtime.measuring import Used
from rota.runtime.nameless import nameless_bytes
from rota.runtime.sandbox import Command
from rota.runtime.space import MIB
from rota.runtime.watchdog import Bound, RunningInstance, Watchdog
from tests.attacks.test_disk import these
from tests.runtime_container.conftest import engine, make_image, podman
from tests.runtime_sandbox.conftest import INSIDE, Box, box, make_box
from tests.until import until_async

__all__ = ["box", "engine", "make_box"]

SECONDS_MAX = 60
SOMEBODY = Subject("tenant", "greedy-0", "some-uid")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    keeper = Keeper.connect(home, ["--die-with", str(os.getpid())])
    async with asyncio.timeout(SECONDS_MAX), LocalRuntime(home, keeper=keeper, disk=Disk(home)) as made:
        yield made
        await made.shutdown()


async def test_to_hide_it_from_the_host_in_a_container(
    runtime: LocalRuntime,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its processes are not below what was started, which is the engine's client."""
    monkeypatch.setattr(watchdog, "MEASURE_SECONDS", 0.1)
    monkeypatch.setattr(watchdog, "NAMELESS_ROUNDS", 1)
    hoard = "exec 3> /data/x; busybox rm /data/x; busybox head -c 20000000 /dev/zero >&3; sleep 1000"
    image = await asyncio.to_thread(make_image, engine)
    try:
        order = Order(
            SOMEBODY, "main", 1, ("sh", "-c", hoard), {}, runtime="container", image=image, network="none",
            storage_name="s", storage_path="/data", storage_owner=Owner("s", "uid"), storage_bytes=4 * MIB,
        )  # fmt: skip
        await runtime.start(order)
        over = await until_async(lambda: runtime.overuse(SOMEBODY), "no overuse has been found")
        assert over.reason == "StorageExceeded" and "4.0 MiB" in over.message
        await runtime.stop(SOMEBODY, 0)
    finally:
        await asyncio.to_thread(podman, engine, "rmi", "--force", image)


HIDES = f"""
import ctypes, os, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
file = os.open("{INSIDE}", os.O_TMPFILE | os.O_RDWR)
os.write(file, bytes({MIB}))
print("there", flush=True)
time.sleep(1000)
"""


def test_to_hide_it_by_being_a_process_that_nobody_can_trace(box: Box) -> None:
    with box.started("python3", "-I", "-c", HIDES) as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        device = box.storage.stat().st_dev
        assert MIB <= (nameless_bytes({SOMEBODY: [process.pid]}, device)[SOMEBODY] or 0) < 2 * MIB


WAKE_EACH_OTHER_UP = """
import os, signal, time
for _ in range(10):
    if os.fork() == 0:
        while True:
            time.sleep(0.001)
            os.kill(-1, signal.SIGCONT)
print("there", flush=True)
time.sleep(1000)
"""


def test_to_be_woken_up_whenever_it_is_stopped(box: Box) -> None:
    """It stands still, or it is told from what takes long to stop."""
    deadline = time.monotonic() + SECONDS_MAX
    with box.started("python3", "-I", "-c", WAKE_EACH_OTHER_UP) as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        stillness = Stillness(False)
        while not (stillness.is_whole or stillness.is_restless):
            assert time.monotonic() < deadline
            with frozen([process.pid]) as stopped:
                stillness = stopped.check()


class Restless:
    """Processes that go on however often they are stopped."""

    def check(self) -> Stillness:
        return Stillness(False, is_restless=True)


@contextlib.contextmanager
def never(roots: object) -> Iterator[Restless]:
    yield Restless()


async def test_to_never_be_measured_because_it_never_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Used(0, is_whole=False)
    monkeypatch.setattr(watchdog, "frozen", never)
    monkeypatch.setattr(watchdog, "used", lambda folder, breathe: moved)
    running, now = {SOMEBODY: RunningInstance(Bound(str(tmp_path), MIB, True), ())}, [0.0]
    looking = Watchdog(Disk(tmp_path), these(running), lambda _: None, clock=lambda: now[0])
    rounds = 0
    while (over := looking.over(SOMEBODY)) is None:
        assert (rounds := rounds + 1) < 20
        now[0] += 3600
        await looking.round()
    assert rounds == watchdog.UNSURE_ROUNDS + RESTLESS_MAX - 1
    assert over.reason == "StorageExceeded" and "SIGCONT" in over.message


async def test_to_never_be_measured_while_it_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "frozen", never)
    monkeypatch.setattr(building, "used", lambda folder: Used(0, is_whole=False))
    monkeypatch.setattr(building, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(building, "DISK_SECONDS", 0.01)
    built = building.Building(tmp_path, memory_bytes_max=1 << 40)
    made = Command([sys.executable, "-I", "-c", "import time; time.sleep(1000)"], {})
    with pytest.raises(building.Exceeded, match="SIGCONT"):
        await built.run(made, [tmp_path])


SENDS = f"""
import os, socket, sys, time
how, folder = sys.argv[1:]
ends = []
def sent(kind=socket.SOCK_STREAM):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    ends.extend((a, b))
    for _ in range(3):
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR)
        os.write(file, bytes({MIB}))
        socket.send_fds(a, [b"x"], [file])
        os.close(file)
    return a, b
if how == "datagrams":
    sent(socket.SOCK_DGRAM)
elif how == "stream":
    sent()
elif how == "nested":
    pair = sent()
    a, b = socket.socketpair()
    socket.send_fds(a, [b"x"], [one.fileno() for one in pair])
    for one in pair: one.close()
elif how == "unaccepted":
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("\\0rota-%d" % os.getpid())
    listening.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect(listening.getsockname())
    file = os.open(folder, os.O_TMPFILE | os.O_RDWR)
    socket.send_fds(client, [b"x"], [file])
    os.close(file)
print("there", flush=True)
sys.stdin.readline()
if how == "stream":
    for number in range(3):
        data, [file], _, _ = socket.recv_fds(ends[1], 1, 1)
        assert data == b"x" and os.fstat(file).st_size == {MIB}, number
print("read", flush=True)
"""


@pytest.mark.parametrize("how", ["stream", "datagrams", "nested", "unaccepted"])
def test_to_hide_it_in_a_message_that_nobody_has_received(box: Box, how: str) -> None:
    made = box.command("python3", "-I", "-c", SENDS, how, INSIDE)
    device, unseen = box.storage.stat().st_dev, set[Subject]()
    with subprocess.Popen(made.argv, env=made.env, stdin=-1, stdout=-1) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == b"there\n"
            for _ in range(2):
                found = nameless_bytes({SOMEBODY: [process.pid]}, device, unseen)[SOMEBODY] or 0
                if how == "unaccepted":
                    assert unseen == {SOMEBODY}
                else:
                    assert 3 * MIB <= found < 4 * MIB and not unseen
            # All of it is still there, for who receives it.
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"read\n"
        finally:
            process.kill()


async def test_to_have_files_wait_where_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(running: object, device: int, unseen: set[Subject]) -> dict[Subject, int | None]:
        unseen.add(SOMEBODY)
        return {}

    monkeypatch.setattr(watchdog, "nameless_bytes", look)
    monkeypatch.setattr(watchdog, "NAMELESS_ROUNDS", 1)
    running = {SOMEBODY: RunningInstance(Bound(str(tmp_path / "storage"), MIB, True), ())}
    looking = Watchdog(Disk(tmp_path), these(running), lambda _: None)
    for number in range(watchdog.UNSEEN_LOOKS_MAX):
        assert looking.over(SOMEBODY) is None, number
        await looking.round()
    over = looking.over(SOMEBODY)
    assert over is not None and over.reason == "StorageExceeded" and "accepts" in over.message


async def test_to_have_so_much_that_nobody_else_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of files take minutes. Others are measured meanwhile, and it in the end."""
    monkeypatch.setattr(watchdog, "ROUND_SECONDS_MAX", 0.1)
    go_on, greedy = threading.Event(), Subject("other", "greedy-0", "uid")
    endless = tmp_path / "endless"

    def measured(folder: Path, *, breathe: object) -> Used:
        assert folder != endless or go_on.wait(SECONDS_MAX)
        return Used(2 * MIB)

    monkeypatch.setattr(watchdog, "used", measured)
    running = {
        SOMEBODY: RunningInstance(Bound(str(endless), MIB, True), ()),
        greedy: RunningInstance(Bound(str(tmp_path / "other"), MIB, True), ()),
    }
    looking = Watchdog(Disk(tmp_path), these(running), lambda _: None)
    async with asyncio.timeout(SECONDS_MAX):
        while looking.over(greedy) is None:
            await looking.round()
        assert looking.over(SOMEBODY) is None
        go_on.set()
        while looking.over(SOMEBODY) is None:
            await looking.round()
