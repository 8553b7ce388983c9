"""Real boxes with a tree and a home, with a sandbox or without, and an executor for what is run in them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from rota.runtime import composing, sandbox
from rota.runtime.composing import HOME, TREE
from rota.runtime.interface import Order, Owner, Subject
from rota.runtime.keeper.kernel import descendants_of
from rota.runtime.places import Places
from rota.runtime.runner.box import Box
from rota.runtime.runner.executor import Executor
from rota.runtime.runner.jobs import Job, Outcome
from rota.runtime.runner.journal import Journal
from tests.agent import programs
from tests.amount import LONG
from tests.workers.apart import apart

Isolation = Literal["none", "sandbox"]
SUBJECT = Subject("default", "w-0", "uid")


class Bench:
    """A box that runs, what is in it, and what runs jobs there. Without a sandbox it may have the agent in C."""

    def __init__(self, folder: Path, isolation: Isolation, agent: str = "python") -> None:
        places = Places(folder / "home")
        places.folder(SUBJECT).mkdir(parents=True)
        order = Order(
            subject=SUBJECT,
            container="worker",
            number=0,
            argv=(),
            env={"OF_THE_BOX": "box"},
            has_runner=True,
            storage_name="w-0",
            storage_path="/workspace",
            storage_owner=Owner("w", "pool"),
            isolation=isolation,
        )
        made = composing.box(places, order, "digest")
        self._made = made
        self._argv = made.argv if agent == "python" else programs.argv(agent)
        self._note = folder / "note"
        self.tree, self.home = Path(made.folder, TREE), Path(made.folder, HOME)
        """As the host sees them."""
        for each in (self.tree, self.home):
            each.mkdir()
        if made.uid is not None:
            sandbox.own(Path(made.folder), made.uid)
        self.inside_tree, self.inside_home = f"{made.inside}/{TREE}", f"{made.inside}/{HOME}"
        self.log = folder / "logs" / "task.log"
        self.journal_folder = folder / "journal"
        self.journal = Journal(self.journal_folder)
        self.executor = Executor(self.journal)
        self.box = self.new_box()
        self._number = 0

    def new_box(self) -> Box:
        return Box(self._argv, self._made.env, self._note)

    def write(self, name: str, content: str) -> Path:
        """A file of the tree."""
        path = self.tree / name
        path.write_text(content)
        path.chmod(0o644)
        return path

    def job(self, *argv: str, **more: Any) -> Job:
        self._number += 1
        given: dict[str, Any] = {
            "id": f"job-{self._number}",
            "kind": "command",
            "argv": argv,
            "env": {},
            "cwd": self.inside_tree,
            "log": str(self.log),
            **more,
        }
        return Job(**given)

    async def run(self, *argv: str, **more: Any) -> Outcome:
        return await self.do(self.job(*argv, **more))

    async def sh(self, script: str, **more: Any) -> Outcome:
        return await self.run("sh", "-c", script, **more)

    async def call(self, target: str, *args: str, **more: Any) -> Outcome:
        return await self.run(target, *args, kind="python", **more)

    async def do(self, job: Job) -> Outcome:
        return await self.executor.run(self.box, job, home=self.inside_home)

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def below(self) -> dict[int, str]:
        """All that runs below this process, with its command."""
        found = {pid: command_of(pid) for pid in descendants_of(os.getpid())}
        return {pid: command for pid, command in found.items() if command}

    def agent(self) -> int:
        names = ("runner.agent", f"/{programs.TARGETS['c']} ")
        found = {pid for pid, command in self.below().items() if any(name in command for name in names)}
        return max(pid for pid in found if "bwrap" not in command_of(pid))

    async def close(self) -> None:
        self.executor.close()
        await self.box.stop()
        self.journal.close()


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@asynccontextmanager
async def benched(folder: Path, isolation: Isolation, agent: str = "python") -> AsyncIterator[Bench]:
    bench = Bench(folder, isolation, agent)
    await bench.box.start()
    try:
        yield bench
    finally:
        await bench.close()


def _agents(isolation: Isolation) -> Iterator[Any]:
    yield pytest.param(isolation, "python", id=isolation)
    if LONG and isolation == "none":
        yield pytest.param(isolation, "c", id="agent in C")


def _each(isolations: tuple[Isolation, ...]) -> Callable[..., Callable[..., None]]:
    def decorate(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @pytest.mark.parametrize(("isolation", "agent"), [one for each in isolations for one in _agents(each)])
        def run(tmp_path: Path, isolation: Isolation, agent: str) -> None:
            if agent != "python":
                programs.built(agent)  # Once, and not in each fork.
            if isolation == "sandbox" and not sandbox.available().ok:
                pytest.skip(sandbox.available().why_not)

            @apart
            async def on_a_bench() -> None:
                async with benched(tmp_path, isolation, agent) as bench:
                    await test(bench)
                assert bench.below() == {}

            on_a_bench()

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate


in_both = _each(("none", "sandbox"))
in_a_sandbox = _each(("sandbox",))
plain = _each(("none",))
