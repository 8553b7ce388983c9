"""`rota fleet`: a hub and its cells on this machine, each a server of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rota.api import Cell, Location, Namespace, ObjectMeta
from rota.api.cell import CellSpec, LocationSpec
from rota.cli.cell import make, state_of
from rota.cli.command import command
from rota.cli.output import Columns, note, print_line
from rota.cli.server_options import check_local, failure
from rota.cli.session import CommandError, Session, Settings, bad_usage, connect_to_server
from rota.cli.usage import Group
from rota.control.cells.names import cell_namespace

if TYPE_CHECKING:
    from rota.client import Client
    from rota.server.background_state import Options

app = typer.Typer(cls=Group, help="Run a hub and cells in several cities on this machine.", rich_markup_mode=None)

CITY = re.compile(r"([a-z0-9]{2,10})(?::([1-9][0-9]?))?")
CELLS_MAX = 64
"""Each is a process with its own store."""
STARTS_AT_ONCE = 4
CELLS = "cells"
"""The folder of their homes, in the home of the hub."""

CellName = Annotated[str, typer.Argument(metavar="CELL", help="The name of the cell, such as dfw-1.")]


@app.callback(no_args_is_help=True)
def _group() -> None:
    """Run a hub and cells in several cities on this machine."""


class Wanted(NamedTuple):
    """A cell of a fleet."""

    name: str
    city: str


def parsed(cities: str) -> list[Wanted]:
    """Return the cells that `dfw,lhr,sin:2` asks for."""
    found: dict[str, Wanted] = {}
    for part in filter(None, (one.strip().lower() for one in cities.split(","))):
        match = CITY.fullmatch(part)
        if match is None:
            raise bad_usage(f"--cities: {part!r} is no city: say its code, as dfw, or dfw:2 for two cells there")
        for number in range(1, int(match[2] or 1) + 1):
            found[f"{match[1]}-{number}"] = Wanted(f"{match[1]}-{number}", match[1])
    if len(found) > CELLS_MAX:
        raise bad_usage(f"--cities: these are {len(found)} cells, and {CELLS_MAX} are the most on one machine")
    return [*found.values()]


@command
async def up(
    session: Session,
    cities: Annotated[
        str,
        typer.Option(
            "--cities",
            metavar="CODE[:CELLS],…",
            help="Name the cities, with the number of cells: dfw,lhr,sin:2. Without it, the cells of the last time.",
        ),
    ] = "",
) -> None:
    """Start a hub in this home, and cells that join it. Running ones are left as they are."""
    check_local(session)
    hub = session.settings.home_path
    known = _stored_cells(hub)
    wanted = [*known, *(one for one in parsed(cities) if one not in known)]
    if not wanted:
        raise bad_usage("which cells? Say --cities dfw,lhr,sin:2")
    url = await _start(hub, _options(hub))
    print_line("the hub is at ", (url, "bold"))
    async with _client(hub) as client:
        for one in wanted:
            if not _is_member(hub, one):
                await _join(client, hub, one, url)
    room = asyncio.Semaphore(STARTS_AT_ONCE)

    async def begin(one: Wanted) -> None:
        async with room:
            await _start(_home(hub, one.name), _options(_home(hub, one.name), any_port=True))
            print_line(f"cell {one.name} runs in {one.city}")

    await asyncio.gather(*map(begin, wanted))
    note(f"`rota --home {hub} fleet status` shows them, and `rota --home {hub} map` what runs where")


@command
async def status(session: Session) -> None:
    """Show the servers of a fleet: whether each runs, and the state of each cell at its hub."""
    check_local(session)
    hub = session.settings.home_path
    cells: dict[str, Cell] = {}
    if _pid(hub) is not None:
        async with _client(hub) as client:
            cells = {one.metadata.name: one for one in (await client.list(Cell)).items}
    table = Columns(("SERVER", "CITY", "PROCESS", "STATE", "INSTANCES", "LINK"))
    rows: list[tuple[object, ...]] = [("hub", "", _pid(hub) or "down", "", "", "")]
    for one in _stored_cells(hub):
        home = _home(hub, one.name)
        cell = cells.get(one.name)
        state, instances = (state_of(cell), cell.status.instances if cell.status else 0) if cell else ("", "")
        rows.append((one.name, one.city, _pid(home) or "down", state, instances, await _link(home, one.name)))
    table.write(rows)


@command
async def cut(session: Session, name: CellName) -> None:
    """Cut a cell off from its hub: open connections between them end, no new ones begin, and both go on."""
    await _act(session, name, "cut")
    print_line(f"cell {name} is cut off: `rota fleet heal {name}` ends that")


@command
async def heal(session: Session, name: CellName) -> None:
    """Heal a cut, and start the cell again if it was killed."""
    check_local(session)
    hub = session.settings.home_path
    home = _checked(hub, name)
    if _pid(home) is None:
        await _start(home, _options(home, any_port=True))
        print_line(f"cell {name} runs again")
        return
    await _act(session, name, "heal")
    print_line(f"cell {name} is no longer cut off")


@command
async def kill(
    session: Session,
    name: CellName,
    keeper: Annotated[
        bool, typer.Option("--keeper", help="Kill the keeper and the instances, too, like a power cut.")
    ] = False,
) -> None:
    """Kill the server of a cell, at once. What it runs goes on, unless --keeper is given."""
    check_local(session)
    home = _checked(session.settings.home_path, name)
    pid = _pid(home)
    if pid is None:
        raise CommandError(f"cell {name} does not run: `rota fleet heal {name}` starts it")
    if keeper:
        _kill_keeper(home)
    os.kill(pid, signal.SIGKILL)
    print_line(f"killed cell {name} (process {pid}): `rota fleet heal {name}` starts it again")


@command
async def down(session: Session) -> None:
    """End a fleet: all cells, everything that they run, and the hub. What they know stays, for the next `up`."""
    check_local(session)
    from rota.server.home import Home
    from rota.server.stopping import stop

    hub = session.settings.home_path
    for one in _stored_cells(hub):
        await stop(Home(_home(hub, one.name)))
        print_line(f"cell {one.name} is down")
    await stop(Home(hub))
    print_line("the hub is down")


# Where things are.


def _home(hub: Path, name: str) -> Path:
    return hub / CELLS / name


def _stored_cells(hub: Path) -> list[Wanted]:
    """Return the cells that have a home here."""
    from rota.server.membership import Member

    folder = hub / CELLS
    homes = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [(home, Member(home).read()) for home in homes]
    return [Wanted(home.name, member.city) for home, member in found if member is not None]


def _is_member(hub: Path, one: Wanted) -> bool:
    return one in _stored_cells(hub)


def _checked(hub: Path, name: str) -> Path:
    if name not in {one.name for one in _stored_cells(hub)}:
        names = ", ".join(one.name for one in _stored_cells(hub)) or "none"
        raise CommandError(f'there is no cell "{name}" in this fleet; there are {names}')
    return _home(hub, name)


def _pid(home: Path) -> int | None:
    from rota.server.background_state import find
    from rota.server.home import Home

    return find(Home(home)).pid


def _kill_keeper(home: Path) -> None:
    """Kill the keeper of a home."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"rota.runtime.keeper" in words and os.fsencode(home) in words:
            os.kill(int(entry), signal.SIGKILL)


# Acts on cells.


def _client(home: Path) -> Any:
    return connect_to_server(Settings(home=str(home)))


def _options(home: Path, *, any_port: bool = False) -> Options:
    from rota.cli.server_options import options_from
    from rota.server.background_state import last_start
    from rota.server.home import Home

    last = last_start(Home(home))
    port = 0 if any_port and last is None else None
    return options_from(last, None, port, port, None)


async def _start(home: Path, options: Options) -> str:
    from rota.server.background import NotReady
    from rota.server.background import start as start_server
    from rota.server.home import Home

    try:
        return (await start_server(Home(home), options, None)).state.url
    except NotReady as error:
        raise failure(error, home) from None


async def _join(client: Client, hub: Path, one: Wanted, url: str) -> None:
    from rota.cli.gateway import call
    from rota.server.membership import NotJoined, join

    await make(client, Location(metadata=ObjectMeta(name=one.city), spec=LocationSpec(city_code=one.city)))
    await make(client, Namespace(metadata=ObjectMeta(name=cell_namespace(one.name))))
    await make(client, Cell(metadata=ObjectMeta(name=one.name), spec=CellSpec(city_code=one.city)))
    invited = await call(client, "POST", f"/v1/cells/{one.name}/invite")
    try:
        await join(
            _home(hub, one.name),
            cell=one.name,
            city=one.city,
            hub=url,
            authority=invited["authority"],
            token=invited["token"],
        )
    except NotJoined as error:
        raise CommandError(str(error)) from None


async def _act(session: Session, name: str, act: str) -> None:
    from rota.cli.gateway import call

    check_local(session)
    home = _checked(session.settings.home_path, name)
    if _pid(home) is None:
        raise CommandError(f"cell {name} does not run: `rota fleet heal {name}` starts it")
    async with _client(home) as client:
        await call(client, "POST", f"/v1/link/{act}")


async def _link(home: Path, name: str) -> str:
    """Return the state of a cell's link to its hub."""
    if _pid(home) is None:
        return ""
    async with _client(home) as client:
        cells = {one.metadata.name: one for one in (await client.list(Cell)).items}
    status = cells[name].status if name in cells else None
    linked = status.condition("Linked") if status is not None else None
    if linked is None:
        return ""
    return "ok" if linked.status == "True" else linked.message


app.command("up")(up)
app.command("status")(status)
app.command("cut")(cut)
app.command("heal")(heal)
app.command("kill")(kill)
app.command("down")(down)
