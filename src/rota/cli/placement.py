"""`rota placement`."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from rota.api import Instance, Workload
from rota.api.workload import PlacedInCity, PlacementStatus
from rota.cli.command import command
from rota.cli.output import Columns, print_line
from rota.cli.session import Session
from rota.control.instances.names import PLACEMENT_LABEL, WORKLOAD_LABEL, derived
from rota.engine.advice import Finding, advice


@command
async def placement(
    session: Session, name: Annotated[str, typer.Argument(metavar="WORKLOAD", help="The name of the workload.")]
) -> None:
    """Show where a workload runs: for each city and cell, the wanted and the actual number, and why not more."""
    async with session.client() as client:
        found = await client.get(Workload, name.rpartition("/")[2])
        labels = f"{WORKLOAD_LABEL}={derived(found.metadata.name)}"
        instances = (await client.list(Instance, namespace=found.metadata.namespace, labels=labels)).items
    there = Counter((one.metadata.labels.get(PLACEMENT_LABEL), one.spec.cell_name) for one in instances)
    placements = {one.name: one for one in found.status.placements} if found.status is not None else {}
    table = Columns(("PLACEMENT", "CITY", "CELL", "WANTED", "THERE", "READY", "WHY"))
    for wanted in found.spec.placements:
        status = placements.get(wanted.name) or PlacementStatus(name=wanted.name)
        cities = {one.city_code: one for one in status.cities}
        for code in wanted.city_codes:
            table.write(_rows(status, cities.get(code) or PlacedInCity(city_code=code), there))
    for status in placements.values():
        if status.available == "False":
            print_line("")
            print_line(f"{status.name}: {status.message or status.reason}")
            matter = Finding(
                id=Workload.api.key(found.metadata.namespace, found.metadata.name),
                verdict="Settled",
                reason=status.reason or "",
                why=status.message or "",
            )
            print_line(f"→ {advice(matter)}")


def _rows(
    status: PlacementStatus, city: PlacedInCity, there: Counter[tuple[str | None, str | None]]
) -> list[tuple[object, ...]]:
    why = status.reason if status.available == "False" else ""
    rows: list[tuple[object, ...]] = []
    for one in city.cells:
        lacks = why if one.ready < one.replicas else ""
        count = there[status.name, one.name]
        rows.append((status.name, city.city_code, one.name, one.replicas, count, one.ready, lacks))
    return rows or [(status.name, city.city_code, "", 0, 0, 0, why)]
