"""A fleet under faults that are drawn: what is wanted runs in the end, and nothing runs twice or beyond its budget.

A seed that fails tells its story, and fails again: `ROTA_FLEET_SEED=17 pytest tests/control/cells/test_storm.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any

import pytest

from rota.control import deployment
from rota.control.cells.fence import Fence
from rota.control.cells.outbox import Outbox
from rota.control.cells.reports import Reports
from rota.testing.runtime import MemoryRuntime
from tests.amount import LONG
from tests.control.cells.storm import Storm, drawn_lags

SEEDS = int(os.environ.get("ROTA_FLEET_SEEDS", "1000" if LONG else "100"))
STEPS = 30
ONE = os.environ.get("ROTA_FLEET_SEED")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("seed", [int(ONE)] if ONE else range(SEEDS))
def test_in_the_end_it_is_as_it_should_be(seed: int) -> None:
    Storm(seed, STEPS).run()


def test_a_seed_is_the_same_again() -> None:
    lags = {"": 0.5, "dfw-1": 3.0, "sin-2": 0.5}
    one, two = (Storm(7, 10, lags=lags) for _ in range(2))
    for each in (one, two):
        each.run()
    assert one.story == two.story and one.trace == two.trace


def test_reads_are_late_at_the_hub_in_cells_in_both_or_nowhere() -> None:
    ways = [("" in lags, any(lags)) for lags in map(drawn_lags, range(SEEDS))]
    assert set(ways) == {(False, False), (True, False), (False, True), (True, True)}, ways


# The checks bite: without what they are for, they fail, and say what happened.


def failure(seeds: Iterable[int], **more: Any) -> str:
    for seed in seeds:
        try:
            Storm(seed, STEPS, **more).run()
        except AssertionError as error:
            return str(error)
    return ""


def test_without_the_fence_something_acts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def extend(self: MemoryRuntime, *_: object, **__: object) -> None:
        """Nothing has a lease."""

    monkeypatch.setattr(Fence, "left", lambda self, instance: None)
    monkeypatch.setattr(MemoryRuntime, "extend", extend)
    story = failure(range(1, 20))
    assert "what is moved acts more than once" in story.splitlines()[-1] and "apply moved" in story


def test_without_grants_more_runs_than_the_budget_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "granted_to", lambda obj: None)
    assert failure(range(3), budget=6).endswith("of 6 run")


def test_where_late_reports_are_taken_hub_and_cell_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Reports.receive

    async def receive(self: Reports, name: str, report: Any) -> Any:
        self._last.pop(name, None)
        return await taken(self, name, report)

    monkeypatch.setattr(Reports, "receive", receive)
    # And nobody asks again for what differs.
    monkeypatch.setattr(Outbox, "resync", lambda self, uids: None)
    assert "do not agree" in failure(range(7, 27)).splitlines()[-1]


def test_a_status_that_no_cell_has_told_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Reports.receive

    async def receive(self: Reports, name: str, report: Any) -> Any:
        for one in (each for told in report.deployments for each in told.changed if each.status is not None):
            one.status.restarts += 1
        return await taken(self, name, report)

    monkeypatch.setattr(Reports, "receive", receive)
    assert "what no cell has said" in failure(range(3)).splitlines()[-1]
