"""Branch locks: of the tasks on one branch of one workspace, one runs at a time.

A task asks for its lock last, when it needs nothing else but a worker. So a task that waits for something else holds up
no other, and dependencies cannot cause a deadlock. The first task keeps the lock until it is over, or waits for
something else again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from rota.api import Task, WorkerPool
from rota.client import Key
from rota.engine.objects import Objects, get

BRANCH_LOCKED = "BranchLocked"
NAMED_MAX = 4
"""Waiting tasks, from the head of the queue, whose status names the holder. It is rewritten when the holder changes."""


class LockKey(NamedTuple):
    """A branch of a workspace."""

    namespace: str
    workspace: str
    branch: str


class Locks:
    """The holder and the queue of each lock. In memory only: after a restart, a running task asks again."""

    def __init__(self, wake: Callable[[Key], None]) -> None:
        """`wake` reconciles a task."""
        self._wake = wake
        self._places: dict[LockKey, dict[str, Key]] = {}
        """The tasks of each lock by uid, in the order in which they asked. The first one holds it."""
        self._keys: dict[str, LockKey] = {}

    def acquire(self, objects: Objects, task: Task) -> bool:
        """Ask for the lock of a task. Returns whether the task has it; otherwise the task has a place in the queue."""
        if task.spec.branch is None:
            return True
        uid = task.metadata.uid
        key = self._keys.get(uid)
        if key is None:
            key = self._keys[uid] = lock_key(objects, task)
            self._places.setdefault(key, {})[uid] = Key(task.metadata.namespace, task.metadata.name)
        return next(iter(self._places[key])) == uid

    def take(self, objects: Objects, task: Task) -> None:
        """Give the lock to a task that runs already, ahead of those that wait."""
        if task.spec.branch is None or self.acquire(objects, task):
            return
        uid = task.metadata.uid
        places = self._places[self._keys[uid]]
        self._places[self._keys[uid]] = {uid: places.pop(uid), **places}
        self._wake_next(self._keys[uid], besides=uid)

    def message(self, task: Task) -> str:
        """Return the message for the status of a task that waits for the lock."""
        key = self._keys.get(task.metadata.uid)
        places = self._places[key] if key is not None else {}
        if task.metadata.uid in islice(places, NAMED_MAX + 1):
            return f"branch {task.spec.branch} is held by Task/{_first(places).name}"
        # The holder changes with every task that ends: to write it into all waiting tasks would never stop.
        return f"branch {task.spec.branch} is held by another task; more than {NAMED_MAX} are before this one"

    def place(self, task: Task) -> str:
        """Return a message with the holder and the place of a task. Takes time linear in the waiting tasks."""
        key = self._keys.get(task.metadata.uid)
        if key is None:
            return self.message(task)
        places = self._places[key]
        between = list(places).index(task.metadata.uid) - 1
        more = f", {between} more before it" if between > 0 else ""
        return f"branch {key.branch} is held by Task/{_first(places).name}{more}"

    def leave(self, task: Task) -> None:
        """Release the lock of a task, or remove the task from the queue."""
        self._remove(task.metadata.uid)

    def gone(self, name: Key) -> None:
        for uid in [uid for places in self._places.values() for uid, whose in places.items() if whose == name]:
            self._remove(uid)

    def _remove(self, uid: str) -> None:
        key = self._keys.pop(uid, None)
        if key is None:
            return
        places = self._places[key]
        was_first = next(iter(places)) == uid
        del places[uid]
        if not places:
            del self._places[key]
        elif was_first:
            self._wake_next(key)

    def _wake_next(self, key: LockKey, besides: str = "") -> None:
        """Reconcile the first tasks of a lock that has changed hands."""
        for uid, name in list(islice(self._places[key].items(), NAMED_MAX + 1)):
            if uid != besides:
                self._wake(name)


def _first(places: dict[str, Key]) -> Key:
    return next(iter(places.values()))


def lock_key(objects: Objects, task: Task) -> LockKey:
    """Return the lock of a task, by the workspace of its worker. Tasks without a workspace share one."""
    namespace, ref = task.metadata.namespace, task.spec.worker_pool_ref
    worker = task.spec.worker
    if ref is not None:
        pool = get(objects, WorkerPool, ref.name, namespace)
        worker = pool.spec.worker if pool is not None else None
        if worker is None and pool is not None and pool.spec.template is not None and pool.spec.template.workspace_ref:
            return LockKey(namespace, pool.spec.template.workspace_ref.name, task.spec.branch or "")
    workspace = worker.workspace_ref.name if worker is not None and worker.workspace_ref is not None else ""
    return LockKey(namespace, workspace, task.spec.branch or "")
