"""`rota scale`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.command import command
from rota.cli.naming import reference, targets
from rota.cli.options import Targets
from rota.cli.output import line
from rota.cli.session import Session, bad_usage


@command
async def scale(
    session: Session,
    which: Targets = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", metavar="COUNT", min=0, help="How many there should be.")
    ] = None,
) -> None:
    """Change how many replicas objects ask for."""
    wanted = targets(which or [])
    if replicas is None:
        raise bad_usage("say how many with --replicas")
    for kind, name in wanted:
        if not name or kind.scale is None:
            raise bad_usage("name what has replicas, such as wp/boxes")
    async with session.client() as client:
        for kind, name in wanted:
            await client.set_scale(kind, name, replicas)
            line(f"{reference(kind, name)} scaled to {replicas}")
