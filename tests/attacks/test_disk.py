"""By the disk that everybody shares."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rota.runtime import measuring, sandbox
from rota.runtime.disk import Disk
from rota.runtime.freezing import frozen
from rota.runtime.interface import Subject
from rota.runtime.keeper import kernel
from rota.runtime.keeper.log_file import LogFile
from rota.runtime.nameless import nameless_bytes
from rota.runtime.runner.tasklog import TaskLog
from rota.runtime.space import MIB, Space, level_of, low_bytes, reserve_bytes
from rota.runtime.task_logs_bounds import trim
from rota.runtime.watchdog import Bound, RunningInstance, Watchdog
from rota.runtime.workspace.discard import discard
from rota.store import writer
from tests.attacks.conftest import API, TENANT, deployer
from tests.local.place import Place
from tests.runner.queues import queue_in
from tests.server.conftest import Server, served
from tests.until import until, until_async, until_so
from tests.workers.apart import apart

SECONDS_MAX = 60
DISK_MIB = 48
MERGE = {"Content-Type": "application/merge-patch+json"}
SOMEBODY = Subject(TENANT, "greedy-0", "some-uid")


class Filled:
    """A disk that is as full as it is said to be."""

    def __init__(self) -> None:
        self.free = 600 * MIB

    def __call__(self, path: Path) -> Space:
        return Space(1000 * MIB, self.free)


def config(name: str, content: str = "x") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": content}}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    if os.geteuid() != 0:
        pytest.skip("a file system is mounted by root alone")
    place = tmp_path / "disk"
    place.mkdir()
    options = f"size={DISK_MIB}m,mode=0755"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(file: Path) -> None:
    """As `dd` does."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as opened:
        while opened.write(bytes(65536)):
            pass


async def ready(server: Server) -> int:
    return (await server.ask("GET", "/readyz", token=None)).status


async def test_to_stop_everybodys_writes_by_filling_the_disk(small: Path) -> None:
    async with served(small / "home", with_controllers=False) as server:
        tenant = await deployer(server)
        maps = f"/api/v1/namespaces/{TENANT}/configmaps"
        assert (await tenant.ask("POST", maps, config("before"))).status == 201
        assert (server.home / "reserve").stat().st_blocks * 512 == reserve_bytes(DISK_MIB * MIB)
        fill(small / "hog")
        # A tenant's writes are refused first, with the reason; what frees space is not, nor what the server needs.
        refused = await tenant.ask("POST", maps, config("during"))
        assert (refused.status, refused.json["reason"]) == (507, "NoSpace")
        assert "kept for the server itself" in refused.json["message"]
        assert int(refused.headers["retry-after"]) > 0
        assert (await server.ask("POST", maps, config("admins"))).status == 201
        assert (await tenant.ask("DELETE", f"{maps}/before")).status == 200
        assert await ready(server) == 500
        assert (await server.ask("GET", "/livez", token=None)).status == 200
        said = (await server.ask("GET", "/v1/status")).json["disk"]
        assert said["level"] in ("low", "full") and "MiB left" in said["message"]
        # Nobody does anything but free the space.
        (small / "hog").unlink()
        assert await ready(server) == 200
        assert (await tenant.ask("POST", maps, config("during"))).status == 201
        assert (await server.ask("GET", "/v1/status")).json["disk"]["level"] == "ok"
        await until_async((server.home / "reserve").exists, "no reserve")


async def test_to_have_the_store_give_up_for_good(small: Path) -> None:
    """With all that an admin may write, until there is really nothing left."""
    async with served(small / "home") as server:
        maps = "/api/v1/namespaces/default/configmaps"
        fill(small / "hog")
        for number in range(200):
            made = await server.ask("POST", maps, config(f"large-{number}", "x" * 200_000))
            if made.status != 201:
                break
        assert (made.status, made.json["reason"]) == (503, "ServiceUnavailable")
        assert "the disk takes no writes" in made.json["message"] and made.headers["retry-after"]
        assert await ready(server) == 500
        assert (await server.ask("GET", "/v1/status")).json["disk"]["level"] == "failing"
        assert (await server.ask("GET", f"{maps}/large-0")).status == 200
        (small / "hog").unlink()
        await until_so(lambda: ready(server), lambda status: status == 200, "a ready server")
        assert (await server.ask("POST", maps, config("after"))).status == 201
        # And the controllers go on.
        pool = {"metadata": {"name": "later"}, "spec": {"worker": {"type": "shell"}, "replicas": 0}}
        pool |= {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool"}
        assert (await server.ask("POST", f"{API}/default/workerpools", pool)).status == 201
        where = f"{API}/default/workerpools/later"
        await until_so(lambda: server.ask("GET", where), lambda reply: "status" in reply.json, "a pool with a status")


def test_to_keep_a_server_that_crashed_from_coming_back(small: Path) -> None:
    """The reserve is used up by then, and nobody can delete anything until the server is up."""
    place = Place(small)
    try:
        pid = place.start()
        (small / "before.json").write_text(json.dumps(config("before")))
        place.says("apply", "-f", str(small / "before.json"))
        fill(small / "hog")
        (place.home / "reserve").unlink(missing_ok=True)
        fill(small / "more")
        os.kill(pid, signal.SIGKILL)
        until(lambda: place.found().condition != "running", lambda: f"{place.found()} after its end")
        fill(small / "rest")
        # At another port: the kubeconfig is another one, too.
        assert place.start() != pid
        place.says("delete", "configmap/before")
        assert not [one.name for one in place.home.iterdir() if one.name.startswith(".")]
    finally:
        for file in ("hog", "more", "rest"):
            (small / file).unlink(missing_ok=True)
        place.close()


def take_all(file: Path, stopping: threading.Event) -> None:
    """Fill the disk, and go on: whatever somebody else gives up is had at once."""
    with file.open("wb", buffering=0) as opened:
        while not stopping.is_set():
            try:
                opened.write(bytes(4096))
            except OSError:
                stopping.wait(0.0005)


async def test_to_have_what_the_server_keeps_for_itself(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attacker goes on filling the disk. Objects can still be deleted, however much is written meanwhile."""
    monkeypatch.setattr(writer, "ROOM_SECONDS", 0.0)
    async with served(small / "home", with_controllers=False) as server:
        tenant = await deployer(server)
        maps = f"/api/v1/namespaces/{TENANT}/configmaps"
        assert (await tenant.ask("POST", maps, config("cause"))).status == 201
        assert (await server.ask("POST", maps, config("status"))).status == 201
        stopping = threading.Event()
        taking = asyncio.create_task(asyncio.to_thread(take_all, small / "hog", stopping))
        try:
            reserve = server.home / "reserve"
            await until_so(lambda: (reserve.exists(), free(small)), lambda it: it == (False, 0), "no reserve, no bytes")
            # As controllers write the same objects again and again, which is more than the store has for itself.
            for number in range(100):
                changed = {"data": {"a": f"{number:06}" * 20_000}}
                replied = await server.ask("PATCH", f"{maps}/status", changed, headers=MERGE)
                assert replied.status == 200, (number, replied.json)
            assert (await tenant.ask("POST", maps, config("more"))).status == 507
            # And as schedules make new ones, until there is no space but for what is there.
            made = [await server.ask("POST", maps, config(f"new-{number}", "x" * 200_000)) for number in range(30)]
            assert made[-1].status == 503 and "anything new" in made[-1].json["message"]
            assert (await server.ask("PATCH", f"{maps}/status", {"data": {"a": "x"}}, headers=MERGE)).status == 200
            assert (await tenant.ask("DELETE", f"{maps}/cause")).status == 200
            # Nor is it unseen.
            *_, last = (server.home / "audit.log").read_text().splitlines()
            assert json.loads(last)["verb"] == "delete" and "lose" not in (server.home / "audit.log").read_text()
            assert (await server.ask("GET", "/livez", token=None)).status == 200
        finally:
            stopping.set()
            await taking
        (small / "hog").unlink()
        await until_so(lambda: server.ask("POST", maps, config("after")), lambda reply: reply.status == 201, "room")


def free(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


WAYS = [
    ("POST", f"/api/v1/namespaces/{TENANT}/configmaps", config("new"), {}),
    ("PUT", f"/api/v1/namespaces/{TENANT}/configmaps/there", config("there", "more"), {}),
    ("PATCH", f"/api/v1/namespaces/{TENANT}/configmaps/there", {"data": {"b": "more"}}, MERGE),
    (
        "POST",
        "/v1/batch",
        {"operations": [{"verb": "create", "apiVersion": "v1", "kind": "ConfigMap", "namespace": TENANT}]},
        {},
    ),
    ("PUT", f"/v1/blobs/sha256:{'0' * 64}", b"code", {}),
    ("POST", f"/v1/pools/{TENANT}/some/claims", {}, {}),
    ("PUT", f"/v1/instances/{TENANT}/some-0/files?path=/tmp/a", b"content", {}),
    ("PUT", f"/v1/instances/{TENANT}/some-0/archive?path=/tmp", b"content", {}),
]


@pytest.fixture
async def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Server, Filled]]:
    disk = Filled()
    monkeypatch.setattr("rota.server.main.Disk", functools.partial(Disk, measure=disk))
    async with served(tmp_path / "home", with_controllers=False) as server:
        yield server, disk


async def test_to_write_what_is_left_of_a_disk_by_any_way_in(filled: tuple[Server, Filled]) -> None:
    server, disk = filled
    tenant = await deployer(server)
    assert (await tenant.ask("POST", f"/api/v1/namespaces/{TENANT}/configmaps", config("there"))).status == 201
    disk.free = low_bytes(1000 * MIB) - 1
    for method, path, body, headers in WAYS:
        refused = await tenant.ask(method, path, body, headers=headers)
        assert (refused.status, refused.json["reason"]) == (507, "NoSpace"), path
    assert await ready(server) == 500
    deletes = [{"verb": "delete", "apiVersion": "v1", "kind": "ConfigMap", "namespace": TENANT, "name": "there"}]
    batch = {"atomic": False, "operations": [*WAYS[3][2]["operations"], *deletes]}  # type: ignore[index]
    results = (await tenant.ask("POST", "/v1/batch", batch)).json["results"]
    assert [result["code"] for result in results] == [507, 200]
    disk.free = 600 * MIB
    for method, path, body, headers in WAYS[:1]:
        assert (await tenant.ask(method, path, body, headers=headers)).status == 201
    assert await ready(server) == 200


async def test_to_have_webhooks_write_it_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Filled()
    monkeypatch.setattr("rota.server.main.Disk", functools.partial(Disk, measure=disk))
    async with served(tmp_path / "home") as server:
        edge = (await server.ask("GET", "/v1/status")).json["edge"]
        host, _, port = edge.removeprefix("http://").partition(":")
        head = f"POST /-/hooks/{TENANT}/any HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"

        async def deliver() -> int:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"{head}{{}}".encode())
            answer = await reader.read()
            writer.close()
            return int(answer.split()[1])

        disk.free = 0
        assert await deliver() == 507
        disk.free = 600 * MIB
        # It is looked at, and is nobody's.
        assert await deliver() in (401, 404, 503)


# Sizes.


def _storing(command: str, size: str = "4Mi") -> dict[str, Any]:
    container = {"name": "main", "command": ["/bin/sh", "-c", f"{command}; exec sleep 600"]}
    template = {"containers": [container], "storage": {"size": size, "path": "/data"}, "isolation": "sandbox"}
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "greedy"},
        "spec": {"replicas": 1, "template": template},
    }


def python(code: str) -> str:
    return f"{sys.executable} -c {shlex.quote(f'import ctypes, os, shutil, threading{chr(10)}{code}')}"


HOARDS = {
    "a file": "head -c 20000000 /dev/zero > /data/hoard",
    "many files": "mkdir /data/d; for i in $(seq 300); do head -c 65536 /dev/zero > /data/d/$i; done",
    "a file without a name": "exec 3> /data/hoard; rm /data/hoard; head -c 20000000 /dev/zero >&3",
    "a closed folder": "mkdir /data/d; head -c 20000000 /dev/zero > /data/d/hoard; chmod 0 /data/d",
    "links, which take no space": python("[os.symlink('x', f'/data/{i}') for i in range(3000)]"),
    "a folder that never stays where it is": python(
        """
os.makedirs('/data/a/d'); os.mkdir('/data/b')
def move():
    while True:
        os.rename('/data/a/d', '/data/b/e'); os.rename('/data/b/e', '/data/a/d')
threading.Thread(target=move).start()
file = open('/tmp/hoard', 'wb'); file.write(bytes(20_000_000)); file.close()
while not os.path.exists('/data/a/d/hoard'):
    try: shutil.copyfile('/tmp/hoard', '/data/a/d/hoard')
    except OSError: pass
# The first thread is over, and the process is not.
ctypes.CDLL(None).pthread_exit(None)
"""
    ),
}


@pytest.mark.parametrize("how", HOARDS)
@pytest.mark.skipif(not sandbox.available().ok, reason="this host makes no sandboxes")
async def test_to_store_more_than_the_size_of_its_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("rota.runtime.watchdog.MEASURE_SECONDS", 0.1)
    async with served(tmp_path / "home") as server:
        tenant = await deployer(server)
        assert (await tenant.ask("POST", f"{API}/{TENANT}/workerpools", _storing(HOARDS[how]))).status == 201

        async def told() -> Any:
            events = (await server.ask("GET", f"/api/v1/namespaces/{TENANT}/events")).json["items"]
            return [one["message"] for one in events if one["reason"] == "StorageExceeded"]

        (message, *_) = await until_so(told, bool, "a message")
        assert re.search(r"MiB (with \d+ files )?in its storage, whose size is 4.0 MiB", message)
        assert (await server.ask("DELETE", f"{API}/{TENANT}/workerpools/greedy")).status == 200


@pytest.mark.skipif(not sandbox.available().ok, reason="this host makes no sandboxes")
async def test_to_be_told_that_a_size_is_held_when_nothing_holds_it(tmp_path: Path) -> None:
    async with served(tmp_path / "home") as server:
        tenant = await deployer(server)
        assert (await tenant.ask("POST", f"{API}/{TENANT}/workerpools", _storing("true"))).status == 201
        where = f"{API}/{TENANT}/instances"

        async def conditions() -> dict[str, Any]:
            found = (await tenant.ask("GET", where)).json["items"]
            return {one["type"]: one for obj in found for one in obj.get("status", {}).get("conditions", [])}

        found = (await until_so(conditions, lambda said: "StorageBounded" in said, "StorageBounded"))["StorageBounded"]
        assert (found["status"], found["reason"]) == ("True", "Measured")
        assert "measured" in found["message"] and "more than 4Mi" in found["message"]


def test_to_hide_what_a_folder_takes(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    block = bytes(MIB)
    (top / "one").write_bytes(block)
    os.link(top / "one", top / "two")
    (top / "elsewhere").symlink_to("/usr")
    with (top / "holes").open("wb") as file:
        file.truncate(1 << 40)
    inner = top / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "three").write_bytes(block)
    for mode in (0o000, 0o400, 0o500):
        inner.chmod(mode)
        assert 2 * MIB <= measuring.used(top).bytes < 3 * MIB
        assert inner.stat().st_mode & 0o777 == mode
    inner.chmod(0o700)
    at = os.open(top, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=at)
        os.mkdir("e", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    hoard = os.open("hoard", os.O_WRONLY | os.O_CREAT, dir_fd=at)
    os.write(hoard, bytes(5 * MIB))
    os.close(hoard)
    os.fchmod(at, 0)
    os.close(at)
    assert measuring.used(top).bytes >= 7 * MIB
    discard(top, seconds_max=60)
    assert measuring.used(tmp_path / "missing").bytes == 0


def test_to_move_it_to_where_it_was_looked_for_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is notified of every folder that is opened knows when to move."""
    for name in ("a", "b"):
        (tmp_path / "top" / name).mkdir(parents=True)
    (tmp_path / "top" / "a" / "other").touch()
    (tmp_path / "top" / "b" / "hoard").write_bytes(bytes(5 * MIB))
    assert measuring.used(tmp_path / "missing").is_whole
    monkeypatch.setattr(measuring, "BREATH_ENTRIES", 1)
    monkeypatch.setattr(measuring, "CLOCK_SECONDS", 0.0)
    time.sleep(0.05)
    for path in (tmp_path / "top", tmp_path / "top" / "a", tmp_path / "top" / "b"):
        assert measuring.used(path).is_whole

    def move(_: float) -> None:
        time.sleep(0.05)  # The clock of a file system ticks slowly.
        for name, other in (("a", "b"), ("b", "a")):
            with contextlib.suppress(FileNotFoundError):
                (tmp_path / "top" / name / "hoard").rename(tmp_path / "top" / other / "hoard")
                break

    assert not measuring.used(tmp_path / "top", breathe=move).is_whole


def test_to_hide_it_in_a_file_that_has_no_name(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
file = os.open({str(tmp_path / "hoard")!r}, os.O_WRONLY | os.O_CREAT)
os.unlink({str(tmp_path / "hoard")!r})
os.write(file, bytes({MIB}))
if os.fork() == 0:
    time.sleep(60)
print("there", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, process_group=0) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"there\n"
            device = tmp_path.stat().st_dev
            assert MIB <= (nameless_bytes({SOMEBODY: [child.pid]}, device)[SOMEBODY] or 0) < 2 * MIB
            assert not nameless_bytes({SOMEBODY: [child.pid]}, device + 1)[SOMEBODY]
        finally:
            os.killpg(child.pid, 9)


def these(running: Mapping[Subject, RunningInstance]) -> Callable[[], Awaitable[Mapping[Subject, RunningInstance]]]:
    async def watched() -> Mapping[Subject, RunningInstance]:
        return running

    return watched


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_to_stand_still_for_ever_because_a_server_was_killed(tmp_path: Path) -> None:
    """The next server makes the frozen processes go on."""
    unshare = ["unshare", "--user", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this host makes no namespaces")
    with subprocess.Popen([*unshare, "sh", "-c", "echo there; exec sleep 600"], stdout=-1) as outer:
        try:
            assert outer.stdout is not None and outer.stdout.readline() == b"there\n"
            _, inner = kernel.below(outer.pid, kernel.sizes())
            with frozen([outer.pid]) as stopped:
                assert stopped.check().is_whole and state_of(inner) == "T" and state_of(outer.pid) != "T"
            await until_so(lambda: state_of(inner), lambda state: state == "S", "asleep")
            os.kill(inner, signal.SIGSTOP)
            (tmp_path / "frozen").write_text(f"[{outer.pid}]")
            running = {SOMEBODY: RunningInstance(Bound(str(tmp_path), MIB, False), (outer.pid,))}
            watchdog = asyncio.create_task(Watchdog(Disk(tmp_path), these(running), lambda _: None).run())
            await until_so(lambda: state_of(inner), lambda state: state == "S", "asleep again")
            await until_async(lambda: not (tmp_path / "frozen").exists(), "a list of what is frozen")
            watchdog.cancel()
            await asyncio.gather(watchdog, return_exceptions=True)
        finally:
            outer.kill()


def test_to_hide_it_in_files_that_only_a_thread_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has unshared its files from the first one, which then ends."""
    code = f"""
import ctypes, os, threading, time
def hoard():
    assert ctypes.CDLL(None).unshare(0x400) == 0
    file = os.open({str(tmp_path / "hoard")!r}, os.O_WRONLY | os.O_CREAT)
    os.unlink({str(tmp_path / "hoard")!r})
    os.write(file, bytes({MIB}))
    print("there", flush=True)
    time.sleep(60)
threading.Thread(target=hoard).start()
if {{end}}: ctypes.CDLL(None).pthread_exit(None)
time.sleep(60)
"""
    device = tmp_path.stat().st_dev
    for end in (False, True):
        with subprocess.Popen([sys.executable, "-c", code.format(end=end)], stdout=-1) as child:
            try:
                assert child.stdout is not None and child.stdout.readline() == b"there\n"
                assert MIB <= (nameless_bytes({SOMEBODY: [child.pid]}, device)[SOMEBODY] or 0) < 2 * MIB
                with monkeypatch.context() as patched:
                    patched.setattr("rota.runtime.nameless.DESCRIPTORS_MAX", 2)
                    assert nameless_bytes({SOMEBODY: [child.pid]}, device)[SOMEBODY] is None
            finally:
                child.kill()


# Without storage.


@pytest.mark.skipif(not sandbox.available().ok, reason="this host makes no sandboxes")
async def test_to_fill_the_disk_from_a_sandbox_and_stay(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.runtime.watchdog.MEASURE_SECONDS", 0.1)
    async with served(small / "home") as server:
        tenant, other = await deployer(server), await deployer(server, "neighbour")
        pool = {"metadata": {"name": "some"}, "spec": {"worker": {"type": "shell"}, "replicas": 1}}
        pool |= {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool"}
        assert (await tenant.ask("POST", f"{API}/{TENANT}/workerpools", pool)).status == 201
        command = ["/bin/sh", "-c", "dd if=/dev/zero of=hoard bs=64k; sleep 600"]
        spec = {"command": command, "workerPoolRef": {"name": "some"}, "retry": {"limit": 0}}
        task = {"apiVersion": "rota.dev/v1alpha1", "kind": "Task", "metadata": {"name": "greedy"}, "spec": spec}
        assert (await tenant.ask("POST", f"{API}/{TENANT}/tasks", task)).status == 201

        async def status() -> Any:
            return (await server.ask("GET", f"{API}/{TENANT}/tasks/greedy")).json.get("status", {})

        ended = ("Failed", "Succeeded", "Cancelled")
        over = await until_so(status, lambda found: found.get("phase") in ended, "the end of the task")
        # It has failed, and is not tried again as one that merely lost its worker would be.
        assert (over["phase"], over["reason"], len(over["attempts"])) == ("Failed", "Failed", 1)
        assert over["message"].startswith("DiskPressure: ")
        # Nobody has done anything, and a neighbour writes as before.
        await until_so(lambda: ready(server), lambda status: status == 200, "a ready server")
        maps = "/api/v1/namespaces/neighbour/configmaps"
        assert (await other.ask("POST", maps, config("fine"))).status == 201

        async def told() -> list[str]:
            events = (await server.ask("GET", f"/api/v1/namespaces/{TENANT}/events")).json["items"]
            return [one["message"] for one in events if one["reason"] == "DiskPressure"]

        assert "it has most of it" in (await until_so(told, bool, "a message"))[0]


async def test_to_keep_the_disk_full_from_a_sandbox_without_storage(tmp_path: Path) -> None:
    filled, told = Filled(), list[Subject]()
    disk = Disk(tmp_path, measure=filled)
    modest = Subject(TENANT, "modest-0", "other-uid")
    owed = Subject(TENANT, "owed-0", "third-uid")
    running = {}
    for subject, bytes_used, is_promised in ((SOMEBODY, 60 * MIB, False), (modest, MIB, False), (owed, 70 * MIB, True)):
        folder = tmp_path / subject.name
        folder.mkdir()
        with (folder / "content").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, bytes_used)
        running[subject] = RunningInstance(Bound(str(folder), 100 * MIB, is_promised), ())
    now = [0.0]
    watchdog = Watchdog(disk, these(running), told.append, clock=lambda: now[0])
    await watchdog.round()
    assert not told
    filled.free = low_bytes(1000 * MIB) - 1
    disk.look()
    await watchdog.round()
    # Who has most of what nobody was promised; neither who was promised it, nor who has next to nothing.
    over = watchdog.over(SOMEBODY)
    assert over is not None and over.reason == "DiskPressure" and "60.0 MiB" in over.message
    del running[SOMEBODY]
    now[0] += 60
    await watchdog.round()
    assert told == [SOMEBODY] and watchdog.over(SOMEBODY) is None
    # More than anybody may have is too much, however much space there is.
    filled.free = 600 * MIB
    disk.look()
    running[modest].bound.bytes_max = MIB // 2
    await watchdog.round()
    found = watchdog.over(modest)
    assert found is not None and found.reason == "StorageExceeded" and "declare storage" in found.message


async def test_to_use_up_the_files_of_the_disk(tmp_path: Path) -> None:
    """Links take no space: nobody has anything by bytes."""
    left, told = [5_000], list[Subject]()
    disk = Disk(tmp_path, measure=lambda path: Space(1000 * MIB, 600 * MIB, 10_000, left[0]))
    running = {}
    for subject, count, size in ((SOMEBODY, 120, 100 * MIB), (Subject(TENANT, "owed-0", "third-uid"), 300, 50 * MIB)):
        folder = tmp_path / subject.name
        folder.mkdir()
        for number in range(count):
            (folder / str(number)).symlink_to("nowhere")
        running[subject] = RunningInstance(Bound(str(folder), size, subject is not SOMEBODY), ())
    watchdog = Watchdog(disk, these(running), told.append)
    await watchdog.round()
    left[0] = 10
    assert disk.look() == "low"
    await watchdog.round()
    # Its storage has a twentieth of the bytes, and may have a twentieth of the files.
    over = watchdog.over(SOMEBODY)
    assert over is not None and over.reason == "DiskPressure" and "120 files" in over.message
    assert told == [SOMEBODY]
    owed = next(one for one in running if one is not SOMEBODY)
    running[owed].bound.bytes_max = 20 * MIB
    del running[SOMEBODY]
    second = Watchdog(disk, these(running), told.append)
    await second.round()
    assert told == [SOMEBODY, owed]


def test_to_fill_the_rest_of_the_disk_with_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = Filled()
    monkeypatch.setattr("rota.runtime.space.space_of", filled)
    monkeypatch.setattr("rota.runtime.space.LOOK_SECONDS", 0.0)
    task, child = TaskLog(tmp_path / "task.log"), LogFile(str(tmp_path / "child"), MIB, 2)
    for free, text in ((600 * MIB, b"first\n"), (MIB, b"lost\n"), (MIB, b"too\n"), (600 * MIB, b"last\n")):
        filled.free = free
        task.write(text)
        child.write(text)
    assert (tmp_path / "child.log").read_bytes() == b"first\nlast\n" and child.bytes_lost == 9
    missing = b"\n[rota: 9 bytes were not stored here: the disk was short of space]\n"
    assert (tmp_path / "task.log").read_bytes() == b"first\n" + missing + b"last\n"
    task.close()
    child.close()


def test_to_have_a_disk_go_back_and_forth(tmp_path: Path) -> None:
    filled = Filled()
    disk = Disk(tmp_path, measure=filled)
    low, full = low_bytes(1000 * MIB), reserve_bytes(1000 * MIB)
    assert (tmp_path / "reserve").stat().st_blocks * 512 == full
    levels = []
    for free in (low, low - 1, low + 1, int(low * 1.3), full - 1, full + 1, int(low * 1.1), low * 2):
        filled.free = free
        levels.append((disk.look(), (tmp_path / "reserve").exists()))
    assert levels == [
        ("ok", True),
        ("low", True),
        ("low", True),
        ("ok", True),
        ("full", False),
        ("full", False),
        ("low", False),
        ("ok", True),
    ]
    # All names of files used up is no better than all bytes.
    assert level_of(Space(1000 * MIB, 600 * MIB, 100_000, 10)) == "low"
    assert level_of(Space(1000 * MIB, 600 * MIB, 0, 0)) == "ok"


def test_to_fill_the_disk_with_logs_of_tasks(tmp_path: Path) -> None:
    """They are in the folder of no instance, which could be ended. The oldest go, and those of nobody else."""
    for namespace, count in ((TENANT, 12), ("other", 3)):
        (tmp_path / namespace).mkdir()
        for number in range(count):
            path = tmp_path / namespace / f"t-{number}@uid.log"
            path.write_bytes(b"x" * MIB)
            os.utime(path, (number, number))
        (tmp_path / namespace / "t-0@uid.result").write_bytes(b"x" * MIB)

    def left(namespace: str) -> list[str]:
        return sorted((path.name for path in (tmp_path / namespace).glob("*.log")), key=lambda name: int(name[2:-8]))

    # A tenth of the disk is 10 MiB.
    trim(tmp_path, 100 * MIB, is_short=False)
    assert left(TENANT) == [f"t-{number}@uid.log" for number in range(5, 12)]
    # And while it is short, whoever has most has less and less, down to what does not matter.
    for _ in range(5):
        trim(tmp_path, 100 * MIB, is_short=True)
    assert 3 <= len(left(TENANT)) <= 4 and left(TENANT)[-1] == "t-11@uid.log"
    assert len(left("other")) == 3 and (tmp_path / TENANT / "t-0@uid.result").exists()


def test_to_take_the_workers_of_others_away_by_filling_the_disk(small: Path, tmp_path: Path) -> None:
    """A runner that cannot write down what it does ends, with its worker and the task that has just ended there."""
    (small / "journal").mkdir()
    (tmp_path / "journal").symlink_to(small / "journal")

    @apart
    async def run() -> None:
        async with queue_in(tmp_path) as queue:
            queue.stuck("first")
            await queue.until(queue.effects)
            fill(small / "hog")
            ids = [f"next-{number}" for number in range(40)]
            for id_ in ids:
                queue.assign(id_)
            queue.let_go()
            await queue.ended("first", *ids)
            assert queue.effects() == ["first", *ids] and queue.jobs.trouble is None

    run()


def test_to_have_a_task_run_again_by_filling_the_disk_as_it_ends(tmp_path: Path) -> None:
    """Where the journal has no space of its own, or more to write than that: it waits for space."""

    @apart
    async def run() -> None:
        is_full, refused, real = False, 0, os.write

        def write(file: int, data: bytes) -> int:
            nonlocal refused
            if is_full and os.readlink(f"/proc/self/fd/{file}").endswith("/journal/log"):
                refused += 1
                raise OSError(errno.ENOSPC, "no space")
            return real(file, data)

        pytest.MonkeyPatch().setattr(os, "write", write)
        async with queue_in(tmp_path) as queue:
            queue.assign("before")
            await queue.ended("before")
            queue.stuck("ends")
            await queue.until(lambda: "ends" in queue.effects())
            queue.assign("waits")
            is_full = True
            queue.jobs.acknowledge("before")
            queue.let_go()
            await queue.until(lambda: refused > 1)
            assert [one.id for one in queue.outcomes()] == ["before"] and "waits" not in queue.effects()
            is_full = False
            await queue.ended("ends", "waits")
            queue.jobs.acknowledge("ends")
            is_full, refused = True, 0
            queue.assign("last")
            await queue.until(lambda: refused > 1)
            queue.jobs.acknowledge("waits")
            is_full = False
            assert [one.reason for one in await queue.ended("last")] == ["Succeeded"]
            assert queue.effects() == ["before", "ends", "waits", "last"] and queue.jobs.trouble is None

    run()
