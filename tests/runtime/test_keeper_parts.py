"""The parts of the keeper that a whole one shows only on other hosts or in bad luck."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from rota.runtime.keeper import kernel
from rota.runtime.keeper.cgroup import Cgroups
from rota.runtime.keeper.client import Exited, KeeperError
from tests.runtime.homes import Home, exit_of


def test_the_keeper_needs_the_standard_library_alone() -> None:
    code = "import sys, rota.runtime.keeper.__main__; print(*sys.modules)"
    argv = [sys.executable, "-c", code]
    found = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    foreign = {name for name in found if name.startswith("rota") and not name.startswith("rota.runtime.keeper")}
    assert foreign == {"rota", "rota.runtime", "rota.runtime.descriptors", "rota.runtime.space"}
    names = {name.partition(".")[0] for name in found if not name.startswith("_")}
    # Debian's Python starts with a module of its own.
    assert names - sys.stdlib_module_names <= {"rota", "sitecustomize"}
    with_ctypes = subprocess.run(
        [sys.executable, "-c", "import sys, ctypes; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"asyncio", "subprocess", "threading"} & set(found) - set(with_ctypes)


def test_the_start_time_is_read_whatever_a_process_is_called(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    shutil.copy(shutil.which("sleep") or "", program)
    with subprocess.Popen([program, "1000"]) as process:
        try:
            start = kernel.start_time_of(process.pid)
            assert start is not None
            assert abs(start - (kernel.start_time_of(os.getpid()) or 0)) < 10**7
            assert kernel.is_alive(process.pid, start)
            assert not kernel.is_alive(process.pid, start + 1)
            assert process.pid in kernel.descendants_of(os.getpid())
            assert process.pid not in kernel.descendants_of(os.getpid(), but=[process.pid])
        finally:
            process.kill()
    assert kernel.start_time_of(process.pid) is None


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can be another")
@pytest.mark.parametrize("readable", [True, False])
def test_the_memory_of_a_private_process_is_not_for_others_of_its_user(readable: bool) -> None:
    code = f"""
import os
from rota.runtime.keeper import kernel
os.setresgid(4321, 4321, 4321)
os.setresuid(4321, 4321, 4321)
kernel.set_readable({readable})
print(flush=True)
input()
"""
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        user = ["setpriv", "--reuid", "4321", "--regid", "4321", "--clear-groups"]
        result = subprocess.run([*user, "cat", f"/proc/{process.pid}/environ"], capture_output=True, check=False)
        assert (result.returncode == 0) is readable
        process.stdin.write(b"\n")


def test_where_a_cgroup_cannot_be_killed_at_once_each_of_it_is() -> None:
    groups = Cgroups.make(f"rota-test-{uuid.uuid4().hex}")
    if groups is None:
        pytest.skip("no cgroup2 group can be made here")
    group = groups.group("one", "tenant")
    try:
        script = f"echo 0 > {group.procs_file}; sleep 1000 & echo up; wait"
        with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert len(group.pids()) == 2
            while group.is_populated():
                group._kill_each()
    finally:
        group.kill()
        assert group.remove()
        assert groups.remove()


async def test_a_keeper_of_another_version_is_not_used(home: Home) -> None:
    folder = home.path / "keeper"
    folder.mkdir()
    descriptor = os.open(folder, os.O_PATH)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"/proc/self/fd/{descriptor}/keeper.sock")
    os.close(descriptor)
    listener.listen()
    told = {"version": 2, "pid": 4, "pid_start": 5, "started": 6.0, "tree": "cgroup", "colour": "blue"}

    def answer() -> None:
        stream, _ = listener.accept()
        with stream:
            stream.recv(4096)
            stream.sendall(json.dumps({"id": 1, "ok": told}).encode() + b"\n")
            stream.recv(4096)

    answering = asyncio.create_task(asyncio.to_thread(answer))
    with pytest.raises(KeeperError, match=r"\(process 4\) speaks version 2, this Rota 1: stop it"):
        await home.keeper().__aenter__()
    await answering
    listener.close()


async def test_a_disk_that_fails_ends_nothing_and_is_tried_again(home: Home) -> None:
    records = home.path / "keeper" / "records"
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "exec sleep 1000")
        records.rename(records.with_name("elsewhere"))
        await home.start(keeper, "b", "exit 3")
        ended = await exit_of(keeper, "b")
        assert ended.exit and ended.exit.code == 3
        records.with_name("elsewhere").rename(records)
        # It ends after the next try.
        await home.start(keeper, "c", "sleep 1.2")
        await exit_of(keeper, "c")
        assert len(list(records.glob("*.json"))) == 3


async def test_events_end_when_the_keeper_was_shut_down(home: Home) -> None:
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "exec sleep 1000")
        events = keeper.events()
        await anext(events)
        end = asyncio.create_task(keeper.shutdown())
        kinds = [type(event) async for event in events]
        await end
        assert kinds == [Exited]
        assert not (home.path / "keeper" / "keeper.sock").exists()


async def test_a_cancelled_request_leaves_the_connection_whole(home: Home) -> None:
    async with home.keeper() as keeper:
        big = {"BIG": "x" * 100_000}
        starts = [asyncio.create_task(home.start(keeper, f"k{n}", "true", env=big)) for n in range(50)]
        await asyncio.sleep(0)
        for start in starts[::2]:
            start.cancel()
        done = await asyncio.gather(*starts, return_exceptions=True)
        assert sum(isinstance(one, asyncio.CancelledError) for one in done) == 25
        assert not [one for one in done if isinstance(one, KeeperError)]
        assert all(await asyncio.gather(*(keeper.kill(f"k{n}") for n in range(50))))
