"""The finalizer of a tick's Task, for servers on which Task and status are written in two commits.

If the process ended between the two and somebody deleted the Task, nothing would show that its tick was fired. So the
Task has a finalizer until the status has recorded it. If it is deleted before that, it stays until then.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.api import Task
from rota.client import Client, Key
from rota.control.schedules.making import SCHEDULE_NAME, Body
from rota.control.schedules.runs import run_of
from rota.registry import ApiError

FINALIZER = "rota.dev/tick"
RELEASE_TRIES_MAX = 5


def with_finalizer(body: Body) -> Body:
    return {**body, "metadata": {**body["metadata"], "finalizers": [FINALIZER]}}


async def release(client: Client, namespace: str, name: str) -> None:
    """Remove the finalizer of a Task, if it has it. Raises ApiError, OSError."""
    for left in reversed(range(RELEASE_TRIES_MAX)):
        try:
            task: Task = await client.get(Task, name, namespace=namespace)
            if FINALIZER not in task.metadata.finalizers:
                return
            path = f"/metadata/finalizers/{task.metadata.finalizers.index(FINALIZER)}"
            patch = [{"op": "test", "path": path, "value": FINALIZER}, {"op": "remove", "path": path}]
            await client.patch(Task.api, name, patch, namespace=namespace, type="json")
            return
        except ApiError as error:
            if error.code == 404:
                return
            # The list of finalizers has changed meanwhile.
            if error.code not in (409, 422) or not left:
                raise


class UnrecordedTasks:
    """The Tasks with the finalizer, by schedule."""

    def __init__(self) -> None:
        self._of: dict[Key, dict[str, int]] = {}

    def of(self, schedule: Key) -> Mapping[str, int]:
        """Return the names of a schedule's Tasks with the finalizer, and the tick of each."""
        return self._of.get(schedule, {})

    def note_task(self, old: Task | None, new: Task | None) -> bool:
        """Take a watch event of a Task. Returns whether the Task is deleted and waits for its finalizer."""
        task = new or old
        assert task is not None
        meta = task.metadata
        key = Key(meta.namespace, meta.annotations.get(SCHEDULE_NAME, ""))
        if new is None or FINALIZER not in meta.finalizers:
            ours = self._of.get(key)
            if ours is not None:
                ours.pop(meta.name, None)
                if not ours:
                    del self._of[key]
            return False
        self._of.setdefault(key, {})[meta.name] = run_of(task).tick
        return meta.deletion_timestamp is not None

    def clear(self) -> None:
        self._of.clear()
