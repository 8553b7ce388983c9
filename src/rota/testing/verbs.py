"""The verbs of a project, as coroutines for its plane's loop. Both forms of `Project` run them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from rota.api import KINDS, Claim, Function, Instance, Kind, Schedule, Task, WorkerPool
from rota.control.schedules.making import MANUAL, manual_name, task_of
from rota.registry import ApiError, metadata
from rota.testing.plane import Plane
from rota.testing.sources import Source, bring, read

START = "2026-01-01T00:00:00Z"
"""The default start time, the same on every run."""
IDLE_WITHIN = timedelta(days=1)
"""The default bound on the time until all tasks are finished."""
NONCE_BYTES = 8
NAMED = (Function, WorkerPool, Schedule, Task)
"""The kinds whose names identify calls."""
CLAIM_NAME_BYTES = 4
HOLDER = "test"
"""The holder of the claims of a test."""
NAMED_MAX = 5
"""Bound on the tasks that an error names."""


class NotIdle(AssertionError):  # noqa: N818 - says what became of it
    """Tasks are unfinished after the given time."""


def moment(at: datetime | str) -> float:
    """Return an instant in seconds since 1970. Without a time zone it is UTC."""
    found = datetime.fromisoformat(at) if isinstance(at, str) else at
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def span(by: timedelta | None, days: float, hours: float, minutes: float, seconds: float) -> float:
    """Return a duration in seconds."""
    parts = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    total = ((by or timedelta()) + parts).total_seconds()
    if total < 0:
        raise ValueError(f"time does not go back: {total:g} s")
    return total


class Verbs:
    """The verbs, each a coroutine for the plane's loop."""

    def __init__(self, plane: Plane, environment: Mapping[str, str] | None) -> None:
        self._plane = plane
        self._client = plane.client
        self._environment = environment

    # Objects.

    async def apply(self, source: Source) -> None:
        if isinstance(source, Mapping):
            await self._client.apply(dict(source), force=True)
            return
        environment = os.environ if self._environment is None else self._environment
        declared = read(source, environment, self._client.namespace)
        await bring(self._client, declared, self._plane.performer.code)

    async def get(self, kind: str, name: str) -> Any:
        type_: Any = _kind(kind).type
        return await self._client.get(type_, name)

    async def list(self, kind: str, labels: str) -> list[Any]:
        type_: Any = _kind(kind).type
        found = await self._client.list(type_, labels=labels)
        return sorted(found.items, key=lambda one: str(one.metadata.name))

    async def delete(self, kind: str, name: str) -> None:
        await self._client.delete(_kind(kind), name, propagation="Background")

    # Schedules and tasks.

    async def enable(self, schedule: str, *, enabled: bool) -> None:
        await self._named(Schedule, schedule)
        await self._client.patch(Schedule.api, schedule, {"spec": {"enabled": enabled}})

    async def run(self, schedule: str) -> str:
        found: Schedule = await self._named(Schedule, schedule)
        name = manual_name(found, metadata.random_bytes(NONCE_BYTES).hex())
        await self._client.create(task_of(found, int(self._plane.clock.time()), name, MANUAL))
        return name

    async def cancel(self, task: str) -> None:
        await self._named(Task, task)
        await self._client.patch(Task.api, task, {"spec": {"cancel": True}})

    # Claims and instances.

    async def claim(
        self,
        pool: str,
        name: str,
        *,
        lease: timedelta | float | None,
        wait: timedelta | float | None,
        priority: int,
    ) -> str:
        await self._named(WorkerPool, pool)
        spec: dict[str, Any] = {"poolRef": {"name": pool}, "holder": HOLDER, "priority": priority}
        for field, value in (("leaseSeconds", lease), ("waitSeconds", wait)):
            if value is not None:
                spec[field] = _whole_seconds(field, value)
        name = name or f"{pool}-{metadata.random_bytes(CLAIM_NAME_BYTES).hex()}"
        body = {"apiVersion": Claim.api.api_version, "kind": Claim.api.name, "metadata": {"name": name}, "spec": spec}
        await self._client.create(body)
        return name

    async def renew(self, claim: str) -> None:
        await self._named(Claim, claim)
        now = datetime.fromtimestamp(self._plane.clock.time(), UTC)
        await self._client.patch(Claim.api, claim, {"spec": {"renewTime": now.isoformat()}})

    async def release(self, claim: str) -> None:
        await self._named(Claim, claim)
        await self._client.patch(Claim.api, claim, {"spec": {"release": True}})

    async def kill(self, instance: str) -> None:
        await self._named(Instance, instance)
        await self._plane.kill(instance)

    async def know(self, name: str) -> None:
        """Raise LookupError unless a name identifies calls."""
        there = [one for kind in NAMED for one in await self.list(kind.api.name, "")]
        names = {one.metadata.name for one in there}
        if name not in names:
            hint = "a task that is still to come is known by its pool: look at call.task"
            raise LookupError(_missing("function, pool, schedule or task", name, names, hint))

    # Functions.

    async def function(self, name: str) -> Function:
        found: Function = await self._named(Function, name)
        return found

    async def submit(self, function: str, event: Any) -> str:
        found = await self.function(function)
        body = json.dumps({} if event is None else event).encode()
        return await self._plane.serving.asynchronous.make(found, body, is_repeatable=True)

    def module(self, function: Function) -> ModuleType:
        code = self._plane.performer.code
        if not code.is_here(function):
            raise LookupError(f"Function/{function.metadata.name} has no Python code that is here")
        try:
            return code.handler(function)[0]
        finally:
            code.leave()

    # Lookups.

    async def known_schedule(self, name: str) -> None:
        await self._named(Schedule, name)

    async def _named(self, kind: type[Any], name: str) -> Any:
        type_: Any = kind
        try:
            return await self._client.get(type_, name)
        except ApiError as error:
            if error.code != 404:
                raise
        there = {one.metadata.name for one in await self.list(kind.api.name, "")}
        raise LookupError(_missing(kind.api.singular, name, there))

    def not_idle(self, passed: float) -> NotIdle:
        """Return the error that names the unfinished tasks, with their states."""
        under_way = self._plane.record.under_way()
        named = [f"{task.metadata.name}: {_state(task)}" for task in under_way[:NAMED_MAX]]
        more = f" and {len(under_way) - NAMED_MAX} more" if len(under_way) > NAMED_MAX else ""
        return NotIdle(f"after {timedelta(seconds=passed)} these are not over: {'; '.join(named)}{more}")


def _kind(name: str) -> Kind:
    kind = KINDS.get(name)
    if kind is None:
        raise LookupError(_missing("kind", name, set(KINDS)))
    return kind


def _whole_seconds(field: str, value: timedelta | float) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds != int(seconds):
        raise ValueError(f"{field}: {seconds:g}: a claim has whole seconds")
    return int(seconds)


def _missing(what: str, name: str, there: set[str], hint: str = "") -> str:
    near = get_close_matches(name, there, 1)
    known = (
        f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(there))}" if there else "there is none"
    )
    return f"there is no {what} {name}: {known}" + (f" ({hint})" if hint else "")


def _state(task: Task) -> str:
    status = task.status
    if status is None or status.phase is None:
        return "Waiting"
    return ", ".join(part for part in (status.phase, status.reason, status.message) if part)
