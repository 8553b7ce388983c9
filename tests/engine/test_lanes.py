"""Lanes: how many run at once, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rota.engine import DONE, Outcome, Scheduler
from tests.engine.bodies import serving, settle

pytestmark = pytest.mark.timeout(10)


async def test_no_more_nodes_of_a_lane_run_at_once_than_its_limit() -> None:
    limits = {"one": 1, "two": 2, "five": 5}
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()
    ran = 0

    async def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        lane = id_.split("/")[0]
        now[lane] += 1
        most[lane] = max(most[lane], now[lane])
        await settle()
        now[lane] -= 1
        ran += 1
        return DONE

    scheduler = Scheduler(
        body,
        live=True,
        lane_of=lambda id_: id_.split("/")[0],
        lane_limit=lambda lane: limits[str(lane)],
    )
    async with serving(scheduler):
        for number in range(20):
            for lane in limits:
                scheduler.arrive(f"{lane}/{number}")
        while ran < 60:
            await settle()
    assert most == limits


@pytest.mark.parametrize("slow", [False, True])
async def test_a_lane_that_is_never_empty_starves_no_other(slow: bool) -> None:
    ran: list[str] = []

    def busy(id_: str, level: int) -> Outcome:
        ran.append(id_)
        if id_.startswith("busy"):
            scheduler.arrive(f"busy/{len(ran)}")
        return DONE

    async def slowly(id_: str, level: int) -> Outcome:
        await asyncio.sleep(0)
        return busy(id_, level)

    scheduler = Scheduler(slowly if slow else busy, live=True, concurrency=4, lane_of=lambda id_: id_.split("/")[0])
    async with serving(scheduler):
        for number in range(100):
            scheduler.arrive(f"busy/first{number}")
        await settle()
        began = len(ran)
        for number in range(3):
            scheduler.arrive(f"quiet/{number}")
        await settle()
        at = [ran.index(f"quiet/{number}") - began for number in range(3)]
        assert at == sorted(at) and at[-1] <= 20


async def test_a_full_lane_does_not_keep_others_from_running() -> None:
    never = asyncio.Event()
    ran: list[str] = []

    async def body(id_: str, level: int) -> Outcome:
        ran.append(id_)
        if id_.startswith("stuck"):
            await never.wait()
        return DONE

    scheduler = Scheduler(body, live=True, lane_of=lambda id_: id_.split("/")[0], lane_limit=lambda lane: 2)
    async with serving(scheduler):
        for number in range(10):
            scheduler.arrive(f"stuck/{number}")
        for number in range(10):
            scheduler.arrive(f"free/{number}")
        await settle()
        await settle()
        assert sum(id_.startswith("free") for id_ in ran) == 10
        assert sum(id_.startswith("stuck") for id_ in ran) == 2
        assert scheduler.view.queued() == {"stuck": 8, "free": 0}


async def test_what_else_is_on_the_loop_has_its_turn_while_a_lane_is_never_empty() -> None:
    ran = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        scheduler.arrive(f"n{ran}")
        return DONE

    scheduler = Scheduler(body, live=True)
    async with serving(scheduler):
        scheduler.arrive("n0")
        await settle()
        before = ran
        await asyncio.sleep(0)
        assert ran - before <= 2 * 256
