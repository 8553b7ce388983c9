"""`rota cell`."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from rota.api import Cell, ConfigMap, Location, Namespace, ObjectMeta, WorkloadDeployment
from rota.api.cell import CellSpec, LocationSpec
from rota.cli.command import command
from rota.cli.output import Columns, note, print_line
from rota.cli.session import CommandError, Session, bad_usage
from rota.cli.usage import Group
from rota.client import Client
from rota.control.cells.names import ADOPTED, CELL_FINALIZER, cell_namespace
from rota.registry import ApiError
from rota.registry.system import SYSTEM_NAMESPACE

app = typer.Typer(cls=Group, help="Join cells to a hub, and manage them.", rich_markup_mode=None)

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?")
CellName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the cell.")]


@app.callback(no_args_is_help=True)
def _group() -> None:
    """Join cells to a hub, and manage them."""


@command
async def join(
    session: Session,
    name: CellName,
    city: Annotated[
        str,
        typer.Option("--city", metavar="CODE", help="Name the city of the cell, such as dfw. Required for a new cell."),
    ] = "",
    url: Annotated[
        str,
        typer.Option(
            "--url",
            metavar="URL",
            help="Give the URL by which the site reaches this hub; without it, the server's own.",
        ),
    ] = "",
) -> None:
    """Print the command that joins the server of a site as this cell. Its token is valid once, for an hour.

    A cell that has joined before gets a new token, and its old one ends when it joins.
    """
    from rota.cli.gateway import backend_of, call

    if not NAME.fullmatch(name):
        raise bad_usage(f"{name!r} is no name of a cell: that has 1 to 53 letters a-z, digits and '-'")
    async with session.client() as client:
        found = await _find(client, name)
        code = city.lower() or (found.spec.city_code if found is not None else "")
        if not code:
            raise bad_usage(f'there is no cell "{name}" yet: say which city it is in, with --city')
        if found is not None and found.spec.city_code != code:
            raise CommandError(f'cell "{name}" is in {found.spec.city_code}: another city takes another name')
        await make(client, Location(metadata=ObjectMeta(name=code), spec=LocationSpec(city_code=code)))
        await make(client, Namespace(metadata=ObjectMeta(name=cell_namespace(name))))
        if found is None:
            await make(client, Cell(metadata=ObjectMeta(name=name), spec=CellSpec(city_code=code)))
        if "rotaVersion" in await backend_of(client).version():
            invited = await call(client, "POST", f"/v1/cells/{name}/invite")
            token, authority, where = invited["token"], invited["authority"], url or await _url(session, client)
        else:
            token, authority, where = await _invite_on_cluster(client, name, url)
    words = ["--cell", name, "--city", code, "--hub", where, "--hub-ca", authority, "--token-file", "-"]
    note(f'run this at the site, within an hour; --home chooses another home there. It joins as cell "{name}".')
    note("where the site is a cluster, write `rota operator` in place of `rota start`, with --context:")
    print_line(f"echo {token} | {shlex.join(['rota', 'start', *words])}")


async def _invite_on_cluster(client: Client, name: str, url: str) -> tuple[str, str, str]:
    """Invite a cell to a hub that is an operator on a cluster. Returns a token, a fingerprint and the hub's URL."""
    from rota.cli.gateway import backend_of
    from rota.engine.clock import RealClock
    from rota.server.accounts import Accounts
    from rota.server.cells import JOIN_SECONDS, fingerprint
    from rota.server.operator import PUBLISHED

    try:
        published = await client.get(ConfigMap, PUBLISHED, namespace=SYSTEM_NAMESPACE)
    except ApiError as error:
        if error.code != 404:
            raise
        raise CommandError(
            f"ConfigMap {SYSTEM_NAMESPACE}/{PUBLISHED} is not there: `rota operator --as-hub --gateway FOLDER` runs the"
            " hub of a cluster, and writes it"
        ) from None
    accounts = Accounts(backend_of(client), RealClock())
    await accounts.prepare(name)
    token = await accounts.invite(name, JOIN_SECONDS)
    return token, fingerprint(published.data["authority"].encode()), url or published.data["url"]


async def _url(session: Session, client: Client) -> str:
    """Return the URL of this server, as far as it knows it."""
    from rota.cli.gateway import backend_of
    from rota.server.addresses import LOOPBACK
    from rota.server.background_state import find
    from rota.server.home import Home

    target = backend_of(client).target
    if not target.endpoint.socket_path:
        return target.endpoint.url
    state = find(Home(session.settings.home_path)).state
    if state is None:
        raise CommandError("the address of this server is unknown: give it with --url")
    if urlsplit(state.url).hostname in LOOPBACK:
        note("this server listens on this machine only: a site elsewhere reaches it with `rota restart --host ADDRESS`")
    return state.url


@command
async def list_(session: Session) -> None:
    """List the cells: their cities, their states, and how much they run."""
    async with session.client() as client:
        found = (await client.list(Cell)).items
    table = Columns(("CELL", "CITY", "STATE", "WEIGHT", "INSTANCES", "VERSION", "WHY"))
    table.write([_row(one) for one in sorted(found, key=lambda one: (one.spec.city_code, one.metadata.name))])


def state_of(cell: Cell) -> str:
    """Return the state of a cell in a word or two."""
    ready = cell.status.condition("Ready") if cell.status is not None else None
    state = {"True": "Ready", "Unknown": "Lost"}.get(ready.status, "Away") if ready is not None else "Unknown"
    marks = ["draining"] if cell.spec.drain else ["cordoned"] if cell.spec.cordoned else []
    return ", ".join([state, *marks])


def _row(cell: Cell) -> tuple[object, ...]:
    ready = cell.status.condition("Ready") if cell.status is not None else None
    status: Any = cell.status
    return (
        cell.metadata.name,
        cell.spec.city_code,
        state_of(cell),
        cell.spec.weight,
        status.instances if status is not None else 0,
        (status.version if status is not None else None) or "",
        "" if ready is None or ready.status == "True" else ready.message,
    )


@command
async def cordon(session: Session, name: CellName) -> None:
    """Place nothing new in a cell. What runs there goes on."""
    await _mark(session, name, {"cordoned": True}, "cordoned: nothing new is placed there")


@command
async def uncordon(session: Session, name: CellName) -> None:
    """Place workloads in a cell again, after `cordon` or `drain`."""
    await _mark(session, name, {"cordoned": False, "drain": False}, "open: workloads are placed there again")


@command
async def drain(session: Session, name: CellName) -> None:
    """Move what runs in a cell to other cells of its city, as far as these have room.

    Each instance is ready in its new cell before the old one ends.
    """
    await _mark(
        session,
        name,
        {"drain": True},
        f"draining: `rota cell list` shows what is left, `rota cell uncordon {name}` ends it",
    )


async def _mark(session: Session, name: str, spec: dict[str, bool], then: str) -> None:
    async with session.client() as client:
        await client.patch(Cell, name, {"spec": spec})
    print_line(f"cell.rota.dev/{name} {then}")


@command
async def remove(
    session: Session,
    name: CellName,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost",
            help="Give up a cell that is gone for good, without waiting for its last report.",
        ),
    ] = False,
) -> None:
    """Remove a cell that has no placements left; with --lost, one that will never report again.

    With --lost, its placements move to other cells. If the cell is only cut off, it goes on running its instances: make
    sure that it does not.
    """
    async with session.client() as client:
        await client.patch(Cell, name, {"spec": {"cordoned": True}})
        bound = (await client.list(WorkloadDeployment, namespace=cell_namespace(name))).items
        if bound and not lost:
            raise CommandError(
                f'{len(bound)} deployment{"s" if len(bound) != 1 else ""} are in cell "{name}", which is cordoned now:'
                f" `rota cell drain {name}` moves them, and `rota cell remove {name} --lost` gives them up"
            )
        await _end_tokens(client, name)
        await client.delete(Cell, name)
        for one in bound:
            await _let_go(client, one)
        await _delete(client, Namespace, cell_namespace(name))
    print_line(f"cell.rota.dev/{name} removed")


async def _end_tokens(client: Client, name: str) -> None:
    """Revoke the tokens of a cell, so that its reports are refused."""
    from rota.cli.gateway import backend_of, call
    from rota.engine.clock import RealClock

    if "rotaVersion" not in await backend_of(client).version():
        from rota.server.accounts import Accounts

        await Accounts(backend_of(client), RealClock()).remove(name)
        return
    for token in (await call(client, "GET", "/v1/tokens"))["tokens"]:
        if (token["scope"], token.get("namespace")) == ("cell", cell_namespace(name)):
            await call(client, "DELETE", f"/v1/tokens/{token['id']}")


async def _let_go(client: Client, bound: WorkloadDeployment) -> None:
    """Delete a deployment without waiting for its cell to confirm the end."""
    meta = bound.metadata
    finalizers = [one for one in meta.finalizers if one != CELL_FINALIZER]
    try:
        await client.patch(
            WorkloadDeployment, meta.name, {"metadata": {"finalizers": finalizers}}, namespace=meta.namespace
        )
    except ApiError as error:
        if error.code != 404:
            raise
    await _delete(client, WorkloadDeployment, meta.name, namespace=meta.namespace)


@command
async def adopt(session: Session, name: CellName) -> None:
    """Make a cell take the hub's state after the hub was restored from a backup, even if it is older than the cell's.

    Until then, the cell keeps its newer state (condition `HubIsOlder`). Deployments that the hub does not know at all
    stay: `status.orphans` of the Cell lists them.
    """
    async with session.client() as client:
        await client.get(Cell, name)
        now = datetime.now(UTC).isoformat()
        bound = (await client.list(WorkloadDeployment, namespace=cell_namespace(name))).items
        for one in bound:
            meta, body = one.metadata, {"metadata": {"annotations": {ADOPTED: now}}}
            await client.patch(WorkloadDeployment, meta.name, body, namespace=meta.namespace)
    print_line(
        f"cell.rota.dev/{name} takes {len(bound)} deployment{'s' if len(bound) != 1 else ''} as the hub knows them"
    )


@command
async def accept_hub(session: Session, name: CellName) -> None:
    """Make this cell belong to the hub that answers now, in place of the one that answered before."""
    async with session.client() as client:
        await client.patch(Cell, name, {"status": {"hubID": None}}, subresource="status")
    print_line(f"cell.rota.dev/{name} takes what the hub binds to it, when it answers next")


@command
async def drop(
    session: Session,
    deployment: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE/NAME", help="The deployment, as the hub lists it in the orphans of the cell."
        ),
    ],
) -> None:
    """End a deployment in this cell that its hub does not know any more. A deployment that the hub knows comes back."""
    namespace, _, name = deployment.partition("/")
    if not namespace or not name:
        raise bad_usage(f"{deployment!r} is no NAMESPACE/NAME")
    async with session.client() as client:
        await client.delete(WorkloadDeployment, name, namespace=namespace, propagation="Foreground")
    print_line(f"workloaddeployment.rota.dev/{name} and its instances are ended")


async def _find(client: Client, name: str) -> Cell | None:
    try:
        return await client.get(Cell, name)
    except ApiError as error:
        if error.code != 404:
            raise
        return None


async def make(client: Client, obj: Any) -> None:
    """Create an object unless one of that name exists."""
    try:
        await client.create(obj)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


async def _delete(client: Client, kind: Any, name: str, namespace: str | None = None) -> None:
    try:
        await client.delete(kind, name, namespace=namespace)
    except ApiError as error:
        if error.code != 404:
            raise


app.command("join")(join)
app.command("list")(list_)
app.command("cordon")(cordon)
app.command("uncordon")(uncordon)
app.command("drain")(drain)
app.command("remove")(remove)
app.command("adopt")(adopt)
app.command("drop")(drop)
app.command("accept-hub")(accept_hub)
