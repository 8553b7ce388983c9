"""`rota map`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

from rota.api import Cell, Instance, Location
from rota.cli.cell import state_of
from rota.cli.command import command
from rota.cli.output import Part, print_line
from rota.cli.session import Session
from rota.client import ALL_NAMESPACES, Client

LOOK_SECONDS = 1.0
SHOWN_MAX = 60
"""Instances of a cell that are drawn one by one."""
SIGNS = {"Ready": ("●", "green"), "Failed": ("✕", "red"), "Pending": ("○", "yellow"), "Skipped": ("·", "")}
STATES = {"Ready": "green", "Lost": "red", "Away": "yellow"}


@command
async def map_(
    session: Session,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch/--once",
            "-w",
            help="Keep the map up to date, or print it once. Default on a terminal: kept up to date.",
        ),
    ] = sys.stdout.isatty(),
) -> None:
    """Show the cities, their cells and what runs in each: ● ready, ○ coming, ✕ failed."""
    async with session.client() as client:
        if not (watch and sys.stdout.isatty()):
            for one in await _drawn(client):
                print_line(*one)
            return
        from rich.live import Live
        from rich.text import Text

        with Live(auto_refresh=False, screen=False) as live:
            while True:
                text = Text("\n").join(
                    Text.assemble(*((part, "") if isinstance(part, str) else part for part in one))
                    for one in await _drawn(client)
                )
                live.update(text, refresh=True)
                await asyncio.sleep(LOOK_SECONDS)


async def _drawn(client: Client) -> list[list[Part | str]]:
    locations = {one.spec.city_code: one for one in (await client.list(Location)).items}
    cells = (await client.list(Cell)).items
    instances = (await client.list(Instance, namespace=ALL_NAMESPACES)).items
    return drawn(locations, cells, instances)


def drawn(
    locations: Mapping[str, Location], cells: Iterable[Cell], instances: Iterable[Instance]
) -> list[list[Part | str]]:
    """Return the lines of the map."""
    by_cell: dict[str, list[Instance]] = {}
    for one in instances:
        by_cell.setdefault(one.spec.cell_name or "local", []).append(one)
    by_city: dict[str, list[Cell]] = {code: [] for code in sorted(locations)}
    for cell in sorted(cells, key=lambda one: one.metadata.name):
        by_city.setdefault(cell.spec.city_code, []).append(cell)
    lines: list[list[Part | str]] = []
    for code, there in by_city.items():
        name = locations[code].spec.display_name if code in locations else None
        lines.append([(code, "bold"), f"  {name}" if name else "", "" if there else "  no cell is here"])
        lines += [_cell(cell, by_cell.get(cell.metadata.name, [])) for cell in there]
    return lines


def _cell(cell: Cell, instances: list[Instance]) -> list[Part | str]:
    state = state_of(cell)
    signs = [SIGNS[one.readiness().state] for one in sorted(instances, key=lambda one: one.metadata.name)]
    more = len(signs) - SHOWN_MAX
    return [
        f"  {cell.metadata.name:<20} ",
        (f"{state:<16}", STATES.get(state.partition(",")[0], "")),
        f"{len(signs):>4}  ",
        *signs[:SHOWN_MAX],
        f" and {more} more" if more > 0 else "",
    ]
