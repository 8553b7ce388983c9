"""`rota retry`."""

from __future__ import annotations

import re
from typing import Any

from rota.api import Task
from rota.cli.command import command
from rota.cli.following import everything
from rota.cli.naming import reference
from rota.cli.options import Targets
from rota.cli.output import line
from rota.cli.session import CommandError, Session
from rota.cli.tasks import is_over, named_tasks, status_of
from rota.client import Client
from rota.registry import ApiError

Object = dict[str, Any]

RETRY_OF = "rota.dev/retry-of"
"""The label that names the task which was the first."""
OWN_LABELS = "rota.dev/"
"""What begins like this says something of the one task that has it."""
LABEL_LENGTH_MAX = 63
NUMBER_DIGITS_MAX = 4
TAKEN_MAX = 10
"""Names that others may have taken meanwhile."""
_NUMBERED = re.compile(r"-retry-([0-9]{1,4})$")


@command
async def retry(session: Session, which: Targets = None) -> None:
    """Run tasks that are over once more, each as a new task: NAME-retry-1, NAME-retry-2 and so on.

    Prints the name of each.
    """
    names = named_tasks(which or [])
    async with session.client() as client:
        tasks = [await client.get(Task.api, name) for name in names]
        for task in tasks:
            if not is_over(task):
                own_name = reference(Task.api, task["metadata"]["name"])
                phase = status_of(task).get("phase") or "not seen yet"
                hint = f"`rota cancel task/{task['metadata']['name']}` ends it"
                raise CommandError(f"{own_name} is not over: it is {phase}; {hint}")
        for task in tasks:
            line(reference(Task.api, await _again(client, task)))


async def _again(client: Client, task: Object) -> str:
    first = first_of(task)
    spec = {field: value for field, value in task["spec"].items() if field != "cancel"}
    kept = {key: value for key, value in task["metadata"].get("labels", {}).items() if not key.startswith(OWN_LABELS)}
    labels = {**kept, RETRY_OF: first}
    others, _ = await everything(client, Task.api, namespace=None, labels=f"{RETRY_OF}={first}")
    number = _next_number([other["metadata"]["name"] for other in others])
    for further in range(TAKEN_MAX):
        name = f"{first}-retry-{number + further}"
        body = {
            "apiVersion": Task.api.api_version,
            "kind": Task.api.name,
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        }
        try:
            await client.create(body)
        except ApiError as error:
            if error.code != 409:
                raise
        else:
            return name
    raise CommandError(f"{TAKEN_MAX} names beginning with {first}-retry-{number} are taken")


def first_of(task: Object) -> str:
    """The task that this one is a further try of, or itself; cut so that it fits a label's value."""
    meta = task["metadata"]
    first: str = meta.get("labels", {}).get(RETRY_OF) or meta["name"]
    length_max = LABEL_LENGTH_MAX - len("-retry-") - NUMBER_DIGITS_MAX
    if len(first) <= length_max:
        return first
    from rota.control.instances.names import tailed

    return tailed(first, length_max=length_max)


def _next_number(names: list[str]) -> int:
    found = (_NUMBERED.search(name) for name in names)
    return max((int(one[1]) for one in found if one is not None), default=0) + 1
