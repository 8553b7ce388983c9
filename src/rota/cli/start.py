"""`rota start`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.cli.command import command
from rota.cli.output import note, print_line
from rota.cli.server_options import (
    AllowApi,
    AuditRequired,
    CellName,
    City,
    EdgeHost,
    EdgePort,
    Egress,
    Host,
    HubAuthority,
    HubToken,
    HubUrl,
    Image,
    KeyFile,
    NetworkPolicy,
    NoCell,
    Port,
    check_local,
    container_of,
    failure,
    join_hub,
    options_from,
    print_where,
    way_of,
)
from rota.cli.session import Session

if TYPE_CHECKING:
    from rota.server.background import Started
    from rota.server.background_image import Container
    from rota.server.background_state import Options, State


@command
async def start(
    session: Session,
    host: Host = None,
    port: Port = None,
    edge_port: EdgePort = None,
    allow_api: AllowApi = None,
    key_file: KeyFile = None,
    audit_required: AuditRequired = None,
    edge_host: EdgeHost = None,
    network: NetworkPolicy = None,
    egress: Egress = None,
    no_cell: NoCell = None,
    cell: CellName = "",
    city: City = "",
    hub: HubUrl = "",
    hub_ca: HubAuthority = "",
    token_file: HubToken = None,
    image: Image = None,
) -> None:
    """Start a server in the background, one per home. Returns when the server is ready."""
    check_local(session)
    from rota.server.background import NotReady
    from rota.server.background import start as start_server
    from rota.server.background_state import last_start
    from rota.server.home import Home

    home = session.settings.home_path
    last = last_start(Home(home))
    options = options_from(
        last,
        host,
        port,
        edge_port,
        allow_api,
        network,
        egress,
        key_file=key_file,
        audit_required=audit_required,
        edge_host=edge_host,
        no_cell=no_cell,
    )
    container = await container_of(session, image)
    await join_hub(session, cell, city, hub, hub_ca, token_file)
    try:
        started = await start_server(Home(home), options, container)
    except NotReady as error:
        raise failure(error, home) from None
    if started.is_new:
        print_where(started, home, last)
    else:
        _print_running(started, container, options)


def _print_running(started: Started, container: Container | None, wanted: Options) -> None:
    state = started.state
    print_line(f"it is running already, {way_of(state)}, at ", (state.url, "bold"), f" (process {started.pid})")
    image = container.image if container is not None else ""
    if image != state.image:
        meant = f"from the image {image}" if image else "natively"
        note(f"what was asked for is to run it {meant}: `rota restart` with the same options does that")
    elif wanted not in (state.options, _as_it_is(state)):
        note("it runs with other options than these: `rota restart` with the same options changes that")


def _as_it_is(state: State) -> Options:
    """Return the options of a server with the ports that it chose."""
    import msgspec

    from rota.server.background_state import port_of

    return msgspec.structs.replace(state.options, port=port_of(state.url), edge_port=port_of(state.edge))
