"""Objects of every kind come and go on a real server: afterwards every table is as large as it was before."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from rota.client.http import HttpBackend
from rota.runtime import sandbox
from tests.soak.judge import bound_of
from tests.soak.load import Load
from tests.soak.measure import metrics, table_sizes
from tests.soak.run import serving
from tests.until import until_so

ROUNDS = 2
SETTLE_SECONDS = 60.0
LOOK_SECONDS = 0.2
CHANCE = 3
"""Entries that a table may have more: of a kind of trouble, say, that came up for the first time. Each round makes at
least one object of every kind, so what is kept of them is more than that."""
OF_OTHERS = ("server.http", "client.", "asyncio.tasks", "engine.metrics.")
"""Tables of what is under way, such as the question for them; and metrics, which have a check of their own."""


@pytest.mark.timeout(300)
async def test_what_has_left_the_store_has_left_every_table(tmp_path: Path) -> None:
    if not sandbox.available().ok:
        pytest.skip(sandbox.available().why_not)
    async with serving(tmp_path / "home") as server:
        await Load(server.home, "first").come_and_go(ROUNDS)
        before = await _settled(server.home)
        for namespace in ("second", "third"):
            await Load(server.home, namespace).come_and_go(ROUNDS)

        async def left() -> dict[str, tuple[int, int]]:
            return _grown(before, await _sizes(server.home))

        none = "no table that has grown"
        await until_so(left, lambda found: not found, none, seconds=SETTLE_SECONDS, poll_seconds=LOOK_SECONDS)
        counted = await _metrics(server.home)
    assert [line for line in counted.splitlines() if 'namespace="second"' in line or 'namespace="third"' in line] == []


def _grown(before: dict[str, int], now: dict[str, int]) -> dict[str, tuple[int, int]]:
    return {name: (before.get(name, 0), size) for name, size in now.items() if size > before.get(name, 0) + CHANCE}


async def _settled(home: Path) -> dict[str, int]:
    """The sizes when they do not change any more."""
    before, now = dict[str, int](), await _sizes(home)
    deadline = time.monotonic() + SETTLE_SECONDS
    while before != now and time.monotonic() < deadline:
        await asyncio.sleep(1.0)
        before, now = now, await _sizes(home)
    return now


async def _sizes(home: Path) -> dict[str, int]:
    """Return the sizes of tables that must not grow. Caches of functions have bounds, or an entry for each type."""
    found = table_sizes(await _metrics(home))
    return {
        name: size
        for name, size in found.items()
        if not name.startswith(OF_OTHERS) and not name.endswith("()") and size > bound_of(name)
    }


async def _metrics(home: Path) -> str:
    backend = HttpBackend.connect(home=home)
    try:
        return await metrics(backend)
    finally:
        await backend.close()
