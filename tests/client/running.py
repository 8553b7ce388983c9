"""A server of Rota's in the test's own event loop, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rota.server.main import Ready, run

STOP_SECONDS_MAX = 30.0


@asynccontextmanager
async def running(home: Path) -> AsyncIterator[Ready]:
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(run(home, port=0, on_ready=ready.set_result, stop=stop))
    await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    try:
        yield ready.result()
    finally:
        stop.set()
        await asyncio.wait_for(serving, STOP_SECONDS_MAX)
