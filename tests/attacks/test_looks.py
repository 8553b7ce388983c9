"""To have the server look at everything there is for one answer, while everybody else waits for it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import rota.server
from rota.api import ConfigMap
from rota.control.tasks.waits import HOLDERS_COUNTED_MAX, UNCOUNTED, PoolWait, place_of
from rota.engine.objects import StoreObjects
from rota.pools import Ledger, Opened, Request
from rota.registry import Registry, pacing
from rota.store import MemoryStore
from tests.engine_loop.test_why import make_chain, world

TENANT = "tenant"
IN_THE_BACKGROUND = {"collectors.py"}
"""They look at what there is now and then, however much is asked."""
OF_ADMINS = {"release_all"}


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    store = MemoryStore()
    made = Registry(store)
    await made.start()
    yield made
    await made.stop()
    await store.close()


async def test_to_have_many_objects_looked_at_while_others_wait(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "FREE_SECONDS", -1.0)
    monkeypatch.setattr(pacing, "SLICE_SECONDS", -1.0)
    await registry.ensure_namespace(TENANT)
    for i in range(300):
        await registry.create(ConfigMap.api, TENANT, {"metadata": {"name": f"n{i}"}})
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    waiting = asyncio.create_task(others())
    await asyncio.sleep(0)
    found = await StoreObjects(registry).select(ConfigMap.api, TENANT, lambda one: one.metadata.name.endswith("7"))
    waiting.cancel()
    assert len(found) == 30 and turns >= 300


def test_to_find_an_answer_that_reads_all_objects_at_once() -> None:
    """Answers to requests are made by selecting, which gives way to others, and not by listing."""
    listing = []
    for path in Path(rota.server.__file__).parent.glob("*.py"):
        if path.name in IN_THE_BACKGROUND:
            continue
        text = path.read_text()
        for found in re.finditer(r"[^_]objects\.list\(|_objects\.list\((?!request)|_client\.list\(", text):
            function = re.findall(r"def (\w+)\(", text[: found.start()])[-1]
            if function not in OF_ADMINS:
                listing.append(f"{path.name}: {function}")
    assert not listing


async def test_to_have_an_explanation_take_as_long_as_it_likes() -> None:
    """It ends with what was seen when its time is over, and says where to go on."""
    async with world() as w:
        await make_chain(w, 10)
        looks = iter(range(100))
        why = w.why("Task", "t000", is_late=lambda: next(looks) >= 3)
        assert why.root.verdict == "Blocked" and why.advice == "go on from Task/t003: `rota why task/t003`"


def test_to_have_a_place_among_very_many_holders_counted() -> None:
    """Counting takes time for each holder, and one explanation may ask for a thousand places."""
    ledger = Ledger()
    ledger.open("i", Opened.WHOLE)
    for i in range(HOLDERS_COUNTED_MAX):
        ledger.request(Request(f"r{i}", f"h{i}", 0, float(i)))
    assert place_of(ledger, f"r{HOLDERS_COUNTED_MAX - 1}") == HOLDERS_COUNTED_MAX - 2
    ledger.request(Request("last", "another", 0, 1e6))
    assert place_of(ledger, "last") == UNCOUNTED
    assert place_of(ledger, "r0") is None, "it does not wait"
    assert "more than 1000 other holders" in PoolWait("p", 1, (), 0, UNCOUNTED).message
