"""A runner that kills itself at a step: `python -m tests.runner.crashing FOLDER STEP`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from rota.runtime.composing import AGENT
from rota.runtime.runner.box import Box
from rota.runtime.runner.executor import Executor
from rota.runtime.runner.jobs import Job
from rota.runtime.runner.journal import Journal

JOB = "the-job"
SCRIPT = "echo run >> {folder}/effects; echo ::rota result fine; cat home/key >> {folder}/keys"
STEPS = (
    "before begun",
    "after begun",
    "before put",
    "after put",
    "before run",
    "after run",
    "before clear",
    "after clear",
    "before remove",
    "after remove",
    "before write of end",
    "in write of end",
    "before sync",
    "after sync",
    "after told",
    "before acknowledged",
    "after acknowledged",
    "never",
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_around(target: Any, name: str, step: str, wanted: str) -> None:
    """Put deaths before and after a function, sync or not."""
    real = getattr(target, name)

    if asyncio.iscoroutinefunction(real):

        async def around(*args: Any, **named: Any) -> Any:
            if step == f"before {wanted}":
                die()
            result = await real(*args, **named)
            if step == f"after {wanted}":
                die()
            return result

        setattr(target, name, around)
        return

    def plainly(*args: Any, **named: Any) -> Any:
        if step == f"before {wanted}":
            die()
        result = real(*args, **named)
        if step == f"after {wanted}":
            die()
        return result

    setattr(target, name, plainly)


async def main(folder: Path, step: str) -> None:
    journal = Journal(folder / "journal")
    for outcome in journal.pending():
        print("pending", outcome.reason, outcome.result, flush=True)
    box = Box((sys.executable, *AGENT), {"PATH": os.environ["PATH"]}, folder / "note")
    await box.start()
    executor = Executor(journal)
    await executor.tidy(box)
    die_around(journal, "begun", step, "begun")
    die_around(journal, "acknowledged", step, "acknowledged")
    die_around(executor._files, "put", step, "put")
    die_around(executor._files, "remove", step, "remove")
    die_around(box, "run", step, "run")
    die_around(box, "is_clear", step, "clear")
    die_around(os, "fdatasync", step, "sync")
    if "write of end" in step:
        real = os.write

        def write(file: int, data: Any) -> int:
            if b'"ended"' in bytes(data) and step == "before write of end":
                die()
            if b'"ended"' in bytes(data):
                real(file, bytes(data)[:-20])
                die()
            return real(file, data)

        os.write = write
    job = Job(
        id=JOB,
        kind="command",
        argv=("sh", "-c", SCRIPT.format(folder=folder)),
        env={},
        cwd=str(folder),
        files={"key": "secret"},
        log=str(folder / "log"),
    )
    outcome = await executor.run(box, job, home=str(folder / "home"))
    if step == "after told":
        die()
    print("told", outcome.reason, outcome.result, flush=True)
    journal.acknowledged(JOB)
    await box.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
