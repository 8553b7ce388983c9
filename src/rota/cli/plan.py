"""`rota plan`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli import typed_commands
from rota.cli.command import command, complain, explained
from rota.cli.options import Files, Force
from rota.cli.output import print_line
from rota.cli.previews import manifests
from rota.cli.session import BAD_USAGE, Session, bad_usage

if TYPE_CHECKING:
    from rota.cli.comparison import Difference
    from rota.manifest.plan_types import Plan
    from rota.manifest.rehearsal import Rehearsal

WILL_NOT_CONVERGE = 1
FORMS = ("", "json")


@command
async def plan(
    session: Session,
    filename: Files = None,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="Choose the format: json.")] = "",
    explain: Annotated[
        str,
        typer.Option(
            "--explain", metavar="KIND/NAME", help="Explain only this object: what it needs, or why it is never ready."
        ),
    ] = "",
    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="CONTEXT",
            help="Go on from what is on this server, and show what would change there. Nothing is changed.",
        ),
    ] = "",
    force: Force = False,
) -> int:
    """Predict the result of manifests, without a server. Exit code: 0 all is ready, 1 something never is, 2 invalid.

    The controllers run in memory to the end: the plan shows what becomes ready, in which order; what never does, and
    the cause; and what had to be assumed.
    """
    try:
        return await _plan(session, filename, output, explain, against, force)
    except Exception as error:
        # 1 means that something never becomes ready, so it cannot mean that there is no plan.
        complain(explained(error, only_looks=True)[1])
        return BAD_USAGE


async def _plan(
    session: Session, filename: list[str] | None, output: str, explain: str, against: str, force: bool
) -> int:
    if output not in FORMS:
        raise bad_usage(f"-o {output}: there is json")
    if session.settings.context is not None and not against:
        raise bad_usage(f"a plan needs no server; to compare with one, say --against {session.settings.context}")
    if force and not against:
        raise bad_usage("--force goes with --against")
    found = manifests(filename, session.settings.namespace, "default")
    from rota.cli.comparison import compare
    from rota.manifest.plan import make_plan
    from rota.manifest.rehearsal import DEFAULT_NAMESPACE, rehearse

    difference: Difference | None = None
    settings = session.settings
    if against:
        settings = replace(session.settings, context=against, home=None)
        other = Session(settings, session.connect_with)
        async with other.client() as client:
            session.has_asked = other.has_asked
            difference, server = await compare(client, found, against, force=force)
            namespace = client.namespace
        rehearsal = await rehearse(found, namespace=namespace, server=server)
    else:
        namespace = session.settings.namespace or DEFAULT_NAMESPACE
        rehearsal = await rehearse(found, namespace=namespace)
    result = make_plan(rehearsal)
    # Advice is about the server that the plan goes on from.
    with typed_commands.given(settings):
        return _write(rehearsal, result, difference, namespace, output, explain)


def _write(
    rehearsal: Rehearsal, result: Plan, difference: Difference | None, namespace: str, output: str, explain: str
) -> int:
    from rota.cli.plan_text import write_plan, write_summary

    if explain:
        from rota.cli.plan_explanation import write_explanation

        return write_explanation(rehearsal, result, explain, namespace, as_json=output == "json")
    if output == "json":
        import msgspec

        document: dict[str, Any] = msgspec.to_builtins(result)
        if difference is not None:
            document["against"] = msgspec.to_builtins(difference)
        print_line(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        write_plan(result)
        if difference is not None:
            from rota.cli.comparison import write_difference

            write_difference(difference)
        print_line("")
        write_summary(result)
    return 0 if result.converges else WILL_NOT_CONVERGE
