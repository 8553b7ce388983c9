"""Notices of tasks that have to wait for a worker: written after a moment, since most get one before that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from rota.api import Task
from rota.client import Key
from rota.control.holds.executor import Executor
from rota.control.holds.handover import HandOver, Result
from rota.engine.clock import Timer
from rota.registry import ApiError

QUEUED_NOTICE_SECONDS = 0.25
"""A task that waits for a worker for so long is written as Queued."""


class Notices:
    """Writes that tasks wait, with one timer for all of them."""

    def __init__(self, executor: Executor, make: Callable[[str], HandOver | None]) -> None:
        """`make` is given the uid of a task when its time has come; it returns None if the task does not wait now."""
        self._executor = executor
        self._make = make
        self._since: deque[tuple[float, str]] = deque()
        self._known: set[str] = set()
        self._timer: Timer | None = None

    def put(self, uid: str) -> None:
        """Write in a moment that this one waits, unless that is to be written already."""
        if uid in self._known:
            return
        self._known.add(uid)
        self._since.append((self._executor.clock.now(), uid))
        self._wait()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if self._timer is None and self._since:
            self._timer = self._executor.clock.call_at(self._since[0][0] + QUEUED_NOTICE_SECONDS, self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._executor.clock.now()
        while self._since and self._since[0][0] + QUEUED_NOTICE_SECONDS <= now:
            uid = self._since.popleft()[1]
            self._known.discard(uid)
            self._executor.writes.add(partial(self._make, uid), self._receive)
        self._wait()

    def _receive(self, handover: HandOver, result: Result) -> None:
        if isinstance(result, ApiError) and handover.begins is not None:
            meta = handover.begins.metadata
            self._executor.wake(Task.api, Key(meta.namespace, meta.name))
