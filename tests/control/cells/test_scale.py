"""Many cells under one hub: everything that is wanted runs, and all of them can go and come back at once."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from rota.api import Cell, Workload
from rota.testing.fleet import Fleet
from tests.amount import amount
from tests.control.cells.test_fleet import agree, workload

CELLS = amount(40, 1000)
CITIES = 20
SETTLE_SECONDS = 60
RECONNECT_SECONDS = 10
"""Within which all cells are to be heard again after the hub was away."""


@pytest.mark.timeout(3600)
def test_many_cells_run_what_is_placed_and_come_back_together(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    cities = [f"c{number:02}" for number in range(CITIES)]
    each = CELLS // CITIES
    with Fleet({f"{city}-{number}": city for city in cities for number in range(each)}) as fleet:
        fleet.go(5)
        fleet.do(fleet.hub.client.apply(workload(2 * each, *cities), force=True))
        fleet.go(SETTLE_SECONDS)
        assert by_city(fleet) == dict.fromkeys(cities, 2 * each)
        assert {len(site.runtime.alive) for site in fleet.cells.values()} == {2}

        # Nothing of it restarts when the hub goes and comes back.
        before = {one.metadata.name: one.metadata.resource_version for one in fleet.instances(fleet.hub)}
        fleet.down()
        fleet.go(SETTLE_SECONDS)
        fleet.up()
        fleet.go(RECONNECT_SECONDS)
        ready = [one.readiness().state for one in fleet.do(fleet.hub.client.list(Cell)).items]
        assert Counter(ready) == {"Ready": len(fleet.cells)}
        assert fleet.hub.reports is not None
        assert {one.metadata.name: one.metadata.resource_version for one in fleet.instances(fleet.hub)} == before

        # All are cut off, something changes meanwhile, and all return in one moment.
        for line in fleet.lines.values():
            line.cut()
        fleet.go(SETTLE_SECONDS)
        fleet.do(fleet.hub.client.apply(workload(3 * each, *cities), force=True))
        fleet.go(1)
        for line in fleet.lines.values():
            line.heal()
        fleet.go(RECONNECT_SECONDS)
        assert by_city(fleet) == dict.fromkeys(cities, 3 * each)
        agree(fleet)
        found = fleet.do(fleet.hub.client.get(Workload, "web")).status
        assert found is not None and found.ready_replicas == 3 * len(fleet.cells)


def by_city(fleet: Fleet) -> Counter[str]:
    found: Counter[str] = Counter()
    for site in fleet.cells.values():
        found[site.plane.city] += len(site.runtime.alive)
    return found
