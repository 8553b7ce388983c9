"""Notices of waiting tasks: written after a moment, since most tasks get a worker before that."""

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
"""Time after which a task that waits for a worker is written as Queued."""


class Notices:
    """Writes the status of tasks that wait, with one timer for all."""

    def __init__(self, executor: Executor, make: Callable[[str], HandOver | None]) -> None:
        """`make` returns the write for the task with a uid; None: the task does not wait any more."""
        self._executor = executor
        self._make = make
        self._since: deque[tuple[float, str]] = deque()
        self._known: set[str] = set()
        self._timer: Timer | None = None

    def put(self, uid: str) -> None:
        """Write after a moment that a task waits, unless that is planned already."""
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
