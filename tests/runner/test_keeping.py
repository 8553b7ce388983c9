"""An agent that clears its box, and keeps some commands of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rota.runtime.composing import AGENT
from rota.runtime.keeper.kernel import descendants_of
from rota.runtime.runner import agent
from rota.runtime.runner.box import Box
from tests.until import until_async
from tests.workers.apart import apart

FORKS = "import os, sys\nwhile True:\n    if os.fork(): os._exit(0)\n"
"""A process that is another one all the time."""


STARTS = """
import os, sys, time
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        time.sleep(1000)
open(sys.argv[1], "w").close()
while True:
    time.sleep(1000)
"""


class Boxed:
    def __init__(self, folder: Path) -> None:
        self.box = Box((sys.executable, *AGENT), {"PATH": os.environ["PATH"]}, folder / "note")
        self.folder = folder

    async def __aenter__(self) -> Boxed:
        await self.box.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.box.stop()
        assert descendants_of(os.getpid()) == []

    async def start(self, *argv: str) -> tuple[str, int]:
        nothing = os.open(os.devnull, os.O_RDWR)
        id_, command = await self.box.run(argv, env={}, cwd="/", streams=(nothing, nothing, nothing))
        os.close(nothing)
        return id_, await command.started


@apart
async def test_what_is_kept_goes_on_and_all_else_ends(tmp_path: Path) -> None:
    async with Boxed(tmp_path) as boxed:
        kept, pid = await boxed.start("sleep", "1000")
        _, other = await boxed.start("sleep", "1000")
        await boxed.box.clear([kept])
        assert pid in descendants_of(os.getpid()) and other not in descendants_of(os.getpid())


@apart
async def test_what_is_below_one_that_is_kept_ends(tmp_path: Path) -> None:
    async with Boxed(tmp_path) as boxed:
        kept, pid = await boxed.start(sys.executable, "-I", "-S", "-c", STARTS, str(tmp_path / "up"))
        await until_async((tmp_path / "up").exists, "it is not up")
        await boxed.box.clear([kept])
        assert agent.is_running(pid)
        assert not any(map(agent.is_running, descendants_of(pid)))
        assert len(list(filter(agent.is_running, descendants_of(os.getpid())))) == 2


@apart
async def test_a_name_that_is_nobodys_keeps_nothing(tmp_path: Path) -> None:
    async with Boxed(tmp_path) as boxed:
        _, pid = await boxed.start("sleep", "1000")
        await boxed.box.clear(["nobody"])
        assert pid not in descendants_of(os.getpid())


@apart
async def test_a_process_that_is_another_one_all_the_time_does_not_escape_a_look(tmp_path: Path) -> None:
    async with Boxed(tmp_path) as boxed:
        await boxed.start(sys.executable, "-I", "-S", "-c", FORKS)
        await boxed.box.clear()
        assert len(descendants_of(os.getpid())) == 1


@apart
async def test_whose_commands_run_in_it_is_known(tmp_path: Path) -> None:
    async with Boxed(tmp_path) as boxed:
        assert boxed.box.uid == os.getuid()


@apart
async def test_without_lists_of_children_all_processes_are_looked_at(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os.execlp("sleep", "sleep", "1000")
    try:
        agent.LISTS_CHILDREN = False
        assert not agent._is_clear(()) and agent._is_clear({pid})
        agent.LISTS_CHILDREN = True
        assert not agent._is_clear(()) and agent._is_clear({pid})
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
