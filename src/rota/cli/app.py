"""All commands, as one application."""

from __future__ import annotations

import importlib
import os
from typing import Annotated, Any

import typer

from rota.cli.command import GLOBAL_OPTIONS
from rota.cli.session import Connect, Session, Settings, connect_to_server

COMMANDS: dict[str, str] = {
    "up": "up:up",
    "start": "start:start",
    "stop": "stop:stop",
    "restart": "restart:restart",
    "status": "status:status",
    "dev": "dev:dev",
    "operator": "operator:operator",
    "get": "get:get",
    "describe": "describe:describe",
    "why": "why:why",
    "init": "init:init",
    "deploy": "deploy:deploy",
    "compile": "compile:compile_",
    "schema": "schema:schema",
    "apply": "apply:apply",
    "diff": "diff:diff",
    "plan": "plan:plan",
    "edit": "edit:edit",
    "delete": "delete:delete",
    "wait": "wait:wait",
    "events": "events:events",
    "run": "run:run",
    "call": "call:call",
    "cancel": "cancel:cancel",
    "retry": "retry:retry",
    "logs": "logs:logs",
    "exec": "exec:exec_",
    "cp": "cp:cp",
    "claim": "claim:claim",
    "release": "release:release",
    "schedule": "schedule:app",
    "cron": "cron:cron",
    "scale": "scale:scale",
    "rollout": "rollout:app",
    "token": "token:app",
    "backup": "backup:backup",
    "restore": "backup:restore",
    "crds": "crds:crds",
    "doctor": "doctor:doctor",
    "version": "version:version",
}
"""Every command and where it is, in the order of the help. Only what is called is imported."""

HELP = """\
Rota: a local-first scheduling control plane.

`rota start` starts a server, and `rota up` one in the foreground. Everything else talks to it, or with --context to a
cluster that has Rota's kinds.
Kinds may be given as kind, plural or short name: WorkerPool, workerpools, wp.
"""


def build(only: str = "") -> typer.Typer:
    """The application, with all commands or with one."""
    app = typer.Typer(
        name="rota",
        help=HELP,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_start)
    for name in (only,) if only else COMMANDS:
        module, _, attribute = COMMANDS[name].partition(":")
        found: Any = getattr(importlib.import_module(f"rota.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, no_args_is_help=False)(found)
    return app


def _start(
    ctx: typer.Context,
    namespace: Annotated[str | None, GLOBAL_OPTIONS["namespace"].__metadata__[0]] = None,
    context: Annotated[str | None, GLOBAL_OPTIONS["context"].__metadata__[0]] = None,
    kubeconfig: Annotated[str | None, GLOBAL_OPTIONS["kubeconfig"].__metadata__[0]] = None,
    home: Annotated[str | None, GLOBAL_OPTIONS["home"].__metadata__[0]] = None,
) -> None:
    ctx.obj = Session(Settings(namespace, context, kubeconfig, home), ctx.obj or connect_to_server)


_start.__doc__ = HELP


def run(argv: list[str], connect: Connect | None) -> int:
    """Parse and carry out. Returns the exit code."""
    known = bool(argv) and argv[0] in COMMANDS and "_ROTA_COMPLETE" not in os.environ
    app = build(argv[0] if known else "")
    try:
        app(args=argv, prog_name="rota", obj=connect)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
