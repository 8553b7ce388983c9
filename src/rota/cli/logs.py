"""`rota logs`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from rota.api import Instance, WorkerPool
from rota.cli.command import command
from rota.cli.following import everything
from rota.cli.gateway import backend_of
from rota.cli.naming import targets
from rota.cli.options import Targets
from rota.cli.output import line, note, printable
from rota.cli.session import CommandError, Session, bad_usage
from rota.client import Client

COLOURS = ("cyan", "magenta", "blue", "green", "yellow")
INSTANCES_MAX = 100
"""Logs that are read at once."""


@command
async def logs(
    session: Session,
    which: Targets = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")] = False,
    tail: Annotated[int, typer.Option("--tail", metavar="LINES", min=0, help="How many of the last lines.")] = 100,
    container: Annotated[
        str, typer.Option("--container", "-c", metavar="NAME", help="Which container; without it, the first.")
    ] = "",
) -> None:
    """Show what instances have written: of one, or of all of a pool."""
    wanted = targets(which or [])
    if any(not one.name or one.kind not in (Instance.api, WorkerPool.api) for one in wanted):
        raise bad_usage("name an instance or a pool, such as inst/boxes-0 or wp/boxes")
    async with session.client() as client:
        names: dict[str, None] = {}
        for kind, name in wanted:
            found = [name] if kind is Instance.api else await _of_pool(client, name)
            names.update(dict.fromkeys(found))
        if not names:
            note("there are no instances yet")
        if len(names) > INSTANCES_MAX:
            raise CommandError(f"these are {len(names)} instances; name {INSTANCES_MAX} at most")
        query = urlencode({"tail": tail, **({"follow": "true"} if follow else {}), "container": container})
        width = max(map(len, names), default=0)
        async with asyncio.TaskGroup() as group:
            for i, name in enumerate(names):
                prefix = (f"{name:<{width}}  ", COLOURS[i % len(COLOURS)]) if len(names) > 1 else None
                group.create_task(_show(client, name, query, prefix))


async def _of_pool(client: Client, name: str) -> list[str]:
    pool: dict[str, Any] = await client.get(WorkerPool.api, name)
    uid = pool["metadata"]["uid"]
    found, _ = await everything(client, Instance.api, namespace=None)
    own = [one["metadata"] for one in found]
    return [meta["name"] for meta in own if any(owner["uid"] == uid for owner in meta.get("ownerReferences", []))]


async def _show(client: Client, name: str, query: str, prefix: tuple[str, str] | None) -> None:
    path = f"/v1/logs/{quote(client.namespace, safe='')}/{quote(name, safe='')}?{query}"
    async with backend_of(client).stream("GET", path) as pieces:
        async for text in _lines(pieces):
            line(*((prefix,) if prefix else ()), printable(text, keep="\t"))


async def _lines(pieces: AsyncIterable[bytes]) -> Any:
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for one in whole:
            yield one.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")
