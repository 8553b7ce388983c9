"""`rota events`."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from rota.api import Event
from rota.api.table import last_occurrence
from rota.cli.command import command
from rota.cli.following import everything, follow
from rota.cli.formats import Format, TableOf
from rota.cli.naming import Target, targets
from rota.cli.options import AllNamespaces, Watch
from rota.cli.output import note
from rota.cli.session import Session, bad_usage
from rota.client import ALL_NAMESPACES, Client
from rota.registry.errors import not_found


@command
async def events(
    session: Session,
    for_: Annotated[str, typer.Option("--for", metavar="KIND/NAME", help="Show only the events of this object.")] = "",
    watch: Watch = False,
    all_namespaces: AllNamespaces = False,
) -> None:
    """Show what was reported of objects, oldest first."""
    about = ""
    if for_:
        (target,) = targets([for_])
        if not target.name:
            raise bad_usage(f"--for {for_}: KIND/NAME is meant")
        about = f"involvedObject.kind={target.kind.name},involvedObject.name={target.name}"
    everywhere = all_namespaces or bool(for_ and not target.kind.namespaced)
    where: dict[str, Any] = {"namespace": ALL_NAMESPACES if everywhere else None, "fields": about}
    table = TableOf(Event.api, Format("table"), with_namespace=everywhere)
    async with session.client() as client:
        if watch:
            async with contextlib.aclosing(follow(client, Event.api, **where)) as batches:
                async for changed, _ in batches:
                    if changed:
                        table.write(sorted(changed, key=last_occurrence))
            return
        found, _ = await everything(client, Event.api, **where)
        if found:
            table.write(sorted(found, key=last_occurrence))
        elif for_:
            # Checked last, because a deleted object may still have events.
            await _check_there(client, target, everywhere=everywhere)
            note(f"no events of {target.kind.singular}/{target.name}")
        else:
            note("no events" + ("" if everywhere else f" in namespace {client.namespace}"))


async def _check_there(client: Client, target: Target, *, everywhere: bool) -> None:
    """Raise ApiError if no object has this name."""
    if not (everywhere and target.kind.namespaced):
        await client.get(target.kind, target.name)
        return
    found, _ = await everything(client, target.kind, namespace=ALL_NAMESPACES, fields=f"metadata.name={target.name}")
    if not found:
        raise not_found(target.kind, target.name)
