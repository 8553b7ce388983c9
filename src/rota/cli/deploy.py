"""`rota deploy`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.command import command, confirm, is_terminal
from rota.cli.options import ProjectFile
from rota.cli.session import CommandError, Session, bad_usage

if TYPE_CHECKING:
    from rota.manifest.deploy import Deployment
    from rota.manifest.project import Project

FORMS = ("", "json")
WAIT = "2m"
"""Time to wait for functions to be loaded. Packages may have to be installed."""


@command
async def deploy(
    session: Session,
    filename: ProjectFile = "rota.yaml",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete objects that this project created and its file no longer has.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take over objects that another project has deployed.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait until the server has loaded the functions.")
    ] = False,
    within: Annotated[
        str, typer.Option("--timeout", metavar="SPAN", help="Wait at most this long for the functions: 30s, 5m, 1h.")
    ] = WAIT,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="Choose the format: json.")] = "",
) -> int:
    """Create or change objects on a server to match a project file. What the file leaves out stays as it is.

    The server loads each function once, even if nobody calls it. If a function cannot be loaded, the reason is printed
    and the exit code is 1; its previous version goes on.
    """
    from rota.cli.options import seconds
    from rota.manifest.project import load_project

    if yes and not prune:
        raise bad_usage("--yes goes with --prune")
    if output not in FORMS:
        raise bad_usage(f"-o {output}: there is json")
    project = load_project(filename, os.environ)
    wait_seconds = 0.0 if no_wait else seconds(within)
    return await _deploy(
        session, project, output, wait_seconds, dry_run=dry_run, prune=prune, yes=yes, take_over=take_over
    )


async def _deploy(
    session: Session,
    project: Project,
    output: str,
    wait_seconds: float,
    *,
    dry_run: bool,
    prune: bool,
    yes: bool,
    take_over: bool,
) -> int:
    from rota.cli.deploy_report import DeployReport
    from rota.cli.deploy_report_json import DeployReportJson
    from rota.cli.deployed_functions import until_loaded, urls_of
    from rota.manifest.code_stores import blobs_of
    from rota.manifest.deploy import Deployer, DeployRefused
    from rota.manifest.deploy_lookup import IncompleteList

    async with session.client() as client:
        blobs = await blobs_of(client.backend)
        deployer = Deployer(client, blobs)
        try:
            planned = await deployer.plan(project, prune=prune, take_over=take_over)
        except (DeployRefused, IncompleteList) as refused:
            raise CommandError(f"{refused}\nnothing was changed") from None
        report_class = DeployReportJson if output else DeployReport
        report = report_class(planned, client.namespace, dry_run=dry_run)
        report.write_code()
        if dry_run:
            planned.report(report.write)
        else:
            _confirm(planned, client.namespace, yes=yes)
            try:
                await deployer.apply(planned, report.write)
            except BaseException as error:
                report.write_stopped()
                if not isinstance(error, DeployRefused | IncompleteList):
                    raise
                raise CommandError(f"{error}\nit was changed meanwhile; deploy again") from None
        # A server without a blob store is not Rota's, and has no edge for calls either.
        is_called = blobs is not None and not dry_run
        urls = await urls_of(client, planned) if is_called else {}
        report.write_summary()
        try:
            if not is_called or not wait_seconds:
                return 0
            return await until_loaded(client, planned, wait_seconds, report.write_state)
        finally:
            report.write_end(urls)


def _confirm(deployment: Deployment, namespace: str, *, yes: bool) -> None:
    """Print what would be deleted or released, and ask if anything would be deleted. Without a terminal, --yes is
    needed."""
    doomed = [one for one in deployment.removals if one.created]
    if not doomed:
        return
    from rota.cli.output import note
    from rota.manifest.deploy import display_name

    names = [display_name(one, namespace) for one in doomed]
    note("no longer in the file, to be deleted:")
    for name in names:
        note(f"  {name}")
    if released := [one for one in deployment.removals if not one.created]:
        note("no longer in the file, to be released; these stay, because the project did not create them:")
        for one in released:
            note(f"  {display_name(one, namespace)}")
    if yes:
        return
    if not is_terminal():
        raise CommandError("--prune would delete these; say --yes to delete them\nnothing was changed")
    confirm(f"Delete {'it' if len(names) == 1 else f'these {len(names)}'}?")
