"""A runner's stream while its server is away."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from rota.client.upgrading import connect_unix
from rota.runtime.runner import stream

TRIES = 5
SECONDS_MAX = 20.0


async def test_a_server_that_is_away_is_not_spoken_of_in_the_log_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried, enough = [0], asyncio.Event()

    async def counted(*args: Any, **more: Any) -> Any:
        tried[0] += 1
        if tried[0] > TRIES:
            enough.set()
        return await connect_unix(*args, **more)

    monkeypatch.setattr(stream, "connect_unix", counted)
    monkeypatch.setattr(stream, "RECONNECT_SECONDS_MIN", 0.001)
    monkeypatch.setattr(stream, "RECONNECT_SECONDS_MAX", 0.001)
    caplog.set_level(logging.INFO)
    nobody: Any = None
    running = asyncio.create_task(stream.Stream(tmp_path / "rota.sock", "boxes-0", "token").run(nobody))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await enough.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert caplog.messages == []
