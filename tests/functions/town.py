"""A real server with real sandboxes, in the test's own event loop, whose functions are called over HTTP."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rota.api import Function, Instance, Task
from rota.client import Client
from rota.runtime.runner.agent import descendants
from rota.server.main import run
from tests.until import until_async
from tests.workers.farm import environments
from tests.workers.running import command_of

PATIENCE_SECONDS = 40.0
LOOK_SECONDS = 0.02
API = "rota.dev/v1alpha1"


class Reply(NamedTuple):
    """An answer of the edge."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def call(self) -> str:
        """The task that the call is written down as."""
        return self.headers["x-rota-call"]


class Town:
    """A server, and how its functions are called."""

    def __init__(self, home: Path, client: Client, port: int) -> None:
        self.home = home
        self.client = client
        self.port = port

    async def deploy(self, name: str, code: str, **spec: Any) -> None:
        """A function of inline code; one that is there is changed. It is public unless it is said."""
        more = {"entrypoint": "app:handler", "public": True, "source": {"inline": textwrap.dedent(code)}, **spec}
        body = {"apiVersion": API, "kind": "Function", "metadata": {"name": name}, "spec": more}
        await self.client.apply(body, force=True)

    async def call(
        self,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        sent = {"Host": "localhost", "Content-Length": str(len(body)), "Connection": "close", **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
            async with asyncio.timeout(PATIENCE_SECONDS):
                whole = await reader.read()
        finally:
            writer.close()
        head_bytes, _, content = whole.partition(b"\r\n\r\n")
        first, *lines = head_bytes.decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        return Reply(int(first.split()[1]), {name.lower(): value for name, _, value in pairs}, content)

    async def until(self, what: Callable[[], Any]) -> Any:
        """Return the first true value of `what`, which may be a coroutine function."""
        return await until_async(what)

    async def function(self, name: str, so: Callable[[Function], Any] = lambda found: True) -> Function:
        """A function, when it is like that."""

        async def looked() -> Function | None:
            found: Function = await self.client.get(Function, name)
            return found if so(found) else None

        made: Function = await self.until(looked)
        return made

    async def task(self, name: str, so: Callable[[Task], Any] = lambda found: found.over()) -> Task:
        """A task, when it is like that: over, unless it is said."""

        async def looked() -> Task | None:
            found: Task = await self.client.get(Task, name)
            return found if so(found) else None

        made: Task = await self.until(looked)
        return made

    async def instances(self, name: str) -> list[Instance]:
        """The workers of a function."""
        found = (await self.client.list(Instance)).items
        return [one for one in found if one.spec.handler is not None and one.spec.handler.function == name]

    async def workers(self, name: str, count: int) -> list[Instance]:
        """When there are so many, and none is going."""

        async def looked() -> list[Instance] | None:
            found = await self.instances(name)
            is_so = len(found) == count and all(one.metadata.deletion_timestamp is None for one in found)
            return (found or [None]) if is_so else None  # type: ignore[list-item]

        made: list[Instance] = await self.until(looked)
        return made

    def log(self, task: str) -> str:
        """Return the output of a call."""
        found = list((self.home / "tasks" / "default").glob(f"{task}@*.log"))
        return found[0].read_text() if found else ""

    def runners(self) -> list[int]:
        """The processes outside of the boxes, one for each worker."""
        mine = [
            pid for pid, text in environments().items() if f"ROTA_HOME={self.home}\0" in text and "ROTA_RUN=" in text
        ]
        return [pid for pid in mine if "rota.runtime.runner" in command_of(pid)]

    def processes(self, words: str) -> list[int]:
        """The processes of this server's boxes that have these words in their command."""
        return [pid for runner in self.runners() for pid in descendants(runner) if words in command_of(pid)]

    async def written(self, words: str) -> None:
        """Returns when some call has written this."""
        await self.until(lambda: any(words in one.read_text() for one in (self.home / "tasks").glob("*/*.log")))

    async def served(self, path: str) -> Reply:
        """The answer to a call, when there is a good one: a server that has just come up may have to find itself."""

        async def good() -> Reply | None:
            reply = await self.call(path)
            return reply if reply.status == 200 else None

        made: Reply = await self.until(good)
        return made

    async def run(self, name: str, function: str, payload: dict[str, Any] | None = None, **spec: Any) -> None:
        """Make a task that calls a function."""
        call = {"name": function, "payload": payload or {}}
        body = {"apiVersion": API, "kind": "Task", "metadata": {"name": name}, "spec": {"function": call, **spec}}
        await self.client.create(body)


def ready(found: Function) -> Any:
    """The reason of the condition Ready."""
    condition = found.status.condition("Ready") if found.status is not None else None
    return condition.reason if condition is not None else ""


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[Town]:
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(home, port=0, on_ready=started.set_result, stop=stop))
    await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    client = Client.connect(home=home)
    try:
        yield Town(home, client, int(started.result().edge.rpartition(":")[2]))
    finally:
        await client.close()
        stop.set()
        await asyncio.wait_for(task, PATIENCE_SECONDS)
