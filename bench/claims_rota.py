"""Rota as `bench.claims` measures it: `rota up` as a process, its pools, and clients over HTTPS."""

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
"""Idle time after which a client closes a connection: longer than any load."""
OPENED_TOGETHER = 250
"""Connections opened at once. The server ends handshakes that take too long, as those of more would."""
RELEASED_TOGETHER = 100
EXEC_PROTOCOL = "v5.channel.k8s.io"
EXEC_STATUS = 3
"""The channel of the exit status."""


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
    """A bound claim."""

    name: str
    answer: bytes


class Claims:
    """Claims of one pool, over connections that are already open.

    Releases have connections of their own, so that they never wait behind claims.
    """

    _numbers = count()

    def __init__(self, pool: Pool, claiming: HttpBackend, releasing: HttpBackend) -> None:
        self._pool = pool
        self._claiming = claiming
        self._releasing = releasing

    async def claim(self) -> Held:
        """Claim an instance. Returns when it accepts commands."""
        name = f"claim-{next(self._numbers)}"
        answer = await self._claiming.raw("POST", self._pool.path, b'{"name":"%b"}' % name.encode())
        assert answer.status == 201, answer.body
        return Held(name, answer.body)

    async def release(self, held: Held) -> None:
        await self._releasing.raw("DELETE", f"/v1/claims/{NAMESPACE}/{held.name}")

    async def run(self, held: Held) -> None:
        """Run `true` in a claimed instance."""
        instance = msgspec.json.decode(held.answer)["claim"]["status"]["instanceName"]
        path, exit_status = f"/v1/exec/{NAMESPACE}/{instance}?stdout=true&command=true", b""
        async with self._claiming.websocket(path, protocols=(EXEC_PROTOCOL,)) as websocket:
            async for message in websocket:
                if isinstance(message, bytes) and message[0] == EXEC_STATUS:
                    exit_status = message[1:]
        assert msgspec.json.decode(exit_status)["status"] == "Success", exit_status


class Rota:
    """A server and a client. Made by `rota`."""

    def __init__(self, server: Server, backend: HttpBackend) -> None:
        self.server = server
        self._backend = backend
        self._client = Client(backend, manager="bench", namespace=NAMESPACE)

    async def pool(self, pool: Pool, replicas: int) -> None:
        """Give a pool this number of replicas. Returns when all are idle."""
        metadata = {"name": pool.name, "namespace": NAMESPACE}
        spec = {**pool.spec, "replicas": replicas}
        declared = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": metadata, "spec": spec}
        await self._client.apply(declared, force=True)
        await self.until_idle(pool)

    async def until_idle(self, pool: Pool) -> None:
        """Wait until all instances of a pool are ready, and nobody holds or waits for one."""
        found: WorkerPool | None = None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not is_all_idle(found := await self._client.get(WorkerPool, pool.name)):
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"WorkerPool/{pool.name} is not idle: {found and found.status}") from None

    async def revision(self) -> int:
        """Return the revision of the store, which is the number of writes so far."""
        answer = await self._backend.raw("GET", "/v1/status")
        revision: int = msgspec.json.decode(answer.body)["revision"]
        return revision

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.server.process.pid)

    def memory_mib(self) -> float:
        return memory_mib(self.server.process.pid)

    @contextlib.asynccontextmanager
    async def claims(self, pool: Pool, connections: int) -> AsyncIterator[Claims]:
        """Open the connections for this number of concurrent claims."""
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
            # Open connections take a request each, so the remaining requests open new ones.
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
    """End a server and all that it runs, even while it starts."""
    if "process" not in vars(server):
        return
    # On Ctrl-C the terminal signals the server, too: it may have ended already.
    with contextlib.suppress(ProcessLookupError):
        server.process.send_signal(signal.SIGTERM)
    await server.process.wait()
    # A server that was ended during its start leaves processes behind.
    await stop(Home(server.home), grace_seconds=0.0)
