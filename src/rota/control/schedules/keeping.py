"""Where making a Task and writing that down are two commits, whatever happens in between must not undo the first.

Were the process to end there, and somebody to delete the Task, nothing would be left to tell that its tick was fired.
So the Task has a finalizer until it is written down: who deletes it before does not make it vanish.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.api import Task
from rota.client import Client, Key
from rota.control.schedules.making import SCHEDULE_NAME, Body
from rota.control.schedules.runs import run_of
from rota.registry import ApiError

FINALIZER = "rota.dev/tick"
RELEASE_TRIES_MAX = 5


def kept(body: Body) -> Body:
    """The body of a Task that does not vanish before it is let go."""
    return {**body, "metadata": {**body["metadata"], "finalizers": [FINALIZER]}}


async def release(client: Client, namespace: str, name: str) -> None:
    """Let a Task go. Raises ApiError, OSError."""
    kind: Any = Task
    for left in reversed(range(RELEASE_TRIES_MAX)):
        try:
            task: Task = await client.get(kind, name, namespace=namespace)
            if FINALIZER not in task.metadata.finalizers:
                return
            path = f"/metadata/finalizers/{task.metadata.finalizers.index(FINALIZER)}"
            patch = [{"op": "test", "path": path, "value": FINALIZER}, {"op": "remove", "path": path}]
            await client.patch(Task.api, name, patch, namespace=namespace, type="json")
            return
        except ApiError as error:
            if error.code == 404:
                return
            # Somebody else has changed the list meanwhile.
            if error.code not in (409, 422) or not left:
                raise


class Keeping:
    """The Tasks that are kept, by the schedule that they are of."""

    def __init__(self) -> None:
        self._of: dict[Key, dict[str, int]] = {}

    def of(self, schedule: Key) -> Mapping[str, int]:
        """The names of its Tasks that are kept, and the tick of each."""
        return self._of.get(schedule, {})

    def hear(self, old: Task | None, new: Task | None) -> bool:
        """News of a Task. Whether it waits to be let go."""
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
