"""A box: an agent, and all that it runs. Its end is everything's end, and is noticed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota.runtime.composing import AGENT
from rota.runtime.keeper.kernel import descendants_of, start_time_of
from rota.runtime.runner import box as module
from rota.runtime.runner.agent import LENGTH_BYTES, MESSAGE_BYTES_MAX
from rota.runtime.runner.box import Box, BoxLost, read_note
from tests.until import until_async
from tests.workers.apart import apart

ENVIRONMENT = {"PATH": os.environ["PATH"]}
DAEMON = "setsid sh -c 'echo $$ > {note}.new; mv {note}.new {note}; exec sleep 1000' >/dev/null 2>&1 &"
READY = b'\0\0\0\x0b{"ready":1}'
"""The first message of an agent."""


@asynccontextmanager
async def boxed(folder: Path, argv: Sequence[str] = (sys.executable, *AGENT)) -> AsyncIterator[Box]:
    """A box that runs, and ends with the test."""
    box = Box(argv, ENVIRONMENT, folder / "note")
    await box.start()
    try:
        yield box
    finally:
        await box.stop()


async def run(box: Box, *argv: str) -> tuple[int, bytes]:
    """The exit code of a command, and what it wrote."""
    reading, writing = os.pipe()
    _, command = await box.run(argv, env={}, cwd="/", streams=(writing, writing, writing))
    os.close(writing)
    with open(reading, "rb") as file:
        said = await asyncio.to_thread(file.read)
    return await command.ended, said


def speaker(data: bytes, before_the_end: str = "") -> list[str]:
    """An agent that says this on its socket, and then does something or nothing."""
    program = f"import os, time; os.write(0, {data!r}); {before_the_end}"
    return [sys.executable, "-I", "-c", program]


async def appeared(path: Path) -> str:
    await until_async(path.exists, f"{path.name} has not appeared")
    return path.read_text()


@apart
async def test_a_command_runs_in_it(tmp_path: Path) -> None:
    async with boxed(tmp_path) as box:
        assert await run(box, "sh", "-c", "echo said; exit 3") == (3, b"said\n")


@apart
async def test_what_it_is_is_written_down_for_as_long_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "note"
    async with boxed(tmp_path):
        found = read_note(path)
        assert found is not None and found.env == ENVIRONMENT
        pid, _, began = found.process.partition("@")
        assert start_time_of(int(pid)) == int(began) and int(pid) in descendants_of(os.getpid())
    assert read_note(path) is None


@apart
async def test_why_a_command_could_not_be_started_is_told(tmp_path: Path) -> None:
    async with boxed(tmp_path) as box:
        _, command = await box.run(["no-such-program"], env={}, cwd="/", streams=(0, 1, 2))
        assert await command.ended == 127 and "no-such-program" in command.error


@apart
async def test_a_signal_ends_a_command_and_no_other(tmp_path: Path) -> None:
    async with boxed(tmp_path) as box:
        first, one = await box.run(["sleep", "1000"], env={}, cwd="/", streams=(0, 1, 2))
        _, other = await box.run(["sleep", "1000"], env={}, cwd="/", streams=(0, 1, 2))
        await one.started
        await box.signal(first, signal.SIGTERM)
        assert await one.ended == -signal.SIGTERM
        assert not other.ended.done()


@apart
async def test_after_clear_only_the_agent_is_left(tmp_path: Path) -> None:
    async with boxed(tmp_path) as box:
        before = set(descendants_of(os.getpid()))
        assert (await run(box, "sh", "-c", DAEMON.format(note=tmp_path / "pid")))[0] == 0
        daemon = int(await appeared(tmp_path / "pid"))
        assert daemon in descendants_of(os.getpid())
        await box.clear()
        assert set(descendants_of(os.getpid())) == before
        assert not box.lost.is_set()


@apart
async def test_when_it_stops_nothing_of_it_is_left_though_it_left_its_parents(tmp_path: Path) -> None:
    async with boxed(tmp_path) as box:
        await run(box, "sh", "-c", DAEMON.format(note=tmp_path / "pid"))
        await appeared(tmp_path / "pid")
    assert descendants_of(os.getpid()) == []


@apart
async def test_its_loss_is_noticed_by_whoever_waits(tmp_path: Path) -> None:
    async with boxed(tmp_path) as box:
        _, command = await box.run(["sleep", "1000"], env={}, cwd="/", streams=(0, 1, 2))
        await command.started
        [agent] = [pid for pid in descendants_of(os.getpid()) if "agent" in _command_of(pid)]
        os.kill(agent, signal.SIGKILL)
        await box.lost.wait()
        with pytest.raises(BoxLost):
            await command.ended
        with pytest.raises(BoxLost):
            await box.clear()
        with pytest.raises(BoxLost):
            await run(box, "true")
    assert descendants_of(os.getpid()) == []


@apart
async def test_an_agent_that_ends_before_it_is_ready_is_no_box(tmp_path: Path) -> None:
    with pytest.raises(BoxLost):
        async with boxed(tmp_path, ["false"]):
            pass


@apart
async def test_a_program_that_is_not_there_is_no_box(tmp_path: Path) -> None:
    box = Box([str(tmp_path / "nothing")], ENVIRONMENT, tmp_path / "note")
    with pytest.raises(OSError):
        await box.start()
    await box.stop()


RUBBISH = {
    "no JSON": b"\0\0\0\x02{]",
    "no object": b"\0\0\0\x01" + b"1",
    "a list": b"\0\0\0\x04" + b'["a"',
    "another form": b'\0\0\0\x08{"id":{}}',
    "no number": b'\0\0\0\x0f{"cleared":"x"}',
    "no text": b"\0\0\0\x02\xff\xff",
    "too long": (MESSAGE_BYTES_MAX + 1).to_bytes(LENGTH_BYTES, "big"),
    "half of it": b"\0\0\0\x0a{",
}


@pytest.mark.parametrize("said", RUBBISH.values(), ids=RUBBISH.keys())
def test_whoever_talks_rubbish_is_as_good_as_gone(tmp_path: Path, said: bytes) -> None:
    @apart
    async def test() -> None:
        async with boxed(tmp_path, speaker(READY + said)) as box:
            await box.lost.wait()
        assert descendants_of(os.getpid()) == []

    test()


@apart
async def test_news_of_a_command_that_nobody_started_is_nothing(tmp_path: Path) -> None:
    news = b'\0\0\0\x14{"id":"99","code":0}'
    async with boxed(tmp_path, speaker(READY + news, "time.sleep(1000)")) as box:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(box.lost.wait(), 0.2)


@apart
async def test_an_agent_that_does_not_answer_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    pytest.MonkeyPatch().setattr(module, "CLEAR_SECONDS_MAX", 0.1)
    async with boxed(tmp_path, speaker(READY, "time.sleep(1000)")) as box:
        with pytest.raises(BoxLost, match="does not answer"):
            await box.clear()


@apart
async def test_processes_that_cannot_be_ended_are_told(tmp_path: Path) -> None:
    left = b'\0\0\0\x0d{"cleared":2}'
    async with boxed(tmp_path, speaker(READY, f"os.read(0, 1); os.write(0, {left!r}); time.sleep(1000)")) as box:
        with pytest.raises(BoxLost, match="2 processes"):
            await box.clear()


@apart
async def test_no_descriptor_is_left_of_it(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with boxed(tmp_path) as box:
            await run(box, "true")
    # Other tests' garbage may be collected meanwhile, which closes descriptors.
    assert set(os.listdir("/proc/self/fd")) <= before


def _command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
