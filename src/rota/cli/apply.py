"""`rota apply`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.command import command
from rota.cli.options import Files, Force
from rota.cli.output import print_line
from rota.cli.previews import Refused, manifests, preview_all, substance
from rota.cli.session import CommandError, Session

STYLES = {"created": "green", "configured": "yellow", "unchanged": "dim"}


@command
async def apply(
    session: Session,
    filename: Files = None,
    force: Force = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")] = False,
) -> None:
    """Create or change the objects of manifests. All are checked, here and by the server, before one is written."""
    found = manifests(filename, session.settings.namespace)
    async with session.client() as client:
        try:
            previews = await preview_all(client, found, force=force)
        except Refused as refused:
            raise CommandError(f"{refused}\nnothing was changed") from None
        for preview in previews:
            outcome = preview.outcome
            if not dry_run:
                now = await client.apply(preview.manifest.object, force=force)
                if preview.live is not None:
                    outcome = "unchanged" if substance(now) == substance(preview.live) else "configured"
            print_line(f"{preview.reference} ", (outcome, STYLES[outcome]), " (dry run)" if dry_run else "")
