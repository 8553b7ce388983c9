"""Real instances, each kept apart in its own way, and their files as the gateway has them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from rota.runtime import sandbox
from tests.server.live import ROTA, Live, execute
from tests.until import until

SECONDS_MAX = 30.0
SANDBOX = pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox here")
WAYS = ["bare", pytest.param("box", marks=SANDBOX), pytest.param("worker", marks=SANDBOX)]
"""An instance without isolation, one in a sandbox, and the box of a worker."""


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Farm:
    """A server with one instance of each way."""

    def __init__(self, live: Live) -> None:
        self.live = live

    def connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(SECONDS_MAX)
        made.connect(str(self.live.home / "rota.sock"))
        return made

    @staticmethod
    def target(way: str, what: str, path: str | bytes, **more: str) -> str:
        query = "".join(f"&{name}={value}" for name, value in more.items())
        return f"/v1/instances/default/{way}-0/{what}?path={quote(path, safe='')}{query}"

    def ask(
        self, method: str, way: str, path: str | bytes, body: bytes = b"", what: str = "files", **more: str
    ) -> Reply:
        head = f"{method} {self.target(way, what, path, **more)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        with self.connect() as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            return read(connection)

    def get(self, way: str, path: str | bytes, **more: str) -> Reply:
        return self.ask("GET", way, path, b"", **more)

    def put(self, way: str, path: str | bytes, body: bytes, **more: str) -> Reply:
        return self.ask("PUT", way, path, body, **more)

    def shell(self, way: str, script: str) -> str:
        code, said = execute(self.live.home, f"{way}-0", script, SECONDS_MAX)
        assert code == 0, said
        return said

    def cp(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROTA, "cp", "--home", str(self.live.home), *words],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def programs(self) -> list[str]:
        """Processes of this host that are at the files of an instance of this server."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if b"rota.runtime.files.inside" in words and _home_of(entry) == str(self.live.home):
                    found.append(entry.name)
        return found


def _home_of(process: Path) -> str:
    """The home of the server whose keeper a process is below."""
    for _ in range(12):
        words = (process / "cmdline").read_bytes().split(b"\0")
        if b"rota.runtime.keeper" in words:
            return os.fsdecode(words[words.index(b"rota.runtime.keeper") + 1])
        process = Path("/proc", (process / "stat").read_text().rpartition(")")[2].split()[1])
    return ""


def read(connection: socket.socket) -> Reply:
    """An answer, to the end of the connection. One that was cut is seen by its missing end."""
    data = b""
    while piece := connection.recv(1 << 16):
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100"):
        head, _, body = body.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        whole = bytearray()
        while True:
            size, _, body = body.partition(b"\r\n")
            if int(size, 16) == 0:
                break
            whole += body[: int(size, 16)]
            body = body[int(size, 16) + 2 :]
        body = bytes(whole)
    return Reply(int(first.split()[1]), headers, body)


def manifest(name: str, **spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "WorkerPool",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"replicas": 1, **spec},
        }
    )


def template(isolation: str) -> dict[str, Any]:
    script = "trap 'exit 0' TERM; while :; do sleep 0.2; done"
    containers = [{"name": "main", "command": ["sh", "-c", script]}]
    return {"containers": containers, "isolation": isolation, "terminationGracePeriodSeconds": 0}


@pytest.fixture(scope="session")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    live = Live(tmp_path_factory.mktemp("home"))
    try:
        wanted = [manifest("bare", template=template("none"))]
        if sandbox.available().ok:
            wanted.append(manifest("box", template=template("sandbox")))
            wanted.append(manifest("worker", worker={"type": "shell"}))
        for text in wanted:
            live.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        until(lambda: live.kubectl("get", "inst").count(" True ") == len(wanted))
        yield Farm(live)
    finally:
        live.end()


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for piece in given:
        yield piece
