"""Logs that are followed: for as long as it takes, each line once, whatever becomes of the connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from rota.api import Function, Instance, Task
from rota.client import Client, frames
from rota.client.failures import BadAnswer
from rota.client.frames import Frame, Frames, Position
from rota.runtime.places import Places
from rota.runtime.runner.tasklog import TaskLog
from tests.server.conftest import Server, served
from tests.server.test_why import create
from tests.streams.conftest import ANSWER_SECONDS, Followed, client_on, followed, until_silent
from tests.streams.wire import Wire, wired
from tests.until import until_async, until_so

API = "rota.dev/v1alpha1"


class Writer(Protocol):
    """Something that writes a log."""

    path: str

    def write(self, text: bytes) -> None: ...


class TaskWriter:
    def __init__(self, home: Path, uid: str) -> None:
        self.path = "/v1/tasks/default/build/logs"
        self._log = Places(home).tasks / "default" / f"build@{uid}.log"

    def write(self, text: bytes) -> None:
        log = TaskLog(self._log)
        log.write(text)
        log.close()


class InstanceWriter:
    def __init__(self, home: Path, instance: Instance) -> None:
        meta = instance.metadata
        self.path = f"/v1/logs/default/{meta.name}"
        self._log = home / "instances" / "default" / f"{meta.name}-{meta.uid}" / "logs" / "main.log"

    def write(self, text: bytes) -> None:
        with self._log.open("ab") as file:
            file.write(text)

    def put_aside(self) -> None:
        """As its keeper does when it is full."""
        self._log.rename(f"{self._log}.1")
        self._log.touch()


async def task_of(server: Server) -> TaskWriter:
    made = await create(server, "tasks", "build", {"command": ["make"], "workerPoolRef": {"name": "none"}})
    return TaskWriter(server.home, made["metadata"]["uid"])


async def instance_of(client: Client, server: Server) -> InstanceWriter:
    container = {"name": "main", "command": ["sleep", "100000"]}
    template = {"containers": [container], "isolation": "none", "terminationGracePeriodSeconds": 0}
    body = {"apiVersion": API, "kind": "WorkerPool", "metadata": {"name": "boxes"}}
    await client.create({**body, "spec": {"replicas": 1, "template": template}})

    async def instances() -> list[Instance]:
        return list((await client.list(Instance)).items)

    def is_idle(found: list[Instance]) -> bool:
        return bool(found) and found[0].status is not None and found[0].status.phase == "Idle"

    return InstanceWriter(server.home, (await until_so(instances, is_idle, "an idle instance"))[0])


@pytest.fixture(params=["task", "instance"])
async def writer(request: pytest.FixtureRequest, client: Client, server: Server) -> Writer:
    return await (task_of(server) if request.param == "task" else instance_of(client, server))


@pytest.fixture
async def log(client: Client, writer: Writer) -> AsyncIterator[Followed]:
    made = followed(client, writer.path)
    yield made
    await made.close()


async def test_silence_is_no_end(wire: Wire, writer: Writer, log: Followed) -> None:
    writer.write(b"one\n")
    await log.until(b"one\n")
    before = wire.requests
    await until_silent(wire, 2 * ANSWER_SECONDS)
    writer.write(b"two\n")
    await log.until(b"two\n")
    assert (log.text, wire.requests) == (b"one\ntwo\n", before)


async def test_a_cut_loses_nothing_and_repeats_nothing(wire: Wire, writer: Writer, log: Followed) -> None:
    lines = b""
    for number in range(5):
        line = b"line %d\n" % number
        writer.write(line)
        lines += line
        await log.until(line)
        wire.cut()
        # Before anybody has come back.
        writer.write(b"meanwhile\n")
        lines += b"meanwhile\n"
        await log.until(lines)
    assert log.text == lines


async def test_a_cut_before_anything_was_written_loses_nothing(client: Client, wire: Wire, writer: Writer) -> None:
    writer.write(b"before\n")
    log = followed(client, writer.path, tail=0)
    await until_async(lambda: frames.encoded(Frame(frames.HEARTBEAT)) in wire.said)
    wire.cut()
    writer.write(b"one\n")
    await log.until(b"one\n")
    assert log.text == b"one\n"
    await log.close()


async def test_a_server_that_hangs_is_noticed(
    monkeypatch: pytest.MonkeyPatch, wire: Wire, writer: Writer, log: Followed
) -> None:
    writer.write(b"one\n")
    await log.until(b"one\n")
    monkeypatch.setattr(frames, "SILENCE_SECONDS_MAX", 0.5)
    wire.cut()  # The next request is made with the shorter bound.
    writer.write(b"two\n")
    await log.until(b"two\n")
    before = wire.requests
    wire.freeze()
    await until_async(lambda: wire.requests > before)
    writer.write(b"three\n")
    wire.thaw()
    await log.until(b"three\n")
    assert log.text == b"one\ntwo\nthree\n"


async def test_a_log_is_followed_into_the_next_file_across_a_cut(client: Client, server: Server, wire: Wire) -> None:
    writer = await instance_of(client, server)
    log = followed(client, writer.path)
    writer.write(b"one\n")
    await log.until(b"one\n")
    wire.cut()
    writer.write(b"two\n")
    writer.put_aside()
    writer.write(b"three\n")
    await log.until(b"three\n")
    assert log.text == b"one\ntwo\nthree\n"
    await log.close()


async def test_a_server_that_starts_again_is_waited_for(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with wired(tmp_path / "wire", home / "rota.sock") as wire:
        async with served(home) as server:
            writer = await task_of(server)
            client = client_on(wire, home)
            log = followed(client, writer.path)
            writer.write(b"one\n")
            await log.until(b"one\n")
        writer.write(b"two\n")
        async with served(home) as again:
            await log.until(b"two\n")
            writer.write(b"three\n")
            status = {"status": {"phase": "Succeeded"}}
            merge = {"Content-Type": "application/merge-patch+json"}
            path = f"/apis/{API}/namespaces/default/tasks/build/status"
            assert (await again.ask("PATCH", path, status, headers=merge)).status == 200
            assert await log.end() == b"one\ntwo\nthree\n"
        await log.close()
        await client.close()


async def test_the_end_of_a_task_ends_its_log(client: Client, server: Server) -> None:
    writer = await task_of(server)
    log = followed(client, writer.path)
    writer.write(b"one\n")
    await log.until(b"one\n")
    await client.delete(Task, "build")
    assert await log.end() == b"one\n"


async def test_the_end_of_a_task_while_nobody_listens_ends_its_log(client: Client, server: Server, wire: Wire) -> None:
    writer = await task_of(server)
    log = followed(client, writer.path)
    writer.write(b"one\n")
    await log.until(b"one\n")
    wire.freeze()
    assert (await server.ask("DELETE", f"/apis/{API}/namespaces/default/tasks/build")).status == 200
    wire.cut()
    wire.thaw()
    assert await log.end() == b"one\n"


# The calls of a function.

CODE = """
print("loaded")
def handler(event, context):
    print("call", event["path"])
"""


async def test_the_calls_of_a_function_are_followed_across_cuts_and_servers(tmp_path: Path) -> None:
    home = tmp_path / "home"
    spec = {"entrypoint": "app:handler", "source": {"inline": CODE}}
    body = {"apiVersion": API, "kind": "Function", "metadata": {"name": "loud"}, "spec": spec}
    made: list[str] = []
    async with wired(tmp_path / "wire", home / "rota.sock") as wire:
        cut_off, client = client_on(wire, home), Client.connect(home=home)

        async def call(name: str) -> None:
            call = {"name": "loud", "payload": {"path": name}}
            task = {"apiVersion": API, "kind": "Task", "metadata": {"name": name}, "spec": {"function": call}}
            await client.create(task)
            made.append(name)

        async with served(home):
            await client.create(body)
            log = followed(cut_off, "/v1/functions/default/loud/logs")
            await call("first")
            await log.until(b"call first\n")
            wire.cut()
            for name in ("second", "third"):
                await call(name)
            await log.until(b"call third\n")
        async with served(home):
            await call("fourth")
            await log.until(b"call fourth\n")
            wire.cut()
            await call("fifth")
            await log.until(b"call fifth\n")
            logs = list((home / "instances" / "default").glob("loud-*/logs/*.log"))
            loaded = sum(log.read_text().count("loaded\n") for log in logs)
            await client.delete(Function, "loud")
            said = [line.split(" ", 2) for line in (await log.end()).decode().splitlines()]
        assert [(call, text) for call, _, text in said if call != "-"] == [(name, f"call {name}") for name in made]
        assert [text for call, _, text in said if call == "-"].count("loaded") == loaded
        await log.close()
        await client.close()
        await cut_off.close()


# Frames.


def test_frames_come_as_they_were_sent_however_they_are_cut() -> None:
    sent = [Frame(frames.DATA, {"a": 1}, b"x" * 300), Frame(frames.HEARTBEAT), Frame(frames.DATA, 7), Frame(frames.END)]
    stream = b"".join(map(frames.encoded, sent))
    for size in (1, 7, 64, len(stream)):
        arriving = Frames("here")
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [frame for piece in pieces for frame in arriving.split(piece)] == sent


@pytest.mark.parametrize("stream", [b"plain text, and more of it", b"\x01" + b"\xff" * 8, b"\x01\0\0\0\1\0\0\0\0{"])
def test_what_is_no_frame_is_refused(stream: bytes) -> None:
    with pytest.raises(BadAnswer):
        list(Frames("here").split(stream))


@pytest.mark.parametrize(
    ("changes", "text"),
    [([], ""), ([5, 17], "17"), (["a-1", "a-2"], "a-2"), ([{"a": 1, "b": 2}, {"b": None, "c": 3}], '{"a":1,"c":3}')],
)
def test_a_position_is_what_came_of_its_changes(changes: list[Any], text: str) -> None:
    position = Position()
    for change in changes:
        position.take(change)
    assert position.text == text
