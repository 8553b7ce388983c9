"""All commands, as one application."""

from __future__ import annotations

import importlib
import os
from typing import Annotated, Any

import typer

from rota.cli import INTERRUPTED
from rota.cli.command import GLOBAL_OPTIONS, complain
from rota.cli.session import BAD_USAGE, CommandError, Connect, Session, Settings, connect_to_server
from rota.cli.usage import USAGE_ERROR, Group, unparsed

PURPOSES: dict[str, dict[str, str]] = {
    "Servers": {
        "start": "start:start",
        "stop": "stop:stop",
        "restart": "restart:restart",
        "status": "status:status",
        "up": "up:up",
        "operator": "operator:operator",
        "backup": "backup:backup",
        "restore": "backup:restore",
        "token": "token:app",
        "key": "key:app",
        "doctor": "doctor:doctor",
        "version": "version:version",
    },
    "Projects": {
        "init": "init:init",
        "dev": "dev:dev",
        "deploy": "deploy:deploy",
        "compile": "compile:compile_",
        "schema": "schema:schema",
    },
    "Objects": {
        "get": "get:get",
        "describe": "describe:describe",
        "why": "why:why",
        "events": "events:events",
        "wait": "wait:wait",
        "apply": "apply:apply",
        "diff": "diff:diff",
        "plan": "plan:plan",
        "edit": "edit:edit",
        "delete": "delete:delete",
        "crds": "crds:crds",
    },
    "Tasks, functions and schedules": {
        "run": "run:run",
        "call": "call:call",
        "logs": "logs:logs",
        "cancel": "cancel:cancel",
        "retry": "retry:retry",
        "schedule": "schedule:app",
        "cron": "cron:cron",
    },
    "Pools, workloads, instances and claims": {
        "scale": "scale:scale",
        "rollout": "rollout:app",
        "placement": "placement:placement",
        "rebalance": "rebalance:rebalance",
        "map": "map:map_",
        "cell": "cell:app",
        "fleet": "fleet:app",
        "quota": "quota:quota",
        "claim": "claim:claim",
        "release": "release:release",
        "exec": "exec:exec_",
        "cp": "cp:cp",
    },
}
"""Every command as module:attribute, by purpose, in the order of the help. Only the module of the called command is
imported."""

COMMANDS: dict[str, str] = {name: place for commands in PURPOSES.values() for name, place in commands.items()}

HELP = """\
Rota: a local-first scheduling control plane.

`rota start` starts a server, and `rota up` one in the foreground. Everything else talks to it, or with --context to a
cluster that has Rota's kinds.
Kinds may be given as kind, plural or short name: WorkerPool, workerpools, wp.
"""


class Rota(Group):
    """All commands, sorted by purpose."""

    purposes = PURPOSES


def build(only: str = "") -> typer.Typer:
    """Return the application with all commands, or with one."""
    app = typer.Typer(
        name="rota",
        cls=Rota,
        help=HELP,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_start)
    for name in (only,) if only else COMMANDS:
        module, _, attribute = COMMANDS[name].partition(":")
        inside = importlib.import_module(f"rota.cli.{module}")
        found: Any = getattr(inside, attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, cls=getattr(inside, "COMMAND_CLASS", None), no_args_is_help=False)(found)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from rota import __version__

        print(__version__)
        raise typer.Exit


def _start(
    ctx: typer.Context,
    namespace: Annotated[str | None, GLOBAL_OPTIONS["namespace"].__metadata__[0]] = None,
    context: Annotated[str | None, GLOBAL_OPTIONS["context"].__metadata__[0]] = None,
    kubeconfig: Annotated[str | None, GLOBAL_OPTIONS["kubeconfig"].__metadata__[0]] = None,
    home: Annotated[str | None, GLOBAL_OPTIONS["home"].__metadata__[0]] = None,
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    ctx.obj = Session(Settings(namespace, context, kubeconfig, home), ctx.obj or connect_to_server)


_start.__doc__ = HELP


def run(argv: list[str], connect: Connect | None) -> int:
    """Parse a command line and run its command. Returns the exit code."""
    known = bool(argv) and argv[0] in COMMANDS and "_ROTA_COMPLETE" not in os.environ
    # For the version alone nothing else is imported.
    app = build(argv[0] if known else "version" if argv[:1] == ["--version"] else "")
    try:
        # Not standalone: errors of the command line are printed in the form of all others.
        code = app(args=argv, prog_name="rota", obj=connect, standalone_mode=False)
    except CommandError as error:
        complain(str(error))
        return error.code
    except USAGE_ERROR as error:
        return _refuse(error, f"rota {argv[0]}" if known else "rota")
    except typer.Abort:
        return INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return code if isinstance(code, int) else 0


def _refuse(error: Any, begun: str) -> int:
    if error.ctx is not None and error.message == error.ctx.get_help():
        # A group was named without a command: print the help of the group.
        error.show()
    else:
        complain(unparsed(error, begun))
    return BAD_USAGE
