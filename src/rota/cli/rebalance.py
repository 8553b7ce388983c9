"""`rota rebalance`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from rota.api import Workload
from rota.api.workload import REBALANCE
from rota.cli.command import command
from rota.cli.output import print_line
from rota.cli.session import CommandError, Session


@command
async def rebalance(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="WORKLOAD", help="The name of the workload.")],
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop moving instances. Moved ones stay where they are.")
    ] = False,
) -> None:
    """Divide the instances of a workload evenly among the cells of each city, one at a time.

    Nothing else moves what is placed: neither a new cell nor another weight. Each instance is started in its new cell
    before it ends in the old one, so a quota needs room for one more. Instances in cells that are out of reach,
    cordoned or drained stay there.
    """
    name = name.rpartition("/")[2]
    async with session.client() as client:
        found = await client.get(Workload, name)
        if stop and REBALANCE not in found.metadata.annotations:
            raise CommandError(f"workload {name} is not being rebalanced")
        asked = None if stop else datetime.now(UTC).isoformat(timespec="seconds")
        await client.patch(Workload, name, {"metadata": {"annotations": {REBALANCE: asked}}})
    if stop:
        print_line(f"workload.rota.dev/{name} stays as it is")
    else:
        print_line(f"workload.rota.dev/{name} is being rebalanced: `rota placement {name}` shows where it is")
