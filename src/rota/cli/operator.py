"""`rota operator`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from rota.cli.command import command
from rota.cli.output import print_line
from rota.cli.server_options import City, HubAuthority, HubToken, HubUrl, read_token
from rota.cli.session import CommandError, Session, bad_usage
from rota.client import Client

if TYPE_CHECKING:
    from rota.server.operator import HubAddress, OperatorRole, Pods

PORT_MAX = 65535


class OperatorCommand(TyperCommand):
    """Accepts `--hub` without a URL as `--as-hub`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for at, word in enumerate(args):
            if word == "--hub" and (at + 1 == len(args) or args[at + 1].startswith("-")):
                args[at] = AS_HUB
        return super().parse_args(ctx, args)


COMMAND_CLASS = OperatorCommand
AS_HUB = "--as-hub"

OperatedCell = Annotated[
    str,
    typer.Option(
        "--cell",
        metavar="NAME",
        help="Be this cell of a hub: it takes what is placed there. `rota cell join NAME` at the hub prints the whole "
        "command. Once joined, --cell is enough.",
    ),
]


@command
async def operator(
    session: Session,
    lease_namespace: Annotated[
        str | None,
        typer.Option(
            "--lease-namespace",
            metavar="NAME",
            help="Put the lease of the leading operator here. Without it, rota-system on a Rota, and default on "
            "a cluster.",
        ),
    ] = None,
    gateway: Annotated[
        Path | None,
        typer.Option(
            "--gateway",
            metavar="FOLDER",
            help="Serve on a socket in this folder, for `rota why --home FOLDER`. Its audit trail is there, and the "
            "certificates of a hub.",
        ),
    ] = None,
    as_hub: Annotated[
        bool,
        typer.Option(
            AS_HUB,
            help="Place workloads in cells elsewhere, which join and report at --listen, and run none here. --hub "
            "without a URL is the same.",
        ),
    ] = False,
    listen: Annotated[
        str,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="Listen here for cells, with --as-hub. Without it, on 127.0.0.1:7443."
        ),
    ] = "",
    url: Annotated[
        str,
        typer.Option(
            "--url",
            metavar="URL",
            help="Give the URL by which cells reach --listen, for example that of a load balancer. Without it, "
            "the address of --listen.",
        ),
    ] = "",
    cell: OperatedCell = "",
    city: City = "",
    hub: HubUrl = "",
    hub_ca: HubAuthority = "",
    token_file: HubToken = None,
    pods: Annotated[
        bool,
        typer.Option(
            "--pods",
            help="Make instances real as Pods of the cluster: pools of templates and workloads, whose containers have "
            "images. Workers, tasks and functions do not run in Pods yet.",
        ),
    ] = False,
    runtime_class: Annotated[
        str,
        typer.Option(
            "--runtime-class",
            metavar="NAME",
            help="With --pods: the RuntimeClass for isolation sandbox. Without it such instances are not made.",
        ),
    ] = "",
    network: Annotated[
        str,
        typer.Option(
            "--network",
            metavar="host|none",
            help="With --pods: the default network of instances. Without it, host: the cluster's.",
        ),
    ] = "",
) -> None:
    """Run the controllers here, for a server elsewhere: a Rota, or a cluster that has Rota's kinds.

    Several may run: one leads, and when it ends another takes over within seconds. With --as-hub the operator is a hub
    for cells elsewhere. With --cell the cluster joins a hub as a cell, and stays one.
    """
    from rota.server.operator import operate

    if as_hub and cell:
        raise bad_usage("--as-hub and --cell exclude each other: a cluster is a hub, or a cell of one")
    if not as_hub and (listen or url):
        raise bad_usage(f"{'--listen' if listen else '--url'} is for a hub: say --as-hub, too")
    if as_hub and gateway is None:
        raise bad_usage("--as-hub: say --gateway FOLDER, too: the hub keeps its certificates there")
    async with session.client() as client:
        made = _pods(pods, runtime_class, network)
        role = await _role(client, _endpoint(listen, url) if as_hub else None, cell, city, hub, hub_ca, token_file)
        await operate(client, lease_namespace=lease_namespace, gateway=gateway, say=print_line, role=role, pods=made)


def _pods(is_asked: bool, runtime_class: str, network: str) -> Pods | None:
    from rota.server.operator import Pods

    if not is_asked:
        if runtime_class or network:
            raise bad_usage(f"{'--runtime-class' if runtime_class else '--network'} is for Pods: say --pods, too")
        return None
    if runtime_class and not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", runtime_class):
        raise bad_usage(f"--runtime-class {runtime_class}: it takes the name of a RuntimeClass")
    if network not in ("", "host", "none"):
        raise bad_usage(f"--network {network}: it takes host or none; a Pod has no proxy for egress")
    return Pods(runtime_class, "none" if network == "none" else "host")


def _endpoint(listen: str, url: str) -> HubAddress:
    from rota.server.addresses import DEFAULT_HOST, DEFAULT_PORT
    from rota.server.operator import HubAddress

    found = re.fullmatch(r"(?:\[([^][]+)\]|([^][:]+)):([0-9]{1,5})", listen or f"{DEFAULT_HOST}:{DEFAULT_PORT}")
    if found is None or int(found[3]) > PORT_MAX:
        takes = "an address of this machine and a port, such as 0.0.0.0:7443 or [::]:7443"
        raise bad_usage(f"--listen {listen}: it takes {takes}")
    if url and not re.fullmatch(r"https://[^/@?#\s]+", url):
        raise bad_usage(f"--url {url}: it takes the form https://HOST:PORT")
    return HubAddress(found[1] or found[2], int(found[3]), url)


async def _role(
    client: Client,
    endpoint: HubAddress | None,
    cell: str,
    city: str,
    hub: str,
    authority: str,
    token_file: Path | None,
) -> OperatorRole:
    """Return the role of the operator. A cell that has not joined yet joins."""
    from rota.server import operator as parts
    from rota.server.cluster_membership import ClusterMember
    from rota.server.membership import NotJoined

    if endpoint is not None:
        return parts.hub(endpoint)
    given = {"--city": city, "--hub": hub, "--hub-ca": authority, "--token-file": token_file}
    named = [name for name, value in given.items() if value]
    if not cell:
        if named:
            raise bad_usage(f"{named[0]} is for a cell of a hub: say which, with --cell")
        return parts.ALONE
    member = ClusterMember(client)
    try:
        kept = await member.read() if not named else None
        membership = kept.membership if kept is not None else None
        if membership is not None and membership.cell != cell:
            raise CommandError(f'this cluster is cell "{membership.cell}", and not "{cell}"')
        if membership is None:
            missing = next((name for name, value in given.items() if not value), None)
            if missing is not None:
                raise bad_usage(
                    f"--cell {cell}: {missing} is missing, and this cluster has not joined a hub;"
                    f" `rota cell join {cell} --city CODE` at the hub prints the command"
                )
            token = read_token(token_file)
            membership = await member.join(cell=cell, city=city.lower(), hub=hub, authority=authority, token=token)
            print_line(f'this cluster is cell "{cell}" in {membership.city}, of the hub at {hub}')
    except NotJoined as error:
        raise CommandError(str(error)) from None
    return parts.cell(membership, member)
