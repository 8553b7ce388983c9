"""Killing at random, and then counting what is left."""

from __future__ import annotations

import asyncio
import os
import random
import signal

from rota.runtime.keeper.client import Keeper, KeeperError, Record
from tests.amount import amount
from tests.runtime.homes import Home, gone

KILLS = amount(30, 400)
KEYS = 8
KEEPER_KILLS_EVERY = 20
SCRIPT = "(setsid sh -c 'sleep 1000 & exec sleep 1000' &); exec sleep 1000"


async def started(home: Home, keeper: Keeper, key: str, run: str) -> None:
    """As a server would: again under the same name, until there was an answer."""
    while True:
        try:
            record = await home.start(keeper, key, SCRIPT, run=run)
        except KeeperError as error:
            if error.reason != "Gone":
                raise
        else:
            assert record.run == run
            return


def running(records: list[Record]) -> dict[str, int]:
    return {record.key: int(record.run) for record in records if record.is_running}


async def test_after_random_kills_exactly_what_was_started_last_runs(any_home: Home) -> None:
    chance = random.Random(11)
    async with any_home.keeper() as keeper:
        runs = {f"k{number}": 0 for number in range(KEYS)}
        await asyncio.gather(*(started(any_home, keeper, key, "0") for key in runs))
        for kill in range(1, KILLS + 1):
            if kill % KEEPER_KILLS_EVERY == 0 and keeper.hello is not None:
                os.kill(keeper.hello.pid, signal.SIGKILL)
                await gone(keeper.hello.pid)
            else:
                victim = chance.choice(any_home.processes())
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            for record in await keeper.list():
                if chance.random() < 0.05:
                    await keeper.kill(record.key)
                elif record.is_running:
                    continue
                runs[record.key] += 1
                await started(any_home, keeper, record.key, str(runs[record.key]))
        async with asyncio.timeout(60):
            while running(last := await keeper.list()) != runs:
                for record in last:  # The keeper hears of the last kill a moment after it.
                    if not record.is_running:
                        runs[record.key] += 1
                        await started(any_home, keeper, record.key, str(runs[record.key]))
        for key in runs:
            await keeper.stop(key, 0)
        assert any_home.processes() == []
        assert len(await keeper.list()) == KEYS
