"""`rota logs`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Annotated, Any
from urllib.parse import quote
from zlib import crc32

import typer

from rota.api import Function, Instance, Task
from rota.cli.command import command
from rota.cli.instances import OWNERS, instances_of
from rota.cli.log_following import is_of_cell, log_pieces
from rota.cli.naming import Target, targets
from rota.cli.options import Targets
from rota.cli.output import Part, note, print_line, printable
from rota.cli.patience import AWAY_SECONDS_MAX, Patience
from rota.cli.server_options import check_local
from rota.cli.session import FAILED, CommandError, Session, bad_usage
from rota.cli.task_output import Lines
from rota.client import Client
from rota.registry import ApiError

COLOURS = ("cyan", "magenta", "blue", "green", "yellow")
LOGS_MAX = 100
"""Logs that are read at once."""
TAIL_LINES = 100


@command
async def logs(
    session: Session,
    which: Targets = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on with what is written from now on; of a task, until it is over."),
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail",
            metavar="LINES",
            min=0,
            help=f"Show this number of last lines; without it, all of a task, and {TAIL_LINES} of anything else.",
        ),
    ] = None,
    container: Annotated[
        str,
        typer.Option(
            "--container", "-c", metavar="NAME", help="Choose a container of an instance; without it, the first."
        ),
    ] = "",
    server: Annotated[
        bool, typer.Option("--server", help="Show the log of the home's own server, whether it runs or not.")
    ] = False,
) -> int:
    """Show the output of tasks, of instances, of all instances of a pool or a workload, or of all calls of a function.

    The output of a task is kept as long as the task, even if its worker is gone. A call of a function is a task, too:
    task/CALL is one call, fn/NAME all of them in the order in which they began, each line with its call and its worker.
    Output of a worker while it loads the code, and of pip while it installs packages, belongs to no call, and has - in
    its place.
    """
    if server:
        if which or container:
            raise bad_usage("--server is the log of the server alone: leave the names out")
        await show_server_log(session, TAIL_LINES if tail is None else tail, follow=follow)
        return 0
    wanted = targets(which) if which else []
    with_logs = (Task.api, Instance.api, Function.api, *OWNERS)
    if not wanted or any(not one.name or one.kind not in with_logs for one in wanted):
        raise bad_usage(
            "name a task, an instance, a pool or a function, such as task/build, wp/boxes or fn/hello,"
            " or a workload, such as wl/web"
        )
    async with session.client() as client:
        sources: dict[Target, None] = {}
        for target in wanted:
            found = await _of_owner(client, target) if target.kind in OWNERS else [target]
            sources.update(dict.fromkeys(found))
        if not sources:
            note("there are no instances yet")
        if len(sources) > LOGS_MAX:
            raise CommandError(f"these are {len(sources)} logs; name {LOGS_MAX} at most")
        # Shared, so that one message says that the server is away.
        away = Patience(seconds_max=AWAY_SECONDS_MAX)
        away_cells: set[str] = set()
        width = max((len(source.name) for source in sources), default=0)
        try:
            async with asyncio.TaskGroup() as group:
                for i, source in enumerate(sources):
                    pieces = _pieces(client, source, container, tail, away, follow=follow)
                    colour = COLOURS[i % len(COLOURS)]
                    prefix = (f"{source.name:<{width}}  ", colour) if len(sources) > 1 else None
                    if source.kind is Function.api:
                        group.create_task(_show_calls(pieces))
                        continue
                    shown = _show(pieces, None) if prefix is None else _show_one(pieces, prefix, away_cells)
                    group.create_task(shown)
        except BaseExceptionGroup as several:
            # One error is enough. That of a reader who left prints nothing.
            raise several.exceptions[0] from None
        return FAILED if away_cells else 0


async def _of_owner(client: Client, target: Target) -> list[Target]:
    """Return the instances of a pool or a workload."""
    return [Target(Instance.api, one["metadata"]["name"]) for one in await instances_of(client, target)]


def _pieces(
    client: Client, source: Target, container: str, tail: int | None, patience: Patience, *, follow: bool
) -> AsyncGenerator[bytes, None]:
    place = f"{quote(client.namespace, safe='')}/{quote(source.name, safe='')}"
    asked: dict[str, Any] = {"follow": "true"} if follow else {}
    if source.kind is Instance.api:
        asked |= {"tail": TAIL_LINES if tail is None else tail, "container": container}
        return log_pieces(client, f"/v1/logs/{place}", asked, patience)
    if source.kind is Function.api:
        asked |= {"tail": TAIL_LINES if tail is None else tail}
        return log_pieces(client, f"/v1/functions/{place}/logs", asked, patience)
    asked |= {"tail": tail} if tail is not None else {}
    return log_pieces(client, f"/v1/tasks/{place}/logs", asked, patience)


async def _show(pieces: AsyncGenerator[bytes, None], prefix: Part | None) -> None:
    lines = Lines()
    before = (prefix,) if prefix else ()
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            for text in lines.split(piece):
                print_line(*before, text)
    for text in lines.end():
        print_line(*before, text)


async def _show_one(pieces: AsyncGenerator[bytes, None], prefix: Part, away: set[str]) -> None:
    """Print one log of several. If its cell is out of reach, one message says so, and the others go on."""
    try:
        await _show(pieces, prefix)
    except ApiError as error:
        if not is_of_cell(error):
            raise
        cell = str((error.details or {}).get("name"))
        if cell not in away:
            note(error.message)
        away.add(cell)


async def _show_calls(pieces: AsyncGenerator[bytes, None]) -> None:
    """Print the calls of a function, each line with its call and its worker."""
    lines = Lines()
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            for text in lines.split(piece):
                call, worker, said = (*text.split(" ", 2), "", "")[:3]
                print_line((f"{call} {worker}  ", COLOURS[crc32(call.encode()) % len(COLOURS)]), said)


async def show_server_log(session: Session, tail: int, *, follow: bool) -> None:
    """Print the last lines, and with `follow` new ones."""
    from rota.server.background_log import FOLLOW_SECONDS, aside_of, end_of, following, log_of

    check_local(session)
    log = log_of(session.settings.home_path)
    # Begun before the end is read: what is written in between is then shown twice rather than never.
    pieces = following(log) if follow else None
    first = next(pieces) if pieces is not None else b""
    last = end_of(log, tail)
    if len(last) < tail:
        last = [*end_of(aside_of(log), tail - len(last)), *last]
    if not last and not log.exists():
        note(f"there is no log in {log.parent}: `rota start` begins one")
    for one in last:
        print_line(printable(one.decode(errors="replace"), keep="\t"))
    if pieces is None:
        return
    lines = Lines()
    for text in lines.split(first):
        print_line(text)
    for piece in pieces:
        for text in lines.split(piece):
            print_line(text)
        if not piece:
            await asyncio.sleep(FOLLOW_SECONDS)
