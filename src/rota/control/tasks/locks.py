"""Branch locks: of the tasks on one branch of one workspace, one runs at a time.

A task takes its place when it could run otherwise, so that what waits for something else holds nobody up: with
dependencies there can be no deadlock. The first in place keeps it until it is over, or waits again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rota.api import Task, WorkerPool
from rota.client import Key
from rota.engine.objects import Objects, get


class LockKey(NamedTuple):
    """What is locked."""

    namespace: str
    workspace: str
    branch: str


class Locks:
    """Whose turn it is. In memory only: what runs is found again, since a task that runs asks, too."""

    def __init__(self) -> None:
        self._places: dict[LockKey, dict[str, Key]] = {}
        """The tasks of a lock by their uid, in the order in which they asked."""
        self._keys: dict[str, LockKey] = {}
        self.wake: Callable[[Key], None] = lambda key: None

    def is_turn_of(self, objects: Objects, task: Task) -> bool:
        """Whether a task may run. From the first time that it asks, it has its place."""
        if task.spec.branch is None:
            return True
        uid = task.metadata.uid
        key = self._keys.get(uid)
        if key is None:
            key = self._keys[uid] = lock_key(objects, task)
            self._places.setdefault(key, {})[uid] = Key(task.metadata.namespace, task.metadata.name)
        return next(iter(self._places[key])) == uid

    def take(self, objects: Objects, task: Task) -> None:
        """A task that runs already has the lock, whoever asked before."""
        if task.spec.branch is None or self.is_turn_of(objects, task):
            return
        uid = task.metadata.uid
        places = self._places[self._keys[uid]]
        self._places[self._keys[uid]] = {uid: places.pop(uid), **places}

    def left(self, task: Task) -> None:
        """A task is over, or does not want to run any more."""
        self._leave(task.metadata.uid)

    def gone(self, name: Key) -> None:
        for uid in [uid for places in self._places.values() for uid, whose in places.items() if whose == name]:
            self._leave(uid)

    def _leave(self, uid: str) -> None:
        key = self._keys.pop(uid, None)
        if key is None:
            return
        places = self._places[key]
        was_first = next(iter(places)) == uid
        del places[uid]
        if not places:
            del self._places[key]
        elif was_first:
            self.wake(next(iter(places.values())))


def lock_key(objects: Objects, task: Task) -> LockKey:
    """By the workspace that its worker is prepared with; all that have none have that in common."""
    namespace, ref = task.metadata.namespace, task.spec.worker_pool_ref
    worker = task.spec.worker
    if ref is not None:
        pool = get(objects, WorkerPool, ref.name, namespace)
        worker = pool.spec.worker if pool is not None else None
        if worker is None and pool is not None and pool.spec.template is not None and pool.spec.template.workspace_ref:
            return LockKey(namespace, pool.spec.template.workspace_ref.name, task.spec.branch or "")
    workspace = worker.workspace_ref.name if worker is not None and worker.workspace_ref is not None else ""
    return LockKey(namespace, workspace, task.spec.branch or "")
