"""`rota scale`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.api import Workload
from rota.cli.command import command
from rota.cli.naming import reference, targets
from rota.cli.options import Targets
from rota.cli.output import print_line
from rota.cli.session import Session, bad_usage
from rota.client import Client


@command
async def scale(
    session: Session,
    which: Targets = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", metavar="COUNT", min=0, help="Set the number of replicas.")
    ] = None,
    placement: Annotated[
        str | None, typer.Option("--placement", metavar="NAME", help="Change only this placement of a workload.")
    ] = None,
) -> None:
    """Change the number of replicas of objects. For a workload, it is the minimum in each of its cities."""
    wanted = targets(which or [])
    if replicas is None:
        raise bad_usage("say how many with --replicas")
    for kind, name in wanted:
        if not name or (kind.scale is None and kind is not Workload.api):
            raise bad_usage("name what has replicas, such as wp/boxes or wl/web")
        if placement is not None and kind is not Workload.api:
            raise bad_usage("--placement is for workloads, such as wl/web")
    async with session.client() as client:
        for kind, name in wanted:
            if kind is Workload.api:
                scaled = await _scale_workload(client, name, replicas, placement)
                print_line(f"{reference(kind, name)} scaled to {replicas} in each city of {', '.join(scaled)}")
            else:
                await client.set_scale(kind, name, replicas)
                print_line(f"{reference(kind, name)} scaled to {replicas}")


async def _scale_workload(client: Client, name: str, replicas: int, placement: str | None) -> list[str]:
    """Set the least number of instances in each city. Returns the placements that were changed."""
    placements = (await client.get(Workload, name)).spec.placements
    chosen = [i for i, one in enumerate(placements) if placement is None or one.name == placement]
    if not chosen:
        there = ", ".join(one.name for one in placements)
        raise bad_usage(f"workload {name} has no placement {placement}; it has {there}")
    changes: list[dict[str, object]] = []
    for i in chosen:
        at = f"/spec/placements/{i}"
        # The placement that was read is the one that is changed.
        changes.append({"op": "test", "path": f"{at}/name", "value": placements[i].name})
        changes.append({"op": "add", "path": f"{at}/scale/min", "value": replicas})
    await client.patch(Workload, name, changes, type="json")
    return [placements[i].name for i in chosen]
