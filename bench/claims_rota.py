"""Rota for `bench.claims`: `rota up` as a process of its own, pools to claim from, and clients of it over HTTPS."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.instances import Server
from bench.instances_peers import COMMAND, cpu_seconds, memory_mib
from rota.api import WorkerPool
from rota.client import Client, HttpBackend
from rota.client.connection import Limits
from rota.client.target import find
from rota.server.home import Home
from rota.server.stopping import stop

NAMESPACE = "default"
PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.01
CONNECT_SECONDS = 60.0
IDLE_SECONDS = 120.0
"""Connections are open before anything is measured, and stay so."""
OPENED_TOGETHER = 250
"""More at once would wait for their handshakes for longer than the server does."""
RELEASED_TOGETHER = 100
EXEC_PROTOCOL = "v5.channel.k8s.io"
EXEC_STATUS = 3
"""The channel that tells how a command has ended."""


class Pool(NamedTuple):
    """A pool that instances are claimed from."""

    name: str
    spec: dict[str, Any]

    @property
    def path(self) -> str:
        return f"/v1/pools/{NAMESPACE}/{self.name}/claims"


BOXES = Pool(
    "boxes",
    {
        "template": {
            "isolation": "none",
            "containers": [{"name": "main", "command": [*COMMAND]}],
            "terminationGracePeriodSeconds": 0,
        },
        "reset": "Keep",
    },
)
WORKERS = Pool("workers", {"worker": {"type": "shell"}, "reset": "Clean"})


class Held(NamedTuple):
    """A claim that has got an instance."""

    name: str
    answer: bytes


class Claims:
    """Claims of one pool, over connections that were open before.

    Releases have connections of their own: they must not stand behind claims that wait for them.
    """

    _numbers = count()

    def __init__(self, pool: Pool, claiming: HttpBackend, releasing: HttpBackend) -> None:
        self._pool = pool
        self._claiming = claiming
        self._releasing = releasing

    async def claim(self) -> Held:
        """Returns when commands can be run in the instance."""
        name = f"claim-{next(self._numbers)}"
        answer = await self._claiming.raw("POST", self._pool.path, b'{"name":"%b"}' % name.encode())
        assert answer.status == 201, answer.body
        return Held(name, answer.body)

    async def release(self, held: Held) -> None:
        await self._releasing.raw("DELETE", f"/v1/claims/{NAMESPACE}/{held.name}")

    async def run(self, held: Held) -> None:
        """Run a command that does nothing in the instance that is held."""
        instance = msgspec.json.decode(held.answer)["claim"]["status"]["instanceName"]
        path, told = f"/v1/exec/{NAMESPACE}/{instance}?stdout=true&command=true", b""
        async with self._claiming.websocket(path, protocols=(EXEC_PROTOCOL,)) as websocket:
            async for message in websocket:
                if isinstance(message, bytes) and message[0] == EXEC_STATUS:
                    told = message[1:]
        assert msgspec.json.decode(told)["status"] == "Success", told


class Rota:
    """A server. Use `rota`."""

    def __init__(self, server: Server, backend: HttpBackend) -> None:
        self.server = server
        self._backend = backend
        self._client = Client(backend, manager="bench", namespace=NAMESPACE)

    async def pool(self, pool: Pool, replicas: int) -> None:
        """Have a pool of so many. Returns when all are free."""
        metadata = {"name": pool.name, "namespace": NAMESPACE}
        spec = {**pool.spec, "replicas": replicas}
        declared = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": metadata, "spec": spec}
        await self._client.apply(declared, force=True)
        await self.settled(pool)

    async def settled(self, pool: Pool) -> None:
        """Returns when nobody holds or waits for an instance of a pool, and all are ready."""
        seen: WorkerPool | None = None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not is_all_idle(seen := await self._client.get(WorkerPool, pool.name)):
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"WorkerPool/{pool.name} does not come to rest: {seen and seen.status}") from None

    async def revision(self) -> int:
        """Of the store: how many objects have been written so far."""
        answer = await self._backend.raw("GET", "/v1/status")
        revision: int = msgspec.json.decode(answer.body)["revision"]
        return revision

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.server.process.pid)

    def memory_mib(self) -> float:
        return memory_mib(self.server.process.pid)

    @contextlib.asynccontextmanager
    async def claims(self, pool: Pool, connections: int) -> AsyncIterator[Claims]:
        """So many claims can be asked for at once. All connections are open."""
        home = self.server.home
        async with connected(home, connections) as claiming, connected(home, RELEASED_TOGETHER) as releasing:
            yield Claims(pool, claiming, releasing)


def is_all_idle(pool: WorkerPool) -> bool:
    status, wanted = pool.status, pool.spec.replicas
    if status is None or pool.readiness().state != "Ready":
        return False
    return (status.replicas, status.idle, status.busy, status.waiting) == (wanted, wanted, 0, 0)


@contextlib.asynccontextmanager
async def connected(home: Path, connections: int) -> AsyncIterator[HttpBackend]:
    limits = Limits(connections=connections, connect_seconds=CONNECT_SECONDS, idle_seconds=IDLE_SECONDS)
    backend = HttpBackend(find(None, home / "kubeconfig", None), limits=limits)
    try:
        for opened in range(0, connections, OPENED_TOGETHER):
            # Those that are open already take a request each, so that the others need a new connection.
            together = min(opened + OPENED_TOGETHER, connections)
            await asyncio.gather(*(backend.raw("GET", "/version") for _ in range(together)))
        yield backend
    finally:
        await backend.close()


@contextlib.asynccontextmanager
async def rota(home: Path) -> AsyncIterator[Rota]:
    server = Server(home)
    try:
        await server.start()
        async with connected(home, 1) as backend:
            yield Rota(server, backend)
    finally:
        await ended(server)


async def ended(server: Server) -> None:
    """End it and all that it runs, at whatever instant that is asked for."""
    if "process" not in vars(server):
        return
    # A terminal tells it of Ctrl-C, too: it may have ended by itself.
    with contextlib.suppress(ProcessLookupError):
        server.process.send_signal(signal.SIGTERM)
    await server.process.wait()
    # One that was ended while it came up has left something.
    await stop(Home(server.home), grace_seconds=0.0)
