"""A queue of jobs that kills itself at a step: `python -m tests.runner.crashing_queue FOLDER STEP`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from tests.runner.crashing import die
from tests.runner.queues import queue_in

JOBS = tuple(f"job-{number}" for number in range(8))
STEPS = (
    *(
        f"{when} {what} {number}"
        for when in ("before", "after")
        for what, numbers in {"begun": (1, 4, 8), "end": (1, 4, 8), "sync": (1, 2), "sent": (1, 4)}.items()
        for number in numbers
    ),
    "never",
)


def die_at(target: Any, name: str, step: str, what: str) -> None:
    """Put deaths before and after one call of a function, by its number."""
    calls = 0
    real = getattr(target, name)

    def counted(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if step == f"before {what} {calls}":
            die()
        result = real(*args, **named)
        if step == f"after {what} {calls}":
            die()
        return result

    setattr(target, name, counted)


async def main(folder: Path, step: str) -> None:
    async with queue_in(folder) as queue:
        for outcome in queue.jobs.pending():
            print("sent", outcome.id, outcome.reason, flush=True)
        journal: Any = queue.jobs._journal
        die_at(journal, "begun", step, "begun")
        die_at(journal, "write_end", step, "end")
        die_at(os, "fdatasync", step, "sync")
        real = queue.jobs._send

        def send(message: Any) -> None:
            if hasattr(message, "outcome"):
                print("sent", message.outcome.id, message.outcome.reason, flush=True)
            real(message)

        queue.jobs._send = send
        die_at(queue.jobs, "_send", step, "sent")
        for id_ in JOBS:
            queue.assign(id_)
        async with asyncio.timeout(30):
            await queue.until(lambda: not queue.jobs.is_busy and not queue.jobs.has_next)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
