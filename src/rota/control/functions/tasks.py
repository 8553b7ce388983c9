"""Tasks that call a function: each attempt waits for a worker, makes the call, and reports the outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from rota.api import Function, Task
from rota.client import Key
from rota.control.functions.calls import Calls
from rota.control.functions.served import CallRequest, NotCalled
from rota.control.tasks.lifecycle import assignment_id
from rota.control.tasks.templating import given_payload
from rota.runtime.archive import Archive, log_of
from rota.runtime.runner.jobs import Outcome

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
"""Pause after an unexpected error of the server."""

_encode = msgspec.json.Encoder().encode
OnBegun = Callable[[Task, str], Awaitable[None]]
OnEnded = Callable[[Outcome], None]


class FunctionCaller(Protocol):
    """Makes the calls of tasks."""

    def close(self) -> None:
        """End all attempts, without an outcome."""
        ...

    def queue(self, task: Task, function: Function, begun: OnBegun, ended: OnEnded) -> None:
        """Call the function of a task, unless its call is under way.

        `begun` is awaited with the worker's name before the call begins, and `ended` is called with its outcome.
        """
        ...

    def is_under_way(self, task: Task) -> bool:
        """Report whether an attempt of this process waits for a worker, or has one."""
        ...

    def is_begun(self, task: Task) -> bool: ...

    def cancel(self, task: Task) -> bool:
        """Cancel the attempt of a task. Returns whether its call has begun: then its outcome is still reported."""
        ...

    def gone(self, key: Key) -> None:
        """Cancel the attempts of a deleted task."""
        ...


class CalledTasks:
    """The attempts that are under way."""

    def __init__(self, calls: Calls, archive: Archive, wake: Callable[[Key], None]) -> None:
        """`wake` reconciles a task whose call could not be made."""
        self._calls = calls
        self._wake = wake
        self._archive = archive
        self._attempts: dict[str, asyncio.Task[None]] = {}
        """The attempt of each task, by the task's uid."""
        self._keys: dict[str, Key] = {}
        self._begun: set[str] = set()

    def close(self) -> None:
        for attempt in self._attempts.values():
            attempt.cancel()

    def is_under_way(self, task: Task) -> bool:
        return task.metadata.uid in self._attempts

    def is_begun(self, task: Task) -> bool:
        return task.metadata.uid in self._begun

    def queue(self, task: Task, function: Function, begun: OnBegun, ended: OnEnded) -> None:
        uid = task.metadata.uid
        if uid in self._attempts:
            return
        work = self._attempt(task, function, begun, ended)
        attempt = self._attempts[uid] = asyncio.create_task(work, name=f"call {uid}")
        self._keys[uid] = Key(task.metadata.namespace, task.metadata.name)
        attempt.add_done_callback(lambda _: self._ended(uid))

    def _ended(self, uid: str) -> None:
        del self._attempts[uid], self._keys[uid]

    def cancel(self, task: Task) -> bool:
        uid = task.metadata.uid
        if uid in self._begun:
            self._calls.cancel(assignment_id(task))
            return True
        self.forget(uid)
        return False

    def forget(self, uid: str) -> None:
        """Cancel the attempt of a task, without an outcome."""
        attempt = self._attempts.get(uid)
        if attempt is not None:
            attempt.cancel()

    def gone(self, key: Key) -> None:
        for uid in [uid for uid, whose in self._keys.items() if whose == key]:
            self.forget(uid)

    async def _attempt(self, task: Task, function: Function, begun: OnBegun, ended: OnEnded) -> None:
        meta, call = task.metadata, task.spec.function
        assert call is not None
        id_ = assignment_id(task)
        limits = (function.spec.timeout_seconds, task.spec.timeout_seconds or function.spec.timeout_seconds)
        log_path = self._archive.place(log_of(meta.namespace, meta.name, meta.uid))
        dependencies = task.status.dependencies if task.status is not None else []
        request = CallRequest(id_, _encode(given_payload(task.spec, dependencies)), float(min(limits)), log_path)

        async def beginning(instance: str) -> None:
            self._begun.add(meta.uid)
            await begun(task, instance)

        clock = self._calls.clock
        now = clock.time()
        try:
            end = await self._calls.call(function, request, is_patient=True, beginning=beginning)
            result = bytes(end.result).decode()
            outcome = Outcome(id_, end.reason, end.started, end.ended, end.exit_code, end.message, result=result)
        except NotCalled as error:
            if error.reason != "NotLoaded":
                return  # The function was deleted: the task waits for a new one of the name.
            outcome = Outcome(id_, "Failed", now, clock.time(), message=f"the function cannot be loaded: {error}")
        except Exception:
            log.exception("task %s/%s could not be begun", meta.namespace, meta.name)
            clock.call_at(clock.now() + AGAIN_SECONDS, lambda: self._wake(Key(meta.namespace, meta.name)))
            return
        finally:
            self._begun.discard(meta.uid)
        ended(outcome)
