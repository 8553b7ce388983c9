"""`rota dev`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.command import command, complain, explained
from rota.cli.options import ProjectFile
from rota.cli.output import note, print_line
from rota.cli.server_options import EdgePort, Image, Port, container_of, failure, options_from, print_where
from rota.cli.session import CommandError, Session

if TYPE_CHECKING:
    from rota.cli.dev_folder import Folder
    from rota.cli.dev_logs import Tail
    from rota.client import Client
    from rota.manifest.deploy import Deployment
    from rota.manifest.project import Project
    from rota.server.home import Home

STATES_SECONDS_MAX = 900.0
"""Time to wait for functions to be loaded, in the background. Packages may have to be installed."""
AGAIN_SECONDS = 2.0
"""Pause before a deploy is retried when the server is away. A save ends it."""


@command
async def dev(
    session: Session,
    filename: ProjectFile = "rota.yaml",
    port: Port = None,
    edge_port: EdgePort = None,
    image: Image = None,
) -> None:
    """Deploy a project now and whenever one of its files is saved, and show its output.

    A local server is started in the background if none runs; ports and image are for that server. Ctrl-C ends this
    command; the server and all that it runs go on.
    """
    from rota.cli.dev_folder import Folder
    from rota.cli.dev_logs import Tail
    from rota.manifest.project_format import FILE_NAME

    given = await asyncio.to_thread(Path(filename).resolve)
    file = given / FILE_NAME if await asyncio.to_thread(given.is_dir) else given
    if not await asyncio.to_thread(file.exists):
        # In a wrong folder nothing is started, and nothing watched.
        raise CommandError(f"there is no {file}; `rota init` writes one, -f names another")
    home = await _have_server(session, file.parent, port, edge_port, image)
    async with session.client() as client:
        tail = Tail(client)
        folder = Folder(file, leaving_out=session.settings.home_path)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(tail.run())
                group.create_task(_deploy_on_save(client, str(file), folder, tail, States(client, group)))
        except BaseExceptionGroup as several:
            # One error is enough. That of a reader who left prints nothing.
            raise several.exceptions[0] from None
        finally:
            _note_server_goes_on(home)


async def _have_server(
    session: Session, project: Path, port: int | None, edge_port: int | None, image: str | None
) -> Home | None:
    """Return the home of the local server, and start the server if it does not run.

    Returns None if the command names another server.
    """
    settings = session.settings
    if settings.context or settings.kubeconfig or os.environ.get("ROTA_CONTEXT") or sys.platform != "linux":
        return None
    from rota.server.background import NotReady, start
    from rota.server.background_state import find, last_start
    from rota.server.home import Home

    home = Home(settings.home_path)
    if find(home).condition == "running":
        return home
    last = last_start(home)
    options = options_from(last, None, port, edge_port, None)
    container = await container_of(session, image, project)
    try:
        started = await start(home, options, container)
    except NotReady as error:
        raise failure(error, home.path) from None
    if started.is_new:
        note("no server ran here; one was started in the background")
        print_where(started, home.path, last)
    return home


def _note_server_goes_on(home: Home | None) -> None:
    from rota.server.background_state import find

    if home is not None and find(home).condition == "running":
        with contextlib.suppress(BrokenPipeError):
            note("the server goes on; `rota stop` ends it")


class States:
    """Prints which functions of the last deploy cannot be loaded, while later deploys go on."""

    def __init__(self, client: Client, group: asyncio.TaskGroup) -> None:
        self._client = client
        self._group = group
        self._task: asyncio.Task[None] | None = None

    def of(self, deployment: Deployment | None) -> None:
        """Watch the functions of this deploy instead of those of the last one. None stops watching."""
        if self._task is not None:
            self._task.cancel()
        self._task = self._group.create_task(self._report(deployment)) if deployment is not None else None

    async def _report(self, deployment: Deployment) -> None:
        from rota.cli.deploy_report import write_state
        from rota.cli.deployed_functions import until_loaded
        from rota.client import ConnectionFailed
        from rota.registry import ApiError

        with contextlib.suppress(ApiError, ConnectionFailed, CommandError):
            await until_loaded(self._client, deployment, STATES_SECONDS_MAX, write_state)


async def _deploy_on_save(client: Client, file: str, folder: Folder, tail: Tail, states: States) -> None:
    away = ""
    while True:
        # Scanned before the deploy reads it, so that a save meanwhile leads to another deploy.
        await folder.look()
        away = await _deploy(client, file, tail, states, away)
        if not away:
            note(f"watching {folder.top}")
        if await folder.saved(AGAIN_SECONDS if away else None):
            away = ""
            print_line((f"{datetime.now():%H:%M:%S} saved, deploying", "dim"))


async def _deploy(client: Client, file: str, tail: Tail, states: States, known: str) -> str:
    """Deploy once, and print an error unless it is the `known` one. Returns the error of a server that is away."""
    from rota.client import ConnectionFailed

    try:
        await _deployed(client, await asyncio.to_thread(_loaded, file), tail, states)
    except Exception as error:
        _, message = explained(error)
        if message != known:
            complain(message)
        return message if isinstance(error, ConnectionFailed) else ""
    return ""


def _loaded(file: str) -> Project:
    from rota.manifest.project import load_project

    return load_project(file, os.environ)


async def _deployed(client: Client, project: Project, tail: Tail, states: States) -> None:
    from rota.cli.deploy_report import DeployReport
    from rota.cli.deployed_functions import urls_of
    from rota.manifest.code_stores import blobs_of
    from rota.manifest.deploy import Deployer, DeployRefused
    from rota.manifest.deploy_lookup import IncompleteList

    blobs = await blobs_of(client.backend)
    deployer = Deployer(client, blobs)
    try:
        planned = await deployer.plan(project)
    except (DeployRefused, IncompleteList) as refused:
        raise CommandError(f"{refused}\nnothing was changed") from None
    tail.of(project)
    states.of(None)
    report = DeployReport(planned, client.namespace, dry_run=False)
    report.write_code()
    try:
        await deployer.apply(planned, report.write)
    except DeployRefused as refused:
        raise CommandError(f"{refused}\nit was changed meanwhile; save again") from None
    report.write_summary()
    report.write_end(await urls_of(client, planned) if blobs is not None else {})
    if blobs is not None:
        states.of(planned)
