"""A month in which clocks change, on virtual time: the Tasks that are made are those that an oracle expects."""

from __future__ import annotations

import os
import random
from datetime import datetime
from typing import Any

import pytest

from rota.api import Task
from rota.client import Update
from rota.control.schedule import Schedules
from rota.control.schedules.making import SCHEDULE_NAME, SCHEDULED_TIME
from rota.engine import StoreObjects
from tests.schedules import oracle
from tests.schedules.scene import COMMAND, Scene, scene_in
from tests.schedules.zones import AUTUMN, MONTH_SECONDS, SPRING, ZONES

SCHEDULES = 1_000 if os.environ.get("ROTA_LONG") else 20
"""So many take some minutes: `make long`."""
LONG_SECONDS_MAX = 3_600
HOURS = ("0", "1", "2", "3", "22,23", "0-3", "1-4/2", "*/6", "*")
MINUTES = ("0", "15", "30", "59", "5,45", "*/30")
DAYS = ("*", "*", "*", "8", "29-31", "*/5")
WEEKDAYS = ("*", "*", "*", "SUN", "6-7", "1-5")
DELETED_AT_ONCE = 500


class Ledger:
    """Every Task that is made: of which schedule, for which moment, and when."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.made: list[tuple[str, int, float]] = []
        self.there: set[str] = set()
        StoreObjects(scene.world.registry).listen((Task.api,), self._hear)

    def _hear(self, kind: object, update: Update[Any]) -> None:
        if update.old is None and update.new is not None:
            notes = update.new.metadata.annotations
            tick = int(datetime.fromisoformat(notes[SCHEDULED_TIME]).timestamp())
            self.made.append((notes[SCHEDULE_NAME], tick, self._scene.clock.time()))
            self.there.add(update.key.name)
        elif update.new is None:
            self.there.discard(update.key.name)

    async def sweep(self) -> None:
        """Somebody deletes what was made: nothing of it may be made again."""
        for name in sorted(self.there):
            await self._scene.world.delete("Task", name)
        await self._scene.world.rest()


def next_due(controller: Schedules) -> float | None:
    assert controller._ticker is not None
    return controller._ticker.heap.next_due()


@pytest.mark.timeout(LONG_SECONDS_MAX)
@pytest.mark.parametrize("begin", [SPRING, AUTUMN], ids=["spring", "autumn"])
async def test_a_month_of_schedules_in_forty_zones_is_as_the_oracle_says(begin: int) -> None:
    chance, crons = random.Random(begin), {}
    shift = int(begin == AUTUMN)
    async with scene_in("store", begin - 1) as scene:
        ledger = Ledger(scene)
        for number in range(SCHEDULES):
            choice = chance.choice
            text = f"{choice(MINUTES)} {choice(HOURS)} {choice(DAYS)} * {choice(WEEKDAYS)}"
            name, zone = f"s{number}", ZONES[(2 * number + shift + number // 20) % len(ZONES)]
            crons[name] = (text, zone)
            spec = {"cron": text, "timeZone": zone, "overlap": "Allow", "target": {"taskTemplate": COMMAND}}
            await scene.world.create("Schedule", name, spec)
        controller = await scene.serve(look_seconds=MONTH_SECONDS)
        end = begin + MONTH_SECONDS
        while (due := next_due(controller)) is not None and due < end:
            scene.clock.advance(due - scene.clock.time())
            await scene.world.rest()
            if len(ledger.there) >= DELETED_AT_ONCE:
                await ledger.sweep()
    assert all(made == tick for _, tick, made in ledger.made), "each at its second"
    fired: dict[str, list[int]] = {name: [] for name in crons}
    for name, tick, _ in ledger.made:
        fired[name].append(tick)
    for name, (text, zone) in crons.items():
        assert fired[name] == oracle.ticks(text, zone, begin, end), (text, zone)
