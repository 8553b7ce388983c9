"""The TaskSpawner controller: each item of a source becomes one Task, within the spawner's limits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from rota.api import Condition, Task, TaskSpawner
from rota.api.spawner import ITEMS_MAX, GitHubSource, TaskSpawnerStatus
from rota.api.templates import TemplateError
from rota.client import Client, Key
from rota.client.connection import Limits
from rota.control.gate import Problem, ReadyGate, status_of, with_conditions
from rota.control.spawners.apis import API_NOT_ALLOWED, Api, Apis
from rota.control.spawners.github import PollError
from rota.control.spawners.hooks import Hooks
from rota.control.spawners.items import Item, tail_of, task_name
from rota.control.spawners.listing import LIMITS, ListRequest, read
from rota.control.spawners.making import Body, TaskMaker, adopted, capacity_of, task_of, with_tasks
from rota.control.spawners.poll import Poll
from rota.control.spawners.statuses import (
    invalid_task,
    is_complete,
    pause_before,
    recorded_problem,
    template_problem,
    with_ready,
)
from rota.control.values import secret
from rota.engine import DONE, Context, Done, Objects, Outcome, Promise
from rota.engine.clock import Clock
from rota.registry import ApiError

MADE_AT_ONCE_MAX = 50
"""Tasks in one commit."""
CONCURRENCY = 32
"""Spawners that are reconciled, and so polled, at the same time."""
TIMEOUT_SECONDS = 180.0
SPIN_RUNS_MAX = 5_000
"""Reconciliations of a spawner that are not a spin: each change of one of its many Tasks may wake it."""
TOKEN_KEY = "token"
TOO_MANY = f"more than {ITEMS_MAX} items are listed: only those that changed last are read; narrow them with labels"


class Spawning:
    """The part of spawners beside their controller: it takes deliveries while this process leads."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        clock: Clock,
        apis: Apis | None = None,
        *,
        limits: Limits = LIMITS,
    ) -> None:
        self.apis = apis or Apis()
        self.limits = limits
        self.maker = TaskMaker(client, objects)
        self.hooks = Hooks(client, objects, self.maker, clock)

    def begin(self) -> Callable[[], None]:
        """Take deliveries from now on. Returns a function that ends that."""
        end_making = self.maker.begin()
        self.hooks.serves = True

        def end() -> None:
            self.hooks.serves = False
            end_making()

        return end


class Spawners(ReadyGate[TaskSpawner]):
    """Polls sources, creates the Tasks of waiting items, and writes the status."""

    owns = (Task,)
    follows = True
    concurrency = CONCURRENCY
    timeout_seconds = TIMEOUT_SECONDS
    spin_runs_max = SPIN_RUNS_MAX

    def __init__(self, spawning: Spawning) -> None:
        super().__init__(TaskSpawner)
        self._spawning = spawning
        self._maker = spawning.maker
        self._polls: dict[Key, Poll] = {}
        self._written: dict[Key, float] = {}

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        return self._spawning.begin()

    def gone(self, context: Context, key: Key) -> Promise:
        self._polls.pop(key, None)
        self._written.pop(key, None)
        return DONE

    async def go_on(self, context: Context, obj: TaskSpawner, opened: list[Condition]) -> Outcome:
        problem, github = template_problem(obj), obj.spec.source.github
        if github is not None and problem is None and not obj.spec.suspend and not is_complete(obj, status_of(obj)):
            return await self._go_on_polling(context, obj, github, opened)
        self._polls.pop(_key(obj), None)
        if github is None:
            # The problem of a delivery stays until another delivery succeeds.
            problem = problem or recorded_problem(obj)
        return await self._write_status(context, obj, opened, problem)

    # Polling.

    async def _go_on_polling(
        self, context: Context, obj: TaskSpawner, source: GitHubSource, opened: list[Condition]
    ) -> Outcome:
        api = self._spawning.apis.find(source.api_url)
        if api is None:
            message = self._spawning.apis.refusal(source.api_url) or ""
            return await self._write_status(context, obj, opened, Problem(API_NOT_ALLOWED, message))
        poll = self._poll(context, obj, source)
        if context.clock.now() >= poll.due:
            await self._read(context, obj, source, api, poll)
        obj = await self._make_waiting(context, obj, poll)
        return await self._write_status(context, obj, opened, poll.problem, poll)

    def _poll(self, context: Context, obj: TaskSpawner, source: GitHubSource) -> Poll:
        key = _key(obj)
        basis = (obj.metadata.uid, source, self._token(context, obj, source))
        poll = self._polls.get(key)
        if poll is None or poll.basis != basis:
            poll = self._polls[key] = Poll(basis, context.clock.now())
        poll.retry_refused(obj.metadata.generation)
        return poll

    @staticmethod
    def _token(context: Context, obj: TaskSpawner, source: GitHubSource) -> str:
        """Return the token of a source: the value of `token` in its Secret, or the only value."""
        if source.secret_ref is None:
            return ""
        values = secret(context.objects, obj.metadata.namespace, source.secret_ref.name)
        only = next(iter(values.values())) if len(values) == 1 else b""
        return values.get(TOKEN_KEY, only).decode("utf-8", "replace").strip()

    async def _read(self, context: Context, obj: TaskSpawner, source: GitHubSource, api: Api, poll: Poll) -> None:
        clock, every = context.clock, float(source.poll_seconds)
        request = ListRequest(
            api,
            source,
            self._token(context, obj, source),
            poll.etag(clock.now()),
            clock.time(),
            lambda item: task_name(obj.metadata.name, item),
            self._maker.is_made(obj),
        )
        poll.polled_at = clock.time()
        try:
            if source.secret_ref is not None and not request.token:
                raise PollError("CredentialsRefused", f"Secret/{source.secret_ref.name} has no key {TOKEN_KEY}")
            listing = await read(request, limits=self._spawning.limits)
        except PollError as failure:
            poll.failed(failure, clock.now(), every)
            return
        if listing is None:
            poll.unchanged(clock.now(), every)
        else:
            poll.succeeded(listing, clock.now(), every)

    # Making.

    async def _make_waiting(self, context: Context, obj: TaskSpawner, poll: Poll) -> TaskSpawner:
        """Create the Tasks of waiting items, the oldest first, as far as the limits allow."""
        while poll.waiting:
            capacity = capacity_of(obj, len(self._maker.active(obj))).left
            most = MADE_AT_ONCE_MAX if capacity is None else min(capacity, MADE_AT_ONCE_MAX)
            if most == 0:
                break
            obj, refused, why = await self._make(context, obj, poll.waiting[:most], poll)
            del poll.waiting[:most]
            poll.refuse(refused, why)
        return obj

    async def _make(
        self, context: Context, obj: TaskSpawner, items: list[Item], poll: Poll
    ) -> tuple[TaskSpawner, list[Item], Problem | None]:
        """Create the Tasks of these items. Returns the refused items, and the problem of the first."""
        problem: Problem | None = None
        ready: list[tuple[Item, Body]] = []
        left: list[Item] = []
        is_made = self._maker.is_made(obj)
        for item in items:
            if is_made(task_name(obj.metadata.name, item)):
                continue
            try:
                ready.append((item, task_of(context.objects, obj, item)))
            except TemplateError as error:
                left.append(item)
                problem = problem or Problem("TemplateError", f"{item.shown}: {error}")
        if self._maker.atomic:
            try:
                return await self._commit(context, obj, [body for _, body in ready], poll), left, problem
            except ApiError as error:
                if error.reason == "Conflict" or error.code >= 500:
                    raise
        # One by one: a refused Task must not hold up the others.
        for item, body in ready:
            try:
                obj = await self._commit(context, obj, [body], poll)
            except ApiError as error:
                if error.reason == "Conflict" or error.code >= 500:
                    raise
                if error.reason != "AlreadyExists":
                    left.append(item)
                    wrong = invalid_task(error)
                    problem = problem or wrong._replace(message=f"{item.shown}: {wrong.message}")
        return obj, left, problem

    async def _commit(self, context: Context, obj: TaskSpawner, tasks: list[Body], poll: Poll) -> TaskSpawner:
        if not tasks:
            return obj
        names = [task["metadata"]["name"] for task in tasks]
        # The new ones count as listed, whatever the API lists by now.
        listed = poll.listed | {tail_of(name) for name in names}
        active = len(self._maker.active(obj)) + len(tasks)

        def next_status(fresh: TaskSpawner) -> TaskSpawnerStatus:
            status = with_tasks(fresh, names, listed)
            return msgspec.structs.replace(status, active=active, discovered=max(status.created, status.discovered))

        made = await self._maker.make(obj, tasks, next_status)
        self._written[_key(obj)] = context.clock.now()
        return made

    # Writing the status.

    async def _write_status(
        self,
        context: Context,
        obj: TaskSpawner,
        opened: list[Condition],
        problem: Problem | None,
        poll: Poll | None = None,
    ) -> Outcome:
        now, key = context.clock.now(), _key(obj)
        active = self._maker.active(obj)
        known = msgspec.structs.replace(obj, status=adopted(obj, active))
        status = self._counted(with_conditions(context, known, opened), len(active), poll)
        note = TOO_MANY if poll is not None and poll.is_cut else ""
        status = with_ready(obj, status, problem, context.clock.time(), note)
        times = [] if poll is None else [max(0.0, poll.due - now)]
        if status != obj.status:
            pause = pause_before(obj.status, status, now - self._written[key]) if key in self._written else 0.0
            if pause:
                times.append(pause)
            else:
                obj = await context.write_status(obj, status)
                self._written[key] = now
        if problem is not None:
            context.warn_once(obj, problem.reason, problem.message)
        elif note:
            context.warn_once(obj, "TooManyItems", note)
        return Done(again_after=min(times)) if times else DONE

    @staticmethod
    def _counted(status: TaskSpawnerStatus, active: int, poll: Poll | None) -> TaskSpawnerStatus:
        status = msgspec.structs.replace(status, active=active)
        if poll is None or poll.polled_at is None:
            return status
        status = msgspec.structs.replace(status, last_poll_time=datetime.fromtimestamp(int(poll.polled_at), UTC))
        if poll.failure is not None:
            return status
        return msgspec.structs.replace(status, discovered=status.created + poll.undone)


def _key(obj: TaskSpawner) -> Key:
    return Key(obj.metadata.namespace, obj.metadata.name)
