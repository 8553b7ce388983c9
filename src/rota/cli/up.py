"""`rota up`."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rota import __version__
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
    KeyFile,
    NetworkPolicy,
    NoCell,
    Port,
    join_hub,
    kubectl_chosen,
    options_from,
    reach_of,
    warn_of_no_sandbox,
)
from rota.cli.session import CommandError, Session, bad_usage


@command
def up(
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
    controllers: Annotated[
        bool, typer.Option("--controllers/--no-controllers", help="Run controllers in this process.")
    ] = True,
    log_file: Annotated[
        str,
        typer.Option(
            "--log-file",
            metavar="FILE",
            help="Write to this file and not to the terminal. From 4 MiB on it is renamed to FILE.1.",
        ),
    ] = "",
) -> None:
    """Start a server here, in the foreground. Ctrl-C stops it. `rota start` starts one in the background."""
    from rota.server.background_state import State, announce, find, last_start, own_state, port_of, withdraw
    from rota.server.home import Home
    from rota.server.main import Ready, serve

    if session.settings.context or session.settings.kubeconfig:
        raise bad_usage("a server starts here: --context and --kubeconfig mean another one")
    home = Home(session.settings.home_path)
    last = last_start(home)
    asked = options_from(
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
    found = find(home)
    if found.condition == "running" and found.state is not None:
        where = f"at {found.state.url} (process {found.pid})"
        raise CommandError(
            f"a server of {home.path} is running already, {where}\n`rota restart` replaces it, `rota stop` ends it"
        )
    asyncio.run(join_hub(session, cell, city, hub, hub_ca, token_file))
    announced: list[State] = []
    if log_file:
        _write_to(log_file)

    def ready(at: Ready) -> None:
        why_not = _no_sandbox()
        announced.append(own_state(__version__, at.url, at.edge, asked, why_not))
        announce(home, announced[0])
        kubeconfig = f"; for kubectl: {kubectl_chosen(at.kubeconfig)}"
        print_line("Rota is ready at ", (at.url, "bold"), f"; functions and webhooks at {at.edge}{kubeconfig}")
        if reach := reach_of(asked.host):
            note(f"it listens {reach}")
        if controllers and why_not:
            warn_of_no_sandbox(why_not)

    serve(
        home.path,
        host=asked.host,
        port=asked.port,
        edge_port=asked.edge_port,
        # The next server keeps a chosen port, because clients use it.
        ports_before=(port_of(last.url), port_of(last.edge)) if last is not None else (0, 0),
        allowed_apis=asked.allow_api,
        policy=asked.policy(),
        with_controllers=controllers,
        key_file=Path(asked.key_file) if asked.key_file else None,
        audit_required=asked.audit_required,
        edge_hosts=asked.edge_host,
        no_cell=asked.no_cell,
        on_ready=ready,
    )
    if announced:
        withdraw(home, announced[0])
    if log_file:
        _mark("ended")


def _no_sandbox() -> str:
    from rota.runtime import sandbox

    ok, why_not = sandbox.available()
    return "" if ok else why_not


def _write_to(log_file: str) -> None:
    from rota.server.background_log import write_to

    write_to(Path(log_file))
    _mark(f"Rota {__version__} begins, process {os.getpid()}")


def _mark(what: str) -> None:
    """Write a dated line to the log."""
    print_line(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {what}")
