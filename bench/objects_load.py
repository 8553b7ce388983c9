"""The load of `bench.objects`: wrk sends requests, separate processes watch."""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import os
import re
import ssl
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.store_subjects import task

TASKS = "/apis/rota.dev/v1alpha1/namespaces/default/tasks"
PATCHED = 200
"""Objects that the status patches cycle through."""
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_runs = count()


@dataclass
class Target:
    """A running server."""

    name: str
    port: int
    token: str
    certificate: Path
    pids: list[int]
    start_seconds: float
    made: int = field(default=0)

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.certificate))
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)

    def headers(self, content_type: str = "application/json") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Content-Type": content_type, "Accept": "application/json"}

    def send(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: Any = None
    ) -> tuple[int, bytes]:
        connection.request(method, path, None if body is None else json.dumps(body), self.headers())
        answer = connection.getresponse()
        return answer.status, answer.read()

    def fill(self, total: int) -> None:
        """Replace all tasks by this number of new ones."""
        connection = self.connect()
        self.send(connection, "DELETE", TASKS)
        for i in range(total):
            code, body = self.send(connection, "POST", TASKS, task(f"listed-{i:05}"))
            assert code == 201, body
        connection.close()

    def time_list(self) -> float:
        """Return the milliseconds to list all tasks and read the answer."""
        connection = self.connect()
        connection.connect()
        began = time.perf_counter()
        code, body = self.send(connection, "GET", TASKS)
        took = (time.perf_counter() - began) * 1000
        assert code == 200 and len(body) > 1_000_000
        connection.close()
        return took

    def cpu_seconds(self) -> float:
        used = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += int(fields[11]) + int(fields[12])
        return used / TICKS

    def resident_mib(self) -> float:
        pages = (int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids)
        return sum(pages) * PAGE_BYTES / 2**20


def load(target: Target, what: str, connections: int, seconds: int) -> tuple[float, float]:
    """Return the requests per second, and the server's CPU milliseconds for each."""
    connection = target.connect()
    for i in range(PATCHED):
        target.send(connection, "POST", TASKS, task(f"patched-{i}"))
    connection.close()
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPTS[what].replace("RUN", str(next(_runs))).replace("BODY", json.dumps(task("NAME"))))
        script.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", script.name]
        for name, value in target.headers().items():
            if name != "Content-Type":
                command += ["-H", f"{name}: {value}"]
        used = target.cpu_seconds()
        printed = subprocess.run(
            [*command, f"https://127.0.0.1:{target.port}"], capture_output=True, text=True, check=True
        ).stdout
        used = target.cpu_seconds() - used
    found = re.search(r"(\d+) requests in", printed)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", printed)
    assert found and rate, printed
    assert "Non-2xx" not in printed, printed
    return float(rate[1]), used * 1000 / int(found[1])


SCRIPTS = {
    "create": """
        wrk.headers["Content-Type"] = "application/json"
        local n = 0
        function request()
          n = n + 1
          local body = string.gsub([[BODY]], "NAME", "made-RUN-" .. n)
          return wrk.format("POST", "/apis/rota.dev/v1alpha1/namespaces/default/tasks", nil, body)
        end
    """,
    "status patch": """
        wrk.headers["Content-Type"] = "application/json-patch+json"
        local n = 0
        function request()
          n = n + 1
          local name = "patched-" .. (n % 200)
          local body = string.format('[{"op":"test","path":"/metadata/name","value":"%s"},' ..
            '{"op":"add","path":"/status","value":{"phase":"Running","message":"RUN-%d"}}]', name, n)
          local path = "/apis/rota.dev/v1alpha1/namespaces/default/tasks/" .. name .. "/status"
          return wrk.format("PATCH", path, nil, body)
        end
    """,
    "get": """
        local n = 0
        function request()
          n = n + 1
          return wrk.format("GET", "/apis/rota.dev/v1alpha1/namespaces/default/tasks/patched-" .. (n % 200))
        end
    """,
}


def watch_latency(target: Target, writes: int) -> tuple[float, float]:
    """Return p50 and p99 of the milliseconds from sending a create until another process has read its event."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    watcher = multiprocessing.get_context("spawn").Process(target=_watch, args=(target, theirs))
    watcher.start()
    assert ours.recv() == "watching"
    connection = target.connect()
    took = []
    for i in range(writes):
        name = f"watched-{next(_runs)}-{i}"
        sent = time.monotonic()
        target.send(connection, "POST", TASKS, task(name))
        received, at = ours.recv()
        assert received == name, (received, name)
        took.append((at - sent) * 1000)
    watcher.terminate()
    watcher.join()
    connection.close()
    return statistics.median(took), statistics.quantiles(took, n=100)[98]


def _watch(target: Target, report: Connection) -> None:
    connection = target.connect()
    _, body = target.send(connection, "GET", f"{TASKS}?limit=1")
    version = json.loads(body)["metadata"]["resourceVersion"]
    connection.request("GET", f"{TASKS}?watch=1&resourceVersion={version}", headers=target.headers())
    answer = connection.getresponse()
    report.send("watching")
    while line := answer.readline():
        at = time.monotonic()
        event = json.loads(line)
        # Later writes of controllers to the same object do not count.
        if event["type"] == "ADDED":
            report.send((event["object"]["metadata"]["name"], at))


def fan_out(target: Target, watchers: int, writes: int) -> float:
    """Return the events per second that many watchers of all tasks receive over TLS."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_watch_all, args=(target, watchers, writes, theirs))
    process.start()
    assert ours.recv() == "watching"
    connection = target.connect()
    began = time.monotonic()
    run = next(_runs)
    for i in range(writes):
        target.send(connection, "POST", TASKS, task(f"fanned-{run}-{i}"))
    finished: float = ours.recv()
    took = finished - began
    process.join()
    connection.close()
    return watchers * writes / took


def _watch_all(target: Target, watchers: int, writes: int, report: Connection) -> None:
    connection = target.connect()
    _, body = target.send(connection, "GET", f"{TASKS}?limit=1")
    version = json.loads(body)["metadata"]["resourceVersion"]
    connection.close()
    asyncio.run(_count_events(target, version, watchers, writes, report))


ADDED = b'{"type":"ADDED",'


class _Counter(asyncio.Protocol):
    """Counts ADDED events without parsing. Later writes of controllers to the same objects do not count."""

    def __init__(self, request: bytes, expected: int, done: asyncio.Future[None], opened: asyncio.Future[None]) -> None:
        self._request, self._left, self._done, self._opened = request, expected, done, opened
        self._cut = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self._opened.done():
            self._opened.set_result(None)
        data = self._cut + data
        self._cut = data[1 - len(ADDED) :]
        self._left -= data.count(ADDED)
        if self._left <= 0 and not self._done.done():
            self._done.set_result(None)


async def _count_events(target: Target, version: str, watchers: int, writes: int, report: Connection) -> None:
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context(cafile=str(target.certificate))
    head = (
        f"GET {TASKS}?watch=1&resourceVersion={version} HTTP/1.1\r\nHost: 127.0.0.1:{target.port}\r\n"
        f"Authorization: Bearer {target.token}\r\nAccept: application/json\r\n\r\n"
    ).encode()
    finished: list[asyncio.Future[None]] = []
    for group in _grouped(watchers, 50):
        opened = [loop.create_future() for _ in group]
        done = [loop.create_future() for _ in group]
        await asyncio.gather(
            *(
                loop.create_connection(
                    lambda d=d, o=o: _Counter(head, writes, d, o),  # type: ignore[misc]
                    "127.0.0.1",
                    target.port,
                    ssl=context,
                )
                for d, o in zip(done, opened, strict=True)
            )
        )
        await asyncio.gather(*opened)
        finished += done
    report.send("watching")
    await asyncio.gather(*finished)
    report.send(time.monotonic())


def _grouped(total: int, size: int) -> Iterator[range]:
    for start in range(0, total, size):
        yield range(start, min(start + size, total))
