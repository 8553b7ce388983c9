"""A real server on loopback, in the test's own event loop, with a real file and real TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rota.server.main import Ready, run

POOLS = "/apis/rota.dev/v1alpha1/namespaces/default/workerpools"


@dataclass
class Reply:
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    body: bytes
    warnings: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """Where the server is, and ways to speak to it: properly, and not."""

    def __init__(self, ready: Ready, home: Path, running: asyncio.Task[None]) -> None:
        self.home = home
        self.running = running
        self.url = ready.url
        self.port = int(ready.url.rpartition(":")[2])
        self.socket = ready.socket
        self.kubeconfig = ready.kubeconfig
        config = json.loads(ready.kubeconfig.read_text())
        self.token: str = config["users"][0]["user"]["token"]
        self.tls = ssl.create_default_context(cafile=str(home / "ca.crt"))

    async def connect(self, *, unix: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if unix:
            return await asyncio.open_unix_connection(str(self.socket))
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = "",
        unix: bool = False,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """One request on a connection of its own. `token`: empty for the admin's, None for no token."""
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"Host": f"127.0.0.1:{self.port}", "Content-Length": str(len(content)), "Connection": "close"}
        if not unix and token is not None:
            sent["Authorization"] = f"Bearer {token or self.token}"
        if body is not None:
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in sent.items()) + "\r\n"
        return await self.raw(head.encode() + content, unix=unix)

    async def raw(self, data: bytes, *, unix: bool = False) -> Reply:
        """Send bytes as they are, and read the answer until the server hangs up."""
        reader, writer = await self.connect(unix=unix)
        try:
            writer.write(data)
            await writer.drain()
            return parsed(await reader.read(-1))
        finally:
            writer.close()


def parsed(data: bytes) -> Reply:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    headers = dict(pairs)
    if headers.get("transfer-encoding") == "chunked":
        whole = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
        body = whole
    return Reply(int(first.split()[1]), headers, body, [v for n, v in pairs if n == "warning"])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as running:
        yield running


@asynccontextmanager
async def served(home: Path, **options: Any) -> AsyncIterator[Server]:
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    running = asyncio.create_task(run(home, port=0, on_ready=started.set_result, stop=stop, **options))
    await asyncio.wait((running, started), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    yield Server(started.result(), home, running)
    stop.set()
    await asyncio.wait_for(running, 10)


def pool(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": {"worker": {"type": "shell"}, **spec},
    }
