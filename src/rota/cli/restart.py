"""`rota restart`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.cli.command import command
from rota.cli.output import print_line
from rota.cli.server_options import (
    AllowApi,
    AuditRequired,
    EdgeHost,
    EdgePort,
    Egress,
    Host,
    Image,
    KeyFile,
    NetworkPolicy,
    NoCell,
    Port,
    check_local,
    container_of,
    failure,
    options_from,
    print_where,
    way_of,
)
from rota.cli.session import Session

if TYPE_CHECKING:
    from rota.server.background import Restarted


@command
async def restart(
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
    image: Image = None,
) -> None:
    """Replace the running server by a new one, with the same options unless others are given.

    Instances go on meanwhile, and the new server adopts them. Into a container, out of one, or from one to another
    nothing can be adopted: instances are ended in good order, and started again by the new server.
    """
    check_local(session)
    from rota.server.background import NotReady
    from rota.server.background import restart as restart_server
    from rota.server.background_state import find, last_start
    from rota.server.home import Home

    home = session.settings.home_path
    last, running = last_start(Home(home)), find(Home(home)).state
    controllers = running.options.controllers if running is not None else True
    options = options_from(
        last,
        host,
        port,
        edge_port,
        allow_api,
        network,
        egress,
        key_file=key_file,
        controllers=controllers,
        audit_required=audit_required,
        edge_host=edge_host,
        no_cell=no_cell,
    )
    container = await container_of(session, image)
    try:
        done = await restart_server(Home(home), options, container)
    except NotReady as error:
        raise failure(error, home) from None
    _print_before(done)
    print_where(done.started, home, last)


def _print_before(done: Restarted) -> None:
    before = done.before
    if before is None:
        print_line("there was no server to replace")
    elif before.image != done.started.state.image:
        print_line(f"the server before ran {way_of(before)}")
    if done.killed:
        print_line("the server before did not end by itself and was killed")
