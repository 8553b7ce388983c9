"""A box whose agent connects: what holds for every box, and that nobody is taken for the agent who is not."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.keeper.kernel import descendants_of
from rota.runtime.runner import connected_box
from rota.runtime.runner.agent import LENGTH_BYTES
from rota.runtime.runner.agent_socket import AgentSocket
from rota.runtime.runner.box import Box, BoxLost
from rota.runtime.runner.connected_box import ConnectedBox
from tests.agent.programs import program
from tests.workers.apart import apart
from tests.workers.test_box import DAEMON, appeared, run

KINDS = pytest.mark.parametrize("kind", ["c", "sanitized"])


class Container:
    """An agent as in a container, but a child of this process: it ends what is below it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind
        self.agents = self.new_runner()
        self.process: asyncio.subprocess.Process | None = None

    def new_runner(self) -> AgentSocket:
        return AgentSocket(self.folder / "agent.sock", self.folder / "key", is_first=False)

    async def begin(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(str(program(self.kind)), "--connect", str(self.folder / "agent.sock")),
            *("--runner", str(os.getuid()), "--as-child", "--empty", str(self.folder / "emptied")),
            stdin=asyncio.subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"]},
            cwd="/",
        )

    async def end(self) -> None:
        if self.process is not None:
            if self.process.returncode is None:
                self.process.kill()
            await self.process.wait()


@asynccontextmanager
async def contained(folder: Path, kind: str = "c") -> AsyncIterator[Container]:
    container = Container(folder, kind)
    await container.begin()
    try:
        yield container
    finally:
        container.agents.close()
        await container.end()


@asynccontextmanager
async def boxed(container: Container) -> AsyncIterator[ConnectedBox]:
    box = ConnectedBox(container.agents)
    await box.start()
    try:
        yield box
    finally:
        await box.stop()


async def long_one(box: Box) -> int:
    nothing = os.open(os.devnull, os.O_RDWR)
    _, command = await box.run(["sleep", "1000"], env={}, cwd="/", streams=(nothing, nothing, nothing))
    os.close(nothing)
    return await command.started


def frame(**message: Any) -> bytes:
    content = json.dumps(message).encode()
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


@KINDS
def test_a_command_runs_in_it(tmp_path: Path, kind: str) -> None:
    @apart
    async def test() -> None:
        async with contained(tmp_path, kind) as container, boxed(container) as box:
            assert await run(box, "sh", "-c", "echo said; exit 3") == (3, b"said\n")
            assert box.uid == os.getuid() and not box.is_clear() and box.is_as_started()

    test()


def test_a_command_runs_in_it_on_the_loop_of_a_runner(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def test() -> None:
        async with contained(tmp_path) as container:
            for _ in range(2):
                async with boxed(container) as box:
                    assert await run(box, "echo", "said") == (0, b"said\n")
            box = ConnectedBox(container.agents)
            await box.start()
            assert container.process is not None
            container.process.kill()
            await box.lost.wait()
            await box.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), 60))


@apart
async def test_clear_ends_what_left_its_parents_and_keeps_what_is_named(tmp_path: Path) -> None:
    async with contained(tmp_path) as container, boxed(container) as box:
        nothing = os.open(os.devnull, os.O_RDWR)
        kept, command = await box.run(["sleep", "1000"], env={}, cwd="/", streams=(nothing, nothing, nothing))
        await run(box, "sh", "-c", DAEMON.format(note=tmp_path / "pid"))
        daemon = int(await appeared(tmp_path / "pid"))
        await box.clear([kept], alone=True)
        assert await command.started in descendants_of(os.getpid()) and daemon not in descendants_of(os.getpid())
        os.close(nothing)


@KINDS
def test_boxes_follow_each_other_and_nothing_of_one_is_left_for_the_next(tmp_path: Path, kind: str) -> None:
    @apart
    async def test() -> None:
        async with contained(tmp_path, kind) as container:
            for number in range(5):
                async with boxed(container) as box:
                    await run(box, "sh", "-c", DAEMON.format(note=tmp_path / str(number)))
                    await appeared(tmp_path / str(number))
                    await long_one(box)
                assert container.process is not None
                assert [container.process.pid] == descendants_of(os.getpid())

    test()


@apart
async def test_what_runs_ends_when_the_runner_does_and_the_next_runner_knows_the_agent(tmp_path: Path) -> None:
    async with contained(tmp_path) as container:
        box = ConnectedBox(container.agents)
        await box.start()
        pid = await long_one(box)
        # As the kernel does when a runner is killed.
        assert box._control is not None and box._reading is not None
        box._reading.cancel()
        box._control.close()
        container.agents.close()
        container.agents = container.new_runner()
        async with boxed(container) as box:
            assert pid not in descendants_of(os.getpid())
            assert await run(box, "echo", "again") == (0, b"again\n")


@apart
async def test_an_agent_that_was_killed_is_followed_by_another(tmp_path: Path) -> None:
    async with contained(tmp_path) as container:
        box = ConnectedBox(container.agents)
        await box.start()
        assert container.process is not None
        container.process.kill()
        await box.lost.wait()
        with pytest.raises(BoxLost):
            await box.clear()
        await box.stop()
        await container.process.wait()
        await container.begin()
        async with boxed(container) as box:
            assert await run(box, "echo", "again") == (0, b"again\n")


@apart
async def test_who_has_not_the_key_is_not_taken_for_the_agent_of_a_runner_that_was_restarted(tmp_path: Path) -> None:
    async with contained(tmp_path) as container:
        async with boxed(container):
            pass
        await container.end()
        container.agents.close()
        container.agents = container.new_runner()
        pytest.MonkeyPatch().setattr(connected_box, "START_SECONDS_MAX", 1.0)
        await container.begin()  # One that was restarted at the same time: nobody can know it.
        with pytest.raises(BoxLost, match="has to be replaced"):
            await ConnectedBox(container.agents).start()


def test_an_agent_says_nothing_to_a_listener_with_another_uid_than_the_runners(tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.settimeout(20)
    listening.bind(str(tmp_path / "agent.sock"))
    listening.listen()
    argv = ["--connect", str(tmp_path / "agent.sock"), "--runner", str(os.getuid() + 1), "--as-child"]
    with subprocess.Popen([program("c"), *argv], stderr=subprocess.DEVNULL) as process:
        for _ in range(3):
            control, _ = listening.accept()
            control.settimeout(20)
            assert control.recv(1) == b""
            control.close()
        process.kill()
    listening.close()


@apart
async def test_while_the_agent_is_connected_nobody_else_can(tmp_path: Path) -> None:
    async with contained(tmp_path) as container, boxed(container):
        other = socket.socket(socket.AF_UNIX)
        with pytest.raises(FileNotFoundError):
            other.connect(str(tmp_path / "agent.sock"))
        other.close()


HELLOS = {
    "nothing": b"",
    "half a message": frame(ready=1)[:-1],
    "no key": frame(ready=1, uid=0),
    "another key": frame(ready=1, uid=0, key="0" * 64),
    "a key that is no text": frame(ready=1, uid=0, key=["x"]),
    "no agent": frame(id="1", code=0),
    "no JSON": b"\0\0\0\x02{]",
    "no object": b"\0\0\0\x011",
    "too long": b"\xff\xff\xff\xff",
}


@pytest.mark.parametrize("hello", HELLOS.values(), ids=HELLOS)
def test_whoever_connects_before_the_agent_is_sent_away(tmp_path: Path, hello: bytes) -> None:
    @apart
    async def test() -> None:
        async with contained(tmp_path) as container:
            async with boxed(container):
                pass
            container.agents.close()
            container.agents = container.new_runner()
            container.agents.listen()
            others = [socket.socket(socket.AF_UNIX) for _ in range(2)]
            for other in others:
                other.connect(str(tmp_path / "agent.sock"))
                other.sendall(hello)
            others[0].close()
            async with boxed(container) as box:
                assert await run(box, "echo", "it") == (0, b"it\n")
            # It was sent nothing.
            others[1].settimeout(5)
            with pytest.raises((ConnectionResetError, AssertionError)):
                assert others[1].recv(100)
            others[1].close()

    test()


@apart
async def test_no_descriptor_is_left_of_boxes(tmp_path: Path) -> None:
    async with contained(tmp_path) as container:
        counts = []
        for _ in range(4):
            async with boxed(container) as box:
                await run(box, "true")
                counts.append(len(os.listdir("/proc/self/fd")))
        # Other tests' garbage may be collected meanwhile, which closes descriptors.
        assert counts[1] >= counts[2] >= counts[3]


@apart
async def test_a_container_ends_with_the_code_that_its_runner_says(tmp_path: Path) -> None:
    async with contained(tmp_path) as container:
        box = ConnectedBox(container.agents)
        await box.start()
        pid = await long_one(box)
        await box.end(7)
        assert container.process is not None and await container.process.wait() == 7
        assert pid not in descendants_of(os.getpid())
        await box.stop()


@apart
async def test_that_a_container_is_being_ended_is_known_and_what_runs_goes_on(tmp_path: Path) -> None:
    async with contained(tmp_path) as container, boxed(container) as box:
        assert container.process is not None
        container.process.terminate()
        await box.stopping.wait()
        assert await run(box, "echo", "goes on") == (0, b"goes on\n")


@apart
async def test_an_agent_without_a_runner_ends_when_its_container_does(tmp_path: Path) -> None:
    async with contained(tmp_path) as container:
        assert container.process is not None
        container.process.terminate()
        # It may not have begun to look for signals.
        assert await container.process.wait() in (0, -15)


@KINDS
def test_a_folder_is_emptied_between_two_boxes_and_links_are_not_followed(tmp_path: Path, kind: str) -> None:
    @apart
    async def test() -> None:
        emptied, other = tmp_path / "emptied", tmp_path / "other"
        for folder in (emptied, other):
            folder.mkdir()
        (other / "file").touch()
        async with contained(tmp_path, kind) as container:
            async with boxed(container):
                for number in range(300):
                    (emptied / str(number)).touch()
                (emptied / "link").symlink_to(other)
                (emptied / ".rota-0").mkdir()
                at = emptied / "deep"
                for _ in range(200):
                    at.mkdir()
                    (at / "-x\n").touch()
                    (at / "empty").mkdir(0o000)
                    (at / "link").symlink_to(other)
                    at = at / "deep"
                (emptied / "deep" / "deep").chmod(0o000)
            assert os.listdir(emptied) == [] and os.listdir(other) == ["file"]

    test()


@apart
async def test_an_agent_whose_limits_were_changed_says_so_and_ends_with_its_box(tmp_path: Path) -> None:
    async with contained(tmp_path) as container:
        async with boxed(container) as box:
            await box.clear()
            assert box.is_as_started()
            lower = "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (64, 64))"
            assert (await run(box, "python3", "-c", lower))[0] == 0
            await box.clear()
            assert not box.is_as_started()
        assert container.process is not None and await container.process.wait() == 3
