"""`rota cancel`."""

from __future__ import annotations

from rota.api import Task
from rota.cli.command import command, complain
from rota.cli.following import everything
from rota.cli.missing_names import explain_missing
from rota.cli.naming import Target, reference, targets
from rota.cli.options import Selector, Targets
from rota.cli.output import note, print_line
from rota.cli.session import FAILED, Session, bad_usage
from rota.cli.tasks import is_over, named_tasks, status_of
from rota.client import Client
from rota.registry import ApiError


@command
async def cancel(session: Session, which: Targets = None, selector: Selector = "") -> int:
    """Ask tasks to end. A task that has not begun never begins; a task that is over stays as it is."""
    if selector and which and targets(which) != [Target(Task.api)]:
        raise bad_usage("a name does not go with --selector")
    if not which and not selector:
        raise bad_usage("name tasks, such as task/build, or select them with --selector")
    names = [] if selector else named_tasks(which or [])
    async with session.client() as client:
        if selector:
            found, _ = await everything(client, Task.api, namespace=None, labels=selector)
            names = [task["metadata"]["name"] for task in found if not is_over(task)]
            if not names:
                note(f"all {len(found)} tasks are over already" if found else "no task is selected")
        asked = [await _ask(client, name) for name in names]
    return 0 if all(asked) else FAILED


async def _ask(client: Client, name: str) -> bool:
    own_name = reference(Task.api, name)
    try:
        task = await client.get(Task.api, name)
        if is_over(task):
            print_line(f"{own_name} was over already: {status_of(task)['phase']}")
            return True
        await client.patch(Task.api, name, {"spec": {"cancel": True}})
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        await explain_missing(client, error)
        complain(error.message)
        return False
    print_line(f"{own_name} is being cancelled")
    return True
