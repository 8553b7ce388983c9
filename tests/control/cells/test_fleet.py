"""A hub and its cells, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from rota.api import Cell, Workload
from rota.testing.fleet import Fleet, Site


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with Fleet({"dfw-1": "dfw", "dfw-2": "dfw", "lhr-1": "lhr"}) as made:
        made.go(1)
        yield made


def workload(replicas: int, *cities: str, command: str = "serve") -> dict[str, Any]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "web"},
        "spec": {
            "template": {"spec": {"containers": [{"name": "main", "command": [command]}]}},
            "placements": [{"name": "all", "cityCodes": [*cities], "scale": {"min": replicas}}],
        },
    }


def there(fleet: Fleet, site: Site) -> Counter[str]:
    return Counter(str(one.spec.cell_name) for one in fleet.instances(site))


def test_what_is_applied_at_the_hub_runs_in_the_cells(fleet: Fleet) -> None:
    fleet.do(fleet.hub.client.create(workload(3, "dfw", "lhr")))
    fleet.go(30)
    assert sum(there(fleet, fleet.hub).values()) == 6
    for name, site in fleet.cells.items():
        assert there(fleet, site) == {name: there(fleet, fleet.hub)[name]}
        assert len(site.runtime.alive) == there(fleet, site)[name]
    found = fleet.do(fleet.hub.client.get(Workload, "web"))
    assert found.status is not None and found.status.ready_replicas == 6
    cells = fleet.do(fleet.hub.client.list(Cell)).items
    assert {one.readiness().state for one in cells} == {"Ready"}
