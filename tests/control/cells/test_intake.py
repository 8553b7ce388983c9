"""The share of a hub that each cell has, and what is counted of that. Virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest

from rota.api import Cell
from rota.control.cells.contacts import CellContacts
from rota.control.cells.counting import HubCounting
from rota.control.cells.intake import (
    BYTES_BURST,
    BYTES_PER_SECOND,
    PAUSE_SECONDS_MAX,
    REFUSED_SECONDS,
    REPORT_BYTES_COUNTED_MIN,
    WAITING_MAX,
    Intake,
)
from rota.control.cells.link import INTERVAL_SECONDS_MIN, LINKED
from rota.control.cells.messages import REPORT_BYTES_AIM, REPORT_BYTES_MAX, Answer, Report
from rota.engine.metrics import Metrics
from rota.registry import ApiError
from rota.registry.errors import too_busy
from rota.testing.connections import SimulatedHub
from rota.testing.fleet import Fleet

LOUD, QUIET = "dfw-1", "lhr-1"


class Door:
    """The way into a hub, for reports whose cells are not even there."""

    def __init__(self, fleet: Fleet) -> None:
        hub = fleet.hub
        assert hub.reports is not None
        self.fleet = fleet
        self.metrics = Metrics()
        self.contacts = CellContacts(hub.clock)
        counting = HubCounting(self.metrics, hub.objects, self.contacts, hub.clock)
        self.intake = Intake(hub.reports, hub.objects, hub.clock, counting)
        self.sequence = 0

    async def take(self, cell: str, size: int = 0) -> float | int:
        """Send a report of at least so many bytes. Returns after how many seconds it was taken, or the refusal."""
        self.sequence += 1
        report = Report(f"home-of-{cell}", 1000, self.sequence, version="test")
        began = self.fleet.clock.now()
        try:
            await self.intake.take(cell, msgspec.json.encode(report).ljust(size))
        except ApiError as error:
            return error.code
        return self.fleet.clock.now() - began

    def take_all(self, *reports: tuple[str, int]) -> list[float | int]:
        async def together() -> list[float | int]:
            return await asyncio.gather(*(self.take(*one) for one in reports))

        return self.fleet.do(together())

    def lines(self, name: str) -> list[str]:
        found = self.metrics.render().decode().splitlines()
        return [line for line in found if line.startswith(name) and not line.startswith("#")]


@pytest.fixture
def door(fleet: Fleet) -> Iterator[Door]:
    for name in fleet.cells:
        fleet.down(name)
    made = Door(fleet)
    yield made
    made.intake.end()


def test_reports_beyond_the_few_that_wait_are_refused_and_other_cells_are_heard(door: Door) -> None:
    began = door.fleet.clock.now()
    *loud, quiet = door.take_all(*[(LOUD, 0)] * 10, (QUIET, 0))
    assert quiet == 0
    assert loud.count(429) == 10 - WAITING_MAX - 1
    assert [one for one in loud if one != 429] == [0] * (WAITING_MAX + 1)
    # Who asks again at once is not answered at once.
    assert door.fleet.clock.now() - began == REFUSED_SECONDS
    assert door.take_all((LOUD, 0)) == [0]


def test_a_burst_of_real_changes_is_not_slowed(door: Door) -> None:
    async def burst() -> list[float | int]:
        return [await door.take(LOUD, REPORT_BYTES_AIM) for _ in range(BYTES_BURST // REPORT_BYTES_AIM)]

    assert set(door.fleet.do(burst())) == {0}


@pytest.mark.parametrize("size", [0, REPORT_BYTES_AIM, REPORT_BYTES_MAX])
def test_a_cell_beyond_its_share_is_slowed_and_not_lost(door: Door, size: int) -> None:
    count = BYTES_BURST // max(size, REPORT_BYTES_COUNTED_MIN) + 20

    async def flood() -> list[float | int]:
        return [await door.take(LOUD, size) for _ in range(count)]

    began = door.fleet.clock.now()
    waits = door.fleet.do(flood())
    took = door.fleet.clock.now() - began
    assert took >= 18 * min(PAUSE_SECONDS_MAX, max(size, REPORT_BYTES_COUNTED_MIN) / BYTES_PER_SECOND)
    assert max(waits) <= PAUSE_SECONDS_MAX + 0.001
    assert 429 not in waits
    # The share of one is no other's.
    assert door.take_all((QUIET, size)) == [0]
    # It comes back with time.
    door.fleet.go(BYTES_BURST / BYTES_PER_SECOND + PAUSE_SECONDS_MAX)
    assert door.take_all((LOUD, size)) == [0]


def test_the_longest_pause_leaves_time_to_renew_the_shortest_lease() -> None:
    shortest = 5
    assert PAUSE_SECONDS_MAX + max(shortest / 3, INTERVAL_SECONDS_MIN) < shortest - 1


def test_a_report_whose_sender_is_gone_leaves_the_turn_to_others(door: Door) -> None:
    async def gone() -> float | int:
        over = [asyncio.create_task(door.take(LOUD, REPORT_BYTES_AIM)) for _ in range(WAITING_MAX + 1)]
        await asyncio.sleep(0)
        for task in over:
            task.cancel()
        await asyncio.gather(*over, return_exceptions=True)
        return await door.take(LOUD)

    assert door.fleet.do(gone()) == 0


def test_reports_are_counted_by_cell_and_outcome(door: Door) -> None:
    async def rubbish() -> None:
        with pytest.raises(ApiError):
            await door.intake.take(QUIET, b"{}")
        with pytest.raises(ApiError):
            await door.intake.take(QUIET, b" " * (REPORT_BYTES_MAX + 1))
        with pytest.raises(ApiError):
            await door.intake.take("somebody-elses-text", b"{}")

    door.take_all(*[(LOUD, 0)] * 5)
    door.sequence = 2
    door.take_all((LOUD, 0))
    door.fleet.do(rubbish())
    door.contacts.note(LOUD)
    door.fleet.go(3)
    assert door.lines("rota_cell_reports_total") == [
        f'rota_cell_reports_total{{cell="{LOUD}",outcome="Late"}} 1',
        f'rota_cell_reports_total{{cell="{LOUD}",outcome="Taken"}} 3',
        f'rota_cell_reports_total{{cell="{LOUD}",outcome="TooMany"}} 2',
        f'rota_cell_reports_total{{cell="{QUIET}",outcome="Malformed"}} 1',
        f'rota_cell_reports_total{{cell="{QUIET}",outcome="TooLarge"}} 1',
        'rota_cell_reports_total{cell="other",outcome="Malformed"} 1',
    ]
    assert f'rota_cell_report_seconds_count{{cell="{LOUD}"}} 4' in door.lines("rota_cell_report_seconds_count")
    assert door.lines("rota_cell_report_age_seconds") == [f'rota_cell_report_age_seconds{{cell="{LOUD}"}} 3']


def test_a_cell_that_is_gone_is_forgotten(door: Door) -> None:
    door.take_all((LOUD, 0), (QUIET, 0))
    door.fleet.do(door.fleet.hub.client.delete(Cell, LOUD))
    door.fleet.go(1)
    assert not door.fleet.hub.objects.has(Cell.api, "", LOUD)
    assert not [one for one in door.lines("rota_cell") if LOUD in one]
    assert [one for one in door.lines("rota_cell") if QUIET in one]


def test_instances_that_wait_for_their_quota_are_counted(fleet: Fleet) -> None:
    quota = {"apiVersion": "rota.dev/v1alpha1", "kind": "Quota", "metadata": {"name": "default"}}
    template = {"spec": {"containers": [{"name": "main", "command": ["serve"]}]}}
    placement = {"name": "all", "cityCodes": ["lhr"], "scale": {"min": 3}}
    workload = {"apiVersion": "rota.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "web"}}
    fleet.do(fleet.hub.client.create({**quota, "spec": {"hard": {"instances": 1}}}))
    fleet.do(fleet.hub.client.create({**workload, "spec": {"template": template, "placements": [placement]}}))
    fleet.go(60)
    door = Door(fleet)
    assert door.lines("rota_quota_waiting") == ['rota_quota_waiting{namespace="default"} 2']
    door.intake.end()


def test_a_cell_waits_as_long_as_its_hub_asks_and_says_so(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[float] = []
    taken = SimulatedHub.report

    async def report(self: SimulatedHub, report: Report) -> Answer:
        sent.append(fleet.clock.now())
        if len(sent) <= 3:
            raise too_busy("later")
        return await taken(self, report)

    [line] = [one for name, one in fleet.lines.items() if name == QUIET]
    for name in fleet.cells:
        if name != QUIET:
            fleet.down(name)
    monkeypatch.setattr(SimulatedHub, "report", report)
    while not sent:
        fleet.go(0.5)
    assert not line.is_cut
    told = fleet.do(fleet.cells[QUIET].client.get(Cell, QUIET))
    assert told.status is not None
    linked = told.status.condition(LINKED)
    assert linked is not None and (linked.status, linked.reason) == ("False", "HubBusy")
    fleet.go(10)
    waits = [later - earlier for earlier, later in pairwise(sent)]
    assert len(sent) >= 4 and all(1 <= one <= 2.5 for one in waits[:3])
    told = fleet.do(fleet.cells[QUIET].client.get(Cell, QUIET))
    assert told.status is not None
    linked = told.status.condition(LINKED)
    assert linked is not None and linked.status == "True"
