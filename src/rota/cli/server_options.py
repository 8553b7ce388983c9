"""Options of a server in the background, for every command that may start one."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.output import note, print_line, printable
from rota.cli.session import CommandError, Session, bad_usage

if TYPE_CHECKING:
    from rota.api.egress import Network
    from rota.server.background import NotReady, Started
    from rota.server.background_image import Container
    from rota.server.background_state import LastStart, Options, State

Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="PORT",
        min=0,
        max=65535,
        help="The port; 0 takes a free one. Without it, as the last time in this home, or 7443.",
    ),
]
EdgePort = Annotated[
    int | None,
    typer.Option(
        "--edge-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="The port for functions and webhooks; 0 takes a free one. Without it, as the last time, or 7480, or a "
        "free one with --port 0.",
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host", metavar="ADDRESS", help="Listen on this address; without it, as the last time, or 127.0.0.1."
    ),
]
AllowApi = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-api",
        metavar="URL",
        help="Let TaskSpawners poll this API beside https://api.github.com; repeatable. Without it, as the last time.",
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help="Encrypt Secrets in the database with the key in this file, which `rota key create FILE` makes. Without "
        "it, as the last time; a database that is encrypted is not opened without its key.",
    ),
]
AuditRequired = Annotated[
    bool | None,
    typer.Option(
        "--audit-required/--no-audit-required",
        help="Refuse requests that cannot be recorded in the audit trail. Without it, as the last time, or not.",
    ),
]
EdgeHost = Annotated[
    list[str] | None,
    typer.Option(
        "--edge-host",
        metavar="NAME",
        help="Accept calls of public functions under this name, too: that of a proxy or a tunnel, or of a site whose "
        "pages call them. Repeatable. Without it, as the last time.",
    ),
]
NetworkPolicy = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="none|egress|host",
        help="The default network of instances, and the most that users other than admins may ask for. "
        "Packages and workspaces are fetched with it. Without it, as the last time, or host.",
    ),
]
Egress = Annotated[
    list[str] | None,
    typer.Option(
        "--egress",
        metavar="HOST[:PORTS]",
        help="Let --network egress reach this: a name, *.NAME or a range of addresses, such as pypi.org:443. "
        "May be given several times. Without it, as the last time.",
    ),
]
NoCell = Annotated[
    bool | None,
    typer.Option(
        "--no-cell/--own-cell",
        help="Run no instances, as a hub for cells elsewhere. Without it, as the last time, or its own cell.",
    ),
]
CellName = Annotated[
    str,
    typer.Option(
        "--cell",
        metavar="NAME",
        help="Be this cell of a hub: it runs what is placed there. `rota cell join NAME` at the hub prints the whole "
        "command. Once joined, a home stays that cell.",
    ),
]
City = Annotated[str, typer.Option("--city", metavar="CODE", help="Name the city of --cell, such as dfw.")]
HubUrl = Annotated[str, typer.Option("--hub", metavar="URL", help="Give the URL of the hub of --cell.")]
HubAuthority = Annotated[
    str,
    typer.Option(
        "--hub-ca", metavar="FINGERPRINT", help="Give the fingerprint of the hub's certificate authority, with --cell."
    ),
]
HubToken = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Read the token of an invitation from this file, with --cell; - for standard input.",
    ),
]
Image = Annotated[
    str | None,
    typer.Option(
        "--image",
        metavar="REFERENCE",
        help="Run it from this container image, which must be on this host and is never pulled. Without it "
        "$ROTA_IMAGE, or ROTA_IMAGE in .env.local, or the image of the last time; else, or when it is empty, natively.",
    ),
]


def check_local(session: Session) -> None:
    """Raise CommandError unless the command is about the server of a home on this machine."""
    if session.settings.context or session.settings.kubeconfig:
        raise bad_usage("the server of a home is meant: --context and --kubeconfig mean another one")
    if sys.platform != "linux":
        raise CommandError("this works on Linux; here, `rota up` starts a server in the foreground")


async def container_of(session: Session, image: str | None, project: Path | None = None) -> Container | None:
    """Return the container for the server, after a check, or None to run it natively. `project` replaces this
    folder."""
    from rota.server.background_image import checked, chosen
    from rota.server.background_state import last_start
    from rota.server.home import Home

    home = session.settings.home_path
    last = last_start(Home(home))
    return await checked(chosen(image, os.environ, project or Path.cwd(), last.image if last else ""), home)


def options_from(
    last: LastStart | None,
    host: str | None,
    port: int | None,
    edge_port: int | None,
    allow_api: list[str] | None,
    network: str | None = None,
    egress: list[str] | None = None,
    *,
    key_file: Path | None = None,
    controllers: bool = True,
    audit_required: bool | None = None,
    edge_host: list[str] | None = None,
    no_cell: bool | None = None,
) -> Options:
    """Return the given options, else those of the last start, else the defaults."""
    from rota.control.spawners.apis import api_of
    from rota.server.addresses import DEFAULT_HOST, DEFAULT_PORT, NoSuchAddress, address_of
    from rota.server.background_state import Options

    for url in allow_api or ():
        try:
            api_of(url)
        except ValueError as error:
            raise bad_usage(f"--allow-api: {error}") from None
    for name in edge_host or ():
        if not re.fullmatch(r"[-A-Za-z0-9.]{1,253}", name):
            raise bad_usage(f"--edge-host: {name!r} is no name of a host; leave out the scheme and the port")
    if host is not None:
        if not host:
            raise bad_usage("--host is empty: name an address of this machine, such as 127.0.0.1, or leave it out")
        try:
            address_of(host)
        except NoSuchAddress as error:
            raise bad_usage(str(error.strerror)) from None
    was = last.options if last is not None else Options(DEFAULT_HOST, DEFAULT_PORT, None)
    reach, targets = _reach(was, network, egress)
    return Options(
        was.host if host is None else host,
        was.port if port is None else port,
        was.edge_port if edge_port is None else edge_port,
        was.allow_api if allow_api is None else tuple(allow_api),
        controllers,
        was.key_file if key_file is None else str(key_file.absolute()),
        was.audit_required if audit_required is None else audit_required,
        was.edge_host if edge_host is None else tuple(edge_host),
        reach,
        targets,
        was.no_cell if no_cell is None else no_cell,
    )


async def join_hub(session: Session, cell: str, city: str, hub: str, authority: str, token_file: Path | None) -> None:
    """Make the home a cell of a hub, if that is requested."""
    given = {"--city": city, "--hub": hub, "--hub-ca": authority, "--token-file": token_file}
    if not cell:
        if named := [name for name, value in given.items() if value]:
            raise bad_usage(f"{named[0]} is for a cell of a hub: say which, with --cell")
        return
    if missing := [name for name, value in given.items() if not value]:
        raise bad_usage(
            f"--cell {cell}: {missing[0]} is missing; `rota cell join {cell} --city CODE` at the hub prints the command"
        )
    from rota.server.membership import NotJoined, join

    token = read_token(token_file)
    home = session.settings.home_path
    try:
        await join(home, cell=cell, city=city.lower(), hub=hub, authority=authority, token=token)
    except NotJoined as error:
        raise CommandError(str(error)) from None
    print_line(f'this home is cell "{cell}" in {city.lower()}, of the hub at {hub}')


def read_token(file: Path | None) -> str:
    try:
        return (sys.stdin.read() if str(file) == "-" else Path(file or "").read_text()).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise bad_usage(f"--token-file: {error}") from None


def _reach(was: Options, network: str | None, egress: list[str] | None) -> tuple[Network, tuple[str, ...]]:
    """Return the network and its targets: as given, else as at the last start."""
    from rota.api.egress import NETWORKS, TARGETS_MAX, written

    if network is not None and network not in NETWORKS:
        raise bad_usage(f"--network {network}: there are {', '.join(NETWORKS)}")
    for one in egress or ():
        try:
            written(one)
        except ValueError as error:
            raise bad_usage(f"--egress: {error}") from None
    if len(egress or ()) > TARGETS_MAX:
        raise bad_usage(f"--egress: there are {len(egress or ())}, and {TARGETS_MAX} are the most")
    found = was.network if network is None else network
    if egress and found != "egress":
        raise bad_usage(f"--egress is for --network egress, and not for {found}: say --network egress, too")
    if found != "egress":
        return found, ()
    return found, was.egress if egress is None else tuple(egress)


def network_policy(options: Options) -> str:
    """Describe the default network, and the most that others than admins may have."""
    if options.network == "host":
        return "host, for all that does not say otherwise"
    most = "for all that does not say otherwise, and the most for all but admins"
    if options.network == "none":
        return f"none, {most}"
    return f"egress to {', '.join(options.egress) or 'nothing'}, {most}"


def way_of(state: State) -> str:
    return f"from the image {state.image}" if state.image else "natively"


def kubectl_chosen(kubeconfig: Path) -> str:
    """Return the shell command that makes kubectl use a kubeconfig."""
    return f"export KUBECONFIG={shlex.quote(str(kubeconfig))}"


def reach_of(host: str) -> str:
    """Describe the addresses on which a server can be reached over the network; empty if there are none."""
    from rota.server.addresses import ANY, from_elsewhere

    there = from_elsewhere(host)
    if host in ANY:
        where = f"on all addresses of this machine ({', '.join((host, *there))})"
    elif there:
        where = f"on {host}"
    else:
        return ""
    return f"{where}: whoever reaches them over the network reaches its API, functions and webhooks"


def print_where(started: Started, home: Path, last: LastStart | None) -> None:
    """Print the URLs of a server, and whether they have changed."""
    state = started.state
    if started.ended is not None and (count := len(started.ended.instances)):
        print_line(f"{count} instance{'s' if count != 1 else ''} could not be taken along: ended, to be begun anew")
    print_line("Rota is ready at ", (state.url, "bold"), f"; functions and webhooks at {state.edge}")
    print_line(f"it runs {way_of(state)} as process {started.pid}; for kubectl: {kubectl_chosen(home / 'kubeconfig')}")
    if reach := reach_of(state.options.host):
        note(f"it listens {reach}")
    if state.no_sandbox and not state.image:
        warn_of_no_sandbox(state.no_sandbox)
    if last is not None and last.url != state.url:
        note(f"it was at {last.url} before: the kubeconfig is up to date, copies of it are not")
    if last is not None and last.edge != state.edge:
        note(f"functions and webhooks were at {last.edge} before: tell whoever calls them")


def failure(error: NotReady, home: Path) -> CommandError:
    """Return the error for a server that did not start, with the end of its log."""
    from rota.server.background_log import log_of

    said = [f"  {printable(text.decode(errors='replace'))}" for text in error.end]
    end = "\n".join([f"the end of {log_of(home)}:", *said]) if said else f"see {log_of(home)}"
    return CommandError(f"{error}\n{end}")


NOT_ISOLATED = (
    "WARNING: nothing that runs here is isolated: {why_not}\n"
    "  What an admin starts runs as this user, on this host. What anybody else starts is refused.\n"
    "  Install the package bubblewrap and restart the server; `rota doctor` says what is missing."
)


def warn_of_no_sandbox(why_not: str) -> None:
    """Print that nothing can be isolated, what follows from that, and what to install."""
    for text in NOT_ISOLATED.format(why_not=why_not).splitlines():
        note(text)
