"""`python -m rota.runtime.runner`: the keeper starts it for one instance, and configures it by environment variables.

ROTA_GATEWAY   the gateway's socket
ROTA_INSTANCE  the instance, as NAMESPACE/NAME
ROTA_TOKEN     the token that authenticates it there, as this instance and no other
ROTA_RUN       the number of this run of the instance
ROTA_HOME      the home, for the mirrors of repositories
ROTA_BOX       the file in which it writes which box runs
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rota.runtime.runner.agent import PR_SET_CHILD_SUBREAPER
from rota.runtime.runner.stream import Stream
from rota.runtime.runner.worker import Worker


async def main() -> int:
    token = os.environ.pop("ROTA_TOKEN")
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    stream = Stream(Path(os.environ["ROTA_GATEWAY"]), os.environ["ROTA_INSTANCE"], token)
    home, note = Path(os.environ["ROTA_HOME"]), Path(os.environ["ROTA_BOX"])
    worker = Worker(int(os.environ["ROTA_RUN"]), home, note, stream.wake)
    tasks = [
        asyncio.create_task(worker.live(), name="worker"),
        asyncio.create_task(stream.run(worker), name="stream"),
        asyncio.create_task(ended.wait(), name="end"),
    ]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if ended.is_set():
        # Not bounded here: the keeper kills this process when the grace of the stop is over.
        await worker.finish()
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return worker.exit_code or 0


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="rota runner: %(message)s")
    # The kernel reparents orphans of a box to this process.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
        sys.exit(runner.run(main()))
