"""By what is left running for the next holder of an instance."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import struct
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.client.websocket import Closed, WebSocket
from rota.runtime import sandbox
from rota.runtime.runner.box import Box, BoxCommand, BoxLost
from rota.runtime.runner.messages import Handler
from rota.runtime.runner.python_invoker import PythonInvoker
from rota.runtime.workspace.discard import discard
from tests.claims.test_gateway import claim, command, pool, release, until
from tests.runner.boxes import Bench, in_a_sandbox
from tests.server.conftest import Server, served
from tests.until import until_async, until_so
from tests.workers.apart import apart

POOLS = "/apis/rota.dev/v1alpha1/namespaces/default/workerpools"
SECONDS_MAX = 60
UPLOADS = 6
PLANTED = "planted"


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as server:
        yield server


def running(mark: str) -> list[int]:
    """Processes with this among their arguments."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue
    return found


async def until_running(mark: str) -> None:
    await until_async(lambda: running(mark), f"{mark} does not run", seconds=SECONDS_MAX)


@pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")
async def test_to_leave_a_daemon_in_a_kept_instance_for_its_next_holder(live: Server) -> None:
    wanted = pool("boxes", 1)
    # There a daemon is nobody's child: what it was started by does not end it.
    wanted["spec"]["template"]["isolation"] = "sandbox"
    assert (await live.ask("POST", POOLS, wanted)).status == 201
    await until(live, 1)
    first = (await claim(live, "first")).json
    instance, mark = first["claim"]["status"]["instanceName"], uuid.uuid4().hex
    daemon = f"echo kept > file; exec 1>&-; setsid sh -c 'sleep 1000; :' {mark} & exit 0"
    session = await command(live, instance, first["token"], "sh", "-c", daemon)
    await until_running(mark)
    await session.close()
    assert (await release(live, "first")).status == 200
    second = await claim(live, "second", waitSeconds=SECONDS_MAX)
    assert second.status == 201, second.body
    # The very same instance, with its files; and nothing of who had it before.
    assert second.json["claim"]["status"]["instanceName"] == instance
    assert running(mark) == []
    [file] = (live.home / "instances" / "default").glob("*/work/file")
    assert file.read_text() == "kept\n"
    assert (await release(live, "second")).status == 200


STAYS = """
import gc, subprocess, threading, time
def stays():
    while True:
        time.sleep(0.01)
        subprocess.run(["sh", "-c", "sleep 0.05; :", "{mark}"])
threading.Thread(target=stays, daemon=True).start()
# Nor does its interpreter say that threads are left.
for one in gc.get_objects():
    if type(one).__name__ == "InterpreterProgram":
        type(one)._worn = lambda self: ""
"""
TASKS = "/apis/rota.dev/v1alpha1/namespaces/default/tasks"


@pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")
async def test_to_look_at_a_claim_by_the_code_of_a_task_in_a_kept_interpreter(live: Server) -> None:
    wanted = pool("boxes", 1, worker={"type": "python", "isolation": "sandbox"})
    del wanted["spec"]["template"]
    assert (await live.ask("POST", POOLS, wanted)).status == 201
    await until(live, 1)
    mark = uuid.uuid4().hex
    spec = {"workerPoolRef": {"name": "boxes"}, "command": ["builtins:exec", STAYS.replace("{mark}", mark), "{}"]}
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "Task", "metadata": {"name": "spy"}, "spec": spec}
    assert (await live.ask("POST", TASKS, body)).status == 201
    # It is over, and goes on all the same.
    await until_so(
        lambda: live.ask("GET", f"{TASKS}/spy"),
        lambda reply: reply.json.get("status", {}).get("phase") == "Succeeded",
        "a task that has succeeded",
        seconds=SECONDS_MAX,
    )
    await until_running(mark)
    held = await claim(live, "first", waitSeconds=SECONDS_MAX)
    assert held.status == 201, held.body
    # Whoever has the claim is alone, from the answer on: for several times as long as the thread pauses.
    for _ in range(20):
        assert running(mark) == []
        await asyncio.sleep(0.02)
    assert (await release(live, "first")).status == 200


@pytest.mark.skipif(
    os.geteuid() != 0, reason="without root the agent is the first process of its box: nothing in it ends it"
)
@pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")
@pytest.mark.skipif(
    os.geteuid() != 0, reason="without root the agent is the first process of its box, and not killed there"
)
@pytest.mark.parametrize("reset", ["Keep", "Clean"])
async def test_to_write_into_what_the_next_holder_has_by_uploads_that_began_before(live: Server, reset: str) -> None:
    wanted = pool("boxes", 1, reset=reset, worker={"type": "shell", "isolation": "sandbox"})
    del wanted["spec"]["template"]
    assert (await live.ask("POST", POOLS, wanted)).status == 201
    await until(live, 1)
    first = (await claim(live, "first")).json
    instance, token = first["claim"]["status"]["instanceName"], first["token"]
    # Its own box ends. The claim does so a moment later: what is asked for meanwhile waits for the next box.
    await heard(await command(live, instance, token, "sh", "-c", "kill -9 2"))
    uploads = []
    for number in range(UPLOADS):
        reader, writer = await live.connect(unix=True)
        path = f"/v1/instances/default/{instance}/files?path=/workspace/home/{PLANTED}-{number}"
        head = f"PUT {path} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {token}\r\nContent-Length: 4\r\n\r\n"
        writer.write(head.encode())
        uploads.append((reader, writer))
    second = await claim(live, "second", waitSeconds=SECONDS_MAX)
    assert second.json["claim"]["status"]["instanceName"] == instance
    found = await heard(await command(live, instance, second.json["token"], "sh", "-c", "cat /proc/[0-9]*/cmdline"))
    assert b"files.inside" not in found
    for reader, writer in uploads:
        writer.write(b"code")
        answer = await reader.read()
        writer.close()
        assert b" 200 OK" not in answer, answer
    left = await heard(await command(live, instance, second.json["token"], "sh", "-c", "ls -A /workspace/home"))
    assert PLANTED.encode() not in left


async def heard(session: WebSocket) -> bytes:
    """Read the output of a command to its end."""
    found = b""
    with contextlib.suppress(Closed):
        while True:
            said = await session.receive()
            found += said if isinstance(said, bytes) else said.encode()
    return found


STEALS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
agent = os.getppid()
for number in range(8):
    pidfd_getfd = libc.syscall(438, os.pidfd_open(agent), number, 0)
    assert pidfd_getfd == -1, f"it has descriptor {number} of the agent"
assert libc.ptrace(0x4206, agent, 0, 0) == -1, "it traces the agent"
for name in ("mem", "fd", "environ"):
    try:
        os.listdir(f"/proc/{agent}/fd") if name == "fd" else open(f"/proc/{agent}/{name}", "rb").read(1)
    except OSError:
        continue
    raise AssertionError(f"it has {name} of the agent")
"""


@in_a_sandbox
async def test_to_answer_in_the_place_of_the_agent(bench: Bench) -> None:
    outcome = await bench.run("python3", "-I", "-c", STEALS)
    assert outcome.reason == "Succeeded", bench.said()


DAEMON = """
import os, time
if os.fork() == 0:
    import ctypes
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # It does not end with what it is below.
        os.closerange(1, 3)
        time.sleep(1000)
    os._exit(0)
os.wait()
"""


@in_a_sandbox
async def test_to_stay_in_a_kept_box_by_a_command_that_entered_it(bench: Bench) -> None:
    assert bench.box.is_clear()
    process, uid = bench.box._process, bench.box.uid
    assert process is not None
    own = uid if os.geteuid() == 0 else None
    entered = sandbox.enter(process.pid, ["/usr/bin/env", "python3", "-I", "-c", DAEMON], env={}, cwd="/", uid=own)
    command = await asyncio.create_subprocess_exec(*entered.argv, env=entered.env, stdout=asyncio.subprocess.PIPE)
    assert await command.wait() == 0
    assert not bench.box.is_clear()
    await bench.box.clear(alone=True)
    assert bench.box.is_clear(alone=True)


LIES = """
import json, os, socket, subprocess
control = socket.socket(fileno=0)
def tell(message):
    content = json.dumps(message).encode()
    control.sendall(len(content).to_bytes(4, "big") + content)
left = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
tell({"ready": os.getpid(), "uid": os.getuid()})
while control.recv(65536):
    tell({"cleared": 0})
"""


@apart
async def test_to_say_of_itself_that_it_is_gone(tmp_path: Path) -> None:
    box = Box((sys.executable, "-I", "-c", LIES), {}, tmp_path / "note")
    await box.start()
    try:
        with pytest.raises(BoxLost, match="run on in it"):
            await box.clear()
    finally:
        await box.stop()


GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
EVERYTHING_AT_ONCE = 0x8 | 0x10000 | 0x40
"""As `chattr +S +D +d` does."""


def flags(folder: Path, added: int = 0) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = int(struct.unpack("l", fcntl.ioctl(descriptor, GET_FLAGS, struct.pack("l", 0)))[0])
        if added:
            fcntl.ioctl(descriptor, SET_FLAGS, struct.pack("l", found | added))
        return found
    finally:
        os.close(descriptor)


def test_to_leave_flags_of_the_file_system_for_the_next_holder(tmp_path: Path) -> None:
    """They slow down whatever is written there, and tell the next holder who was there."""
    folder, fresh = tmp_path / "storage", tmp_path / "fresh"
    folder.mkdir()
    try:
        flags(folder, EVERYTHING_AT_ONCE)
    except OSError as error:
        pytest.skip(f"this file system has no such flags: {error.strerror}")
    assert flags(folder) & EVERYTHING_AT_ONCE
    discard(folder, seconds_max=SECONDS_MAX)
    fresh.mkdir()
    assert flags(folder) == flags(fresh)


@pytest.mark.parametrize("result", [b'"\xff"', b'"\\ud800"', b"["])
async def test_to_have_a_call_never_end_by_a_result_that_is_no_text(result: bytes) -> None:
    """The process of a function has the connection, and says there what it likes."""
    died: list[str] = []
    handler = Handler("f", "python", 1)
    box = Box((), {}, Path("/nowhere"))
    host = PythonInvoker(
        box, handler, "", lambda *_: pytest.fail("it is passed on"), lambda _: None, lambda _, how, __: died.append(how)
    )
    host._loaded.set_result(None)
    host._control, its = socket.socketpair()
    with its:
        message = b'{"call": "one", "result": ' + result + b"}"
        its.sendall(len(message).to_bytes(4, "big") + message)
        host._read()
        assert died == ["the process of the function sent a message that is not understood"]
        host._control.close()


FORGES = """
import gc, sys, time

def answer(said):
    mine = next(one for one in gc.get_objects() if type(one).__name__ == "Interpreter")
    frame = sys._getframe()
    while frame.f_code.co_name != "_answer":
        frame = frame.f_back
    content = ('{"call": %d, %s}' % (frame.f_locals["message"]["call"], said)).encode()
    mine._control.sendall(len(content).to_bytes(4, "big") + content)
    time.sleep(600)
"""
DEEP = f'"more": {"[" * 20_000}{"]" * 20_000}'


@in_a_sandbox
async def test_to_keep_a_worker_by_an_end_that_cannot_be_written_down(bench: Bench) -> None:
    """The called code has the connection of its interpreter, and can send anything there."""
    bench.write("forges.py", FORGES)
    for said in (f'"code": {"9" * 30}', '"code": 256', '"code": -9', DEEP):
        async with asyncio.timeout(SECONDS_MAX):
            outcome = await bench.call("forges:answer", json.dumps(said))
        assert (outcome.reason, outcome.exit_code) == ("Failed", 1)
    assert (await bench.call("builtins:len", '"abc"')).result == "3"


@pytest.mark.parametrize("code", [10**30, 256, -65, "0", None])
async def test_to_have_a_command_end_with_what_is_no_exit_code(code: object) -> None:
    box = Box((), {}, Path("/nowhere"))
    command = box._commands["1"] = BoxCommand()
    box._control, its = socket.socketpair()
    box._control.setblocking(False)
    with its, box._control:
        message = json.dumps({"id": "1", "code": code}).encode()
        its.sendall(len(message).to_bytes(4, "big") + message)
        async with asyncio.timeout(5):
            await box._read()
        with pytest.raises(BoxLost):
            await command.ended
