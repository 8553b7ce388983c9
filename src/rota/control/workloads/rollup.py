"""The status of a workload: the sums and the worst reason of its deployments, by placement and in all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rota.api import Condition, WorkloadDeployment
from rota.api.workload import PlacedInCell, PlacedInCity, Placement, PlacementStatus
from rota.control.gate import status_of
from rota.control.instances.reasons import Blocker, blocker, rank, rolled_up
from rota.control.workloads.placing import Placing

AVAILABLE = "Available"
COUNTS = ("replicas", "current_replicas", "updated_replicas", "desired_replicas", "ready_replicas")


class City(NamedTuple):
    """One city of a placement: the wanted number, its division among cells, and the deployments."""

    code: str
    wanted: int
    placing: Placing
    deployments: Sequence[WorkloadDeployment]


def placement_status(placement: Placement, cities: Sequence[City]) -> PlacementStatus:
    """Return the status of one placement. It is available when each of its cities is."""
    conditions = [_city(city) for city in cities]
    worst = _worst(conditions)
    counts = _counts(one for city in cities for one in city.deployments)
    counts["desired_replicas"] = sum(city.wanted for city in cities)
    return PlacementStatus(
        name=placement.name,
        **counts,
        available=worst.status,
        reason=worst.reason,
        message=worst.message,
        unplaced=sum(city.placing.unplaced for city in cities),
        cities=[
            PlacedInCity(
                city_code=city.code,
                cells=[
                    PlacedInCell(name=one.spec.cell_name, replicas=one.spec.replicas, ready=_ready(one))
                    for one in sorted(city.deployments, key=lambda one: one.spec.cell_name)
                ],
            )
            for city in cities
        ],
    )


def workload_status(placements: Sequence[PlacementStatus], cities: Mapping[str, Sequence[City]]) -> dict[str, Any]:
    """Return the fields of a workload's status that are sums of its placements."""
    counts = {name: sum(getattr(one, name) for one in placements) for name in COUNTS}
    codes = sorted({city.code for each in cities.values() for city in each})
    return {
        **counts,
        "deployments": sum(len(city.deployments) for each in cities.values() for city in each),
        "cities": ",".join(codes),
        "ready": f"{counts['ready_replicas']}/{counts['desired_replicas']}",
        "placements": list(placements),
    }


def available(cities: Mapping[str, Sequence[City]]) -> Condition:
    """Return the condition Available of a workload: True if each of its placements is available."""
    return _worst([_city(city, placement) for placement, each in cities.items() for city in each])


def _city(city: City, placement: str = "") -> Condition:
    """Return the condition of a city: True if all instances have a place, and each deployment is available."""
    where = f"{placement}/{city.code}" if placement else city.code
    ready = sum(map(_ready, city.deployments))
    blockers = [found for one in city.deployments if (found := _blocker(one, where)) is not None]
    if city.placing.unplaced:
        blockers.append(blocker(city.placing.reason, city.placing.message, who=where, affected=city.placing.unplaced))
    if not blockers and len(city.deployments) >= len(city.placing.cells):
        tally = f"{ready} of {city.wanted} ready"
        return Condition(type=AVAILABLE, status="True", reason="Ready", message=tally)
    if not blockers:
        blockers.append(blocker("NotCreated", who=where, affected=city.wanted - ready))
    return rolled_up(AVAILABLE, ready=min(ready, city.wanted - 1), wanted=city.wanted, blockers=blockers)


def _blocker(deployment: WorkloadDeployment, where: str) -> Blocker | None:
    """Return the reason why a deployment is not available; None: it is."""
    condition = status_of(deployment).condition(AVAILABLE)
    who = f"{where}/{deployment.spec.cell_name}"
    if condition is None or (condition.observed_generation or 0) < deployment.metadata.generation:
        return blocker("Provisioning", who=who, affected=deployment.spec.replicas)
    if condition.status == "True":
        return None
    return blocker(condition.reason, condition.message, who=who, affected=deployment.spec.replicas)


def _worst(conditions: Sequence[Condition]) -> Condition:
    failing = [one for one in conditions if one.status != "True"]
    if failing:
        return min(failing, key=lambda one: rank(one.reason))
    return conditions[0] if len(conditions) == 1 else Condition(type=AVAILABLE, status="True", reason="Ready")


def _counts(deployments: Iterable[WorkloadDeployment]) -> dict[str, int]:
    counts = dict.fromkeys(COUNTS, 0)
    for deployment in deployments:
        status = status_of(deployment)
        for name in COUNTS:
            counts[name] += getattr(status, name)
    return counts


def _ready(deployment: WorkloadDeployment) -> int:
    ready: int = status_of(deployment).ready_replicas
    return ready
