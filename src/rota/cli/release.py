"""`rota release`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.command import command
from rota.cli.gateway import NOT_ROTA, backend_of
from rota.cli.output import print_line
from rota.cli.session import CommandError, Session
from rota.client.claims.gateway import Gateway
from rota.registry import ApiError


@command
async def release(
    session: Session,
    names: Annotated[
        list[str], typer.Argument(metavar="CLAIM…", help="The claims, by their names.", show_default=False)
    ],
) -> None:
    """Give claimed instances back. A claim that was given back already stays as it is."""
    async with session.client() as client:
        gateway = Gateway(backend_of(client), client.namespace)
        for name in names:
            own = name.removeprefix("claim/").removeprefix("claims/").removeprefix("claims.rota.dev/")
            try:
                released = await gateway.release(own)
            except ApiError as error:
                if error.code != 404:
                    raise
                if not (error.details or {}).get("name"):
                    raise CommandError(NOT_ROTA) from None
                raise
            phase = released.status.phase if released.status is not None else None
            print_line(f"claim/{own} {(phase or 'Released').lower()}")
