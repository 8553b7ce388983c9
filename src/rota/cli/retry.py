"""`rota retry`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rota.api import Task
from rota.api.task import RETRY_OF
from rota.cli.command import command
from rota.cli.following import everything
from rota.cli.naming import reference
from rota.cli.options import Targets
from rota.cli.output import print_line
from rota.cli.session import CommandError, Session, bad_usage
from rota.cli.tasks import is_over, named_tasks, status_of
from rota.client import Client, Operation
from rota.registry import ApiError

Object = dict[str, Any]

TAKEN_MAX = 10
"""Attempts to choose a name that another task takes meanwhile."""
TOGETHER_MAX = 100
"""Tasks that are created in one commit."""
CONFLICT = 409


@command
async def retry(
    session: Session,
    which: Targets = None,
    failed: Annotated[
        bool,
        typer.Option("--failed", help="Run failed dependencies again, too, and the tasks that failed because of them."),
    ] = False,
) -> None:
    """Run finished tasks once more, each as a new task: NAME-retry-1, NAME-retry-2 and so on.

    Prints the name of each. With --failed, a failed graph of tasks is run again from the tasks that failed.
    """
    names = named_tasks(which or [])
    if not names:
        raise bad_usage("name tasks, such as task/build")
    async with session.client() as client:
        tasks = [await client.get(Task.api, name) for name in names]
        for task in tasks:
            _check(task, failed=failed)
        if failed:
            for name in await _graph_again(client, names):
                print_line(reference(Task.api, name))
            return
        for task in tasks:
            print_line(reference(Task.api, await _run_again(client, task)))


def _check(task: Object, *, failed: bool) -> None:
    """Raise CommandError for a task that cannot be run again in this way."""
    name, status = task["metadata"]["name"], status_of(task)
    if not is_over(task):
        phase = status.get("phase") or "not seen yet"
        hint = f"`rota cancel task/{name}` ends it"
        raise CommandError(f"{reference(Task.api, name)} is not over: it is {phase}; {hint}")
    if not failed and status.get("reason") == "DependencyFailed":
        raise CommandError(
            f"{reference(Task.api, name)} did not run, and would not run again: {status.get('message')}\n"
            f"`rota retry task/{name} --failed` runs what failed before it again, and then it"
        )


async def _run_again(client: Client, task: Object) -> str:
    from rota.control.tasks.retrying import first_of, retried

    tries, _version = await everything(client, Task.api, namespace=None, labels=f"{RETRY_OF}={first_of(task)}")
    for _ in range(TAKEN_MAX):
        new = retried(task, tries)
        if await _created(client, [new]):
            name: str = new["metadata"]["name"]
            return name
        tries.append(new)
    raise CommandError(f"others keep taking the names of further tries of task/{first_of(task)}; try again")


async def _graph_again(client: Client, names: Sequence[str]) -> list[str]:
    from rota.control.tasks.retrying import RetryError, failed_graph

    for _ in range(TAKEN_MAX):
        tasks, _version = await everything(client, Task.api, namespace=None)
        try:
            new = failed_graph(tasks, names)
        except RetryError as error:
            raise CommandError(f"{error}\nnothing was changed") from None
        if await _created(client, new):
            return [task["metadata"]["name"] for task in new]
    raise CommandError(f"others keep taking the names of further tries of task/{names[0]}; try again")


async def _created(client: Client, tasks: Sequence[Object]) -> bool:
    """Create tasks, all or none where the server can. Returns False if a name is taken and nothing was created."""
    if client.atomic and len(tasks) <= TOGETHER_MAX:
        try:
            await client.batch([Operation("create", Task.api, client.namespace, body=task) for task in tasks])
        except ApiError as error:
            if error.code != CONFLICT:
                raise
            return False
        return True
    for done, task in enumerate(tasks):
        try:
            await client.create(task)
        except ApiError as error:
            if error.code != CONFLICT or done:
                raise
            return False
    return True
