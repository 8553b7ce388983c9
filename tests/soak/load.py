"""Everything that comes and goes on a server, at bounded rates: each stream ends a round before it begins the next.

A stream whose round fails goes on with the next: while the server is restarted, most do. What came of the rounds is
counted. Every object that is made is deleted again, or goes by itself within seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from rota import Client
from rota.api import Claim, Event, Function, Namespace, Schedule, Task
from rota.control.functions.recording import DELETED_AT_ONCE, KEPT_MAX
from rota.control.schedules.making import MANUAL, manual_name, task_of
from rota.registry import ApiError

API = "rota.dev/v1alpha1"
CALLERS = 2
CALLS_PER_SECOND = 20.0
"""The rate of each caller."""
FILL_CALLS = KEPT_MAX + 3 * DELETED_AT_ONCE
"""From so many calls on, the oldest are taken away. Until then they are made as fast as they can be."""
TICKING = 5
"""Schedules that tick every minute."""
TTL_SECONDS = 1
DEPLOYS = 10
"""Versions of a function before it is deleted, and made anew under its name."""
ROUND_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.1
TROUBLE_PAUSE_SECONDS = 0.5
WATCH_SECONDS = 0.5
SHELL = "trap 'exit 0' TERM; while :; do sleep 0.2; done"

Round = Callable[[Client, int], Awaitable[None]]


class Load:
    """Streams of calls, tasks, claims, runs of schedules, deploys, watches, and namespaces that come and go."""

    def __init__(self, home: Path, namespace: str = "default") -> None:
        self.home = home
        self.namespace = namespace
        self.done: Counter[str] = Counter(dict.fromkeys((name for name, _, _ in self._rounds()), 0))
        """Rounds that went well, by the stream."""
        self.troubles: Counter[str] = Counter()
        """Rounds that did not: the stream and the kind of error."""
        self._is_over = asyncio.Event()
        self._streams: list[asyncio.Task[None]] = []
        self._versions = itertools.count(1)

    async def prepare(self) -> None:
        """Deploy what the load is put on."""
        client = self._client()
        try:
            for body in _objects():
                await client.apply(body, force=True)
        finally:
            await client.close()

    def _client(self) -> Client:
        return Client.connect(home=self.home, namespace=self.namespace)

    def begin(self) -> None:
        self._streams = [asyncio.create_task(self._stream(*one), name=one[0]) for one in self._rounds()]

    def _rounds(self) -> list[tuple[str, float, Round]]:
        """The streams: the name, the pause between the beginnings of two rounds, and a round."""
        return [
            *[("call", 1 / CALLS_PER_SECOND, self._call)] * CALLERS,
            ("function task", 0.5, self._function_task),
            ("command task", 0.5, self._command_task),
            ("deleted task", 2.0, self._deleted_task),
            ("claim", 0.5, self._claim),
            ("schedule run", 2.0, self._schedule_run),
            ("deploy", 6.0, self._deploy),
            ("namespace", 8.0, self._namespace),
            ("watch", 0.5, self._watch),
            ("events", 10.0, self._delete_events),
        ]

    @property
    def is_filled(self) -> bool:
        """Return whether as many calls were made as are kept."""
        return self.done["call"] >= FILL_CALLS

    async def end(self) -> None:
        """End after the rounds that are under way."""
        self._is_over.set()
        await asyncio.wait(self._streams, timeout=2 * ROUND_SECONDS_MAX)
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)

    async def _stream(self, name: str, pause: float, round_: Round) -> None:
        client = self._client()
        try:
            for number in itertools.count():
                if self._is_over.is_set():
                    return
                began = time.monotonic()
                try:
                    async with asyncio.timeout(ROUND_SECONDS_MAX):
                        await round_(client, number)
                    self.done[name] += 1
                except Exception as error:
                    self.troubles[f"{name}: {type(error).__name__}"] += 1
                    await client.close()
                    client = self._client()
                    await self._rest(TROUBLE_PAUSE_SECONDS)
                if name != "call" or self.is_filled:
                    await self._rest(began + pause - time.monotonic())
        finally:
            await client.close()

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), max(0.0, seconds))

    async def come_and_go(self, rounds: int) -> None:
        """Deploy everything in a namespace of its own, have every stream do some rounds, and delete the namespace."""
        client = self._client()
        try:
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
            await self.prepare()
            for number in range(rounds):
                async with asyncio.timeout(ROUND_SECONDS_MAX * rounds):
                    await asyncio.gather(*(round_(client, number) for _, _, round_ in self._rounds()))
            await client.delete(Namespace, self.namespace)
            await gone(client, Namespace, self.namespace)
        finally:
            await client.close()

    # Rounds.

    async def _call(self, client: Client, number: int) -> None:
        assert await self._answer("steady") == {"version": 0}

    async def _answer(self, function: str) -> Any:
        """Return the answer of a function."""
        path = f"/{self.namespace}/{function}/"
        edge = json.loads((self.home / "server.json").read_bytes())["edge"]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(edge.rpartition(":")[2]))
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        status = head.split(maxsplit=2)[1:2]
        assert status == [b"200"], f"{path} is answered {head[:40]!r} {body[:100]!r}"
        return json.loads(body)

    async def _function_task(self, client: Client, number: int) -> None:
        await self._run(client, f"call-{number}", {"function": {"name": "steady"}})

    async def _command_task(self, client: Client, number: int) -> None:
        await self._run(client, f"command-{number}", {"command": ["true"], "workerPoolRef": {"name": "workers"}})

    @staticmethod
    async def _run(client: Client, name: str, spec: dict[str, Any], namespace: str | None = None) -> None:
        """Make a task, and wait until it is over and gone. Its name is used again by later rounds after a restart."""
        await _no_more(client, name, namespace)
        body = _object("Task", name, {**spec, "ttlSecondsAfterFinished": TTL_SECONDS})
        await client.create(body, namespace=namespace)
        await gone(client, Task, name, namespace)

    async def _deleted_task(self, client: Client, number: int) -> None:
        """A task that goes while it waits or runs, and whose name the next one has."""
        spec = {"command": ["sleep", "30"], "workerPoolRef": {"name": "workers"}}
        await _no_more(client, "deleted")
        await client.create(_object("Task", "deleted", spec))
        if number % 2:
            await until(lambda: _is(client, Task, "deleted", lambda task: task.status and task.status.instance_name))
        await client.delete(Task, "deleted")
        await gone(client, Task, "deleted")

    async def _claim(self, client: Client, number: int) -> None:
        async with client.claim("boxes", wait_seconds=30, lease_seconds=20) as box:
            name = box.name
            if number % 5 == 0:
                assert (await box.exec("echo $((6 * 7))")).stdout == "42\n"
        with contextlib.suppress(ApiError):
            await client.delete(Claim, name)

    async def _schedule_run(self, client: Client, number: int) -> None:
        """Do as `rota schedule run`."""
        found = await client.get(Schedule, "by-hand")
        name = manual_name(found, f"{number:x}-{time.time_ns():x}"[-8:])
        await client.create(task_of(found, int(time.time()), name, MANUAL))
        await until(lambda: _is(client, Task, name, lambda task: task.over()))

    async def _deploy(self, client: Client, number: int) -> None:
        version = next(self._versions)
        if number % DEPLOYS == DEPLOYS - 1:
            # Its calls go with it, and what comes then has its name.
            await client.delete(Function, "changing")
        await client.apply(_function("changing", version), force=True)

        async def is_answered() -> bool:
            with contextlib.suppress(AssertionError):
                return bool(await self._answer("changing") == {"version": version})
            return False

        await until(is_answered)

    async def _namespace(self, client: Client, number: int) -> None:
        """A project that is deployed, used and deleted as a whole."""
        name = f"project-{time.time_ns():x}"
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        try:
            for body in _project():
                await client.apply(body, namespace=name, force=True)
            if number % 2 == 0:
                await self._run(client, "once", {"function": {"name": "passing"}}, name)
        finally:
            await client.delete(Namespace, name)
        await gone(client, Namespace, name)

    async def _watch(self, client: Client, number: int) -> None:
        """A watch that is left in the middle; by turns without a word."""
        watch: Any = client.watch(Task)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WATCH_SECONDS), contextlib.aclosing(watch) as changes:
                async for _ in changes:
                    if number % 2:
                        break

    async def _delete_events(self, client: Client, number: int) -> None:
        await client.delete_collection(Event)


async def until(so: Callable[[], Awaitable[Any]]) -> None:
    """Return when it is so. Every round has a deadline of its own."""
    while not await so():
        await asyncio.sleep(LOOK_SECONDS)


async def _is(client: Client, kind: Any, name: str, so: Callable[[Any], Any]) -> bool:
    """Return whether an object is like that, or gone: schedules delete the oldest of their runs."""
    try:
        return bool(so(await client.get(kind, name)))
    except ApiError as error:
        if error.code != 404:
            raise
        return True


async def _no_more(client: Client, task: str, namespace: str | None = None) -> None:
    """Delete a task of an earlier round, which a restart of the server has cut short."""
    with contextlib.suppress(ApiError):
        await client.delete(Task, task, namespace=namespace)
    await gone(client, Task, task, namespace)


async def gone(client: Client, kind: Any, name: str, namespace: str | None = None) -> None:
    async def is_gone() -> bool:
        try:
            await client.get(kind, name, namespace=namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return True
        return False

    await until(is_gone)


# Objects.


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _function(name: str, version: int) -> dict[str, Any]:
    code = f"def handler(event, context):\n    return {{'version': {version}}}\n"
    spec = {"entrypoint": "app:handler", "public": True, "source": {"inline": code}, "scale": {"max": 2}}
    return _object("Function", name, spec)


def _pool(name: str, replicas: int) -> dict[str, Any]:
    main = {"name": "main", "command": ["sh", "-c", SHELL]}
    template = {"containers": [main], "terminationGracePeriodSeconds": 0}
    return _object("WorkerPool", name, {"replicas": replicas, "template": template})


def _schedule(name: str, cron: str, function: str) -> dict[str, Any]:
    spec = {"cron": cron, "target": {"functionRef": {"name": function}}, "history": {"succeeded": 1, "failed": 1}}
    return _object("Schedule", name, spec)


def _objects() -> Iterator[dict[str, Any]]:
    yield _function("steady", 0)
    yield _function("changing", 0)
    yield _pool("boxes", 2)
    yield _object("WorkerPool", "workers", {"replicas": 2, "worker": {"type": "shell"}})
    yield _schedule("by-hand", "0 0 1 1 *", "steady")
    for number in range(TICKING):
        yield _schedule(f"ticking-{number}", "* * * * *", "steady")


def _project() -> Iterator[dict[str, Any]]:
    yield _function("passing", 1)
    yield _pool("passing", 1)
    yield _schedule("passing", "* * * * *", "passing")
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "passing"}, "stringData": {"key": "value"}}
