"""`rota operator`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rota.cli.command import command
from rota.cli.output import line
from rota.cli.session import Session


@command
async def operator(
    session: Session,
    lease_namespace: Annotated[
        str | None,
        typer.Option(
            "--lease-namespace",
            metavar="NAME",
            help="Where the lease is by which operators take turns. Without it, rota-system on a Rota, and default on "
            "a cluster.",
        ),
    ] = None,
    gateway: Annotated[
        Path | None,
        typer.Option(
            "--gateway", metavar="FOLDER", help="A folder for its socket: `rota why --home FOLDER` then asks it."
        ),
    ] = None,
) -> None:
    """Run the controllers here, for a server elsewhere: a Rota, or a cluster that has Rota's kinds.

    Several may run: one leads, and when it goes another takes over within seconds.
    """
    from rota.server.operator import operate

    async with session.client() as client:
        await operate(client, lease_namespace=lease_namespace, gateway=gateway, say=line)
