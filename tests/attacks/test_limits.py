"""By using up what everybody needs: processes, memory, descriptors; and what is left running for the next holder."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

from rota.runtime import defaults, sandbox
from rota.runtime.interface import Exit, Order, Subject
from rota.runtime.keeper import kernel
from rota.runtime.keeper.client import Keeper
from rota.runtime.local import LocalRuntime
from tests.until import until, until_async

SECONDS_MAX = 60
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or ""
ISOLATION: Literal["sandbox"] | None = "sandbox" if sandbox.available().ok else None
SUBJECT = Subject("tenant", "box", "uid")
BOMB = "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; echo all of them run; sleep 1000"
HOG = "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"
"""Doubles a variable of the shell again and again."""


@pytest.fixture(params=["", "--no-controllers"], ids=["as the host can", "without controllers"])
async def runtime(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[LocalRuntime]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    keeper = Keeper.connect(home, ["--die-with", str(os.getpid()), *filter(None, [request.param])])
    async with asyncio.timeout(SECONDS_MAX), LocalRuntime(home, keeper=keeper) as made:
        yield made
        await made.shutdown()


def ordered(script: str, *, pids: int | None = None, memory_bytes: int | None = None) -> Order:
    return Order(SUBJECT, "main", 0, ("sh", "-c", script), {}, pids=pids, memory_bytes=memory_bytes)


async def exit_of(runtime: LocalRuntime) -> Exit:
    ended: Exit = await until_async(lambda: runtime.runs(SUBJECT)["main"].exit, lambda: runtime.runs(SUBJECT))
    return ended


async def test_to_take_the_host_down_with_a_fork_bomb(runtime: LocalRuntime) -> None:
    run = await runtime.start(ordered(BOMB, pids=30))
    assert "pids" not in run.limits_unmet
    ended = await exit_of(runtime)
    assert ended.failed
    # No process could be made any more, or the tree was ended for having too many.
    assert ended.reason == "TooManyProcesses" or "all of them run" not in ended.lines
    assert await runtime.answers(SECONDS_MAX)


async def test_to_take_the_host_down_with_all_its_memory(runtime: LocalRuntime) -> None:
    began = time.monotonic()
    run = await runtime.start(ordered(HOG, memory_bytes=64 * 1024 * 1024))
    assert "memory" not in run.limits_unmet
    ended = await exit_of(runtime)
    assert ended.failed
    assert ended.reason == "OutOfMemory" or ended.code is not None, ended
    assert time.monotonic() - began < SECONDS_MAX
    assert await runtime.answers(SECONDS_MAX)


UNMAPPED = """
import ctypes, os, socket, time
if "{how}" == "hidden":
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
file = os.memfd_create("hoard")
for _ in range(128): os.write(file, bytes(1 << 20))
if "{how}" == "under way":
    ends = socket.socketpair()
    socket.send_fds(ends[0], [b"x"], [file])
    os.close(file)
time.sleep(1000)
"""


@pytest.mark.parametrize("how", ["open", "hidden", "under way"])
async def test_to_have_memory_that_no_process_has_mapped(runtime: LocalRuntime, how: str) -> None:
    """By a process that cannot be traced, its files are hidden, too; or it has sent them to itself."""
    argv = (PYTHON, "-I", "-c", UNMAPPED.format(how=how))
    order = Order(SUBJECT, "main", 0, argv, {}, memory_bytes=64 * 1024 * 1024, isolation=ISOLATION)
    run = await runtime.start(order)
    assert "memory" not in run.limits_unmet
    ended = await exit_of(runtime)
    assert ended.failed and ended.reason == "OutOfMemory", ended


def test_to_be_held_to_nothing_by_saying_nothing() -> None:
    limits = defaults.limits_of(ordered("true"))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert limits.memory is not None
    assert 0 < limits.memory < pages
    assert (limits.pids, limits.nofile) == (defaults.PIDS, defaults.OPEN_FILES)
    assert defaults.limits_of(ordered("true", pids=5, memory_bytes=6)).pids == 5


def test_to_hide_threads_and_memory_behind_a_first_thread_that_has_ended() -> None:
    """The kernel shows such a process as one that is over, and all that it has as nothing."""
    code = """
import ctypes, threading, time
kept = bytearray(30 << 20)
kept[::4096] = b"x" * (30 << 8)
for _ in range(3): threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    with subprocess.Popen([sys.executable, "-c", code]) as child:

        def states() -> list[bytes]:
            return sorted(kernel.thread_states(child.pid))

        try:
            until(lambda: states() == [b"S", b"S", b"S", b"Z"], states, seconds=SECONDS_MAX)
            found = kernel.sizes()[child.pid]
            assert found.threads >= 3 and found.pages * os.sysconf("SC_PAGE_SIZE") > 30 << 20
            assert kernel.own_memory(child.pid).bytes > 30 << 20
        finally:
            child.kill()
