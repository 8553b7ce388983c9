"""Benchmark of calls of functions over HTTP: `python -m bench.functions [--quick] [--json FILE]`.

The function does nothing, in its sandbox under `rota up`; every call is durable before it is answered. A bare handler
under uvicorn, which stores nothing, is the limit. Both servers run at once, and their rounds are interleaved. A cold
start is a call of a function without a worker: from the request to the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bench.functions_load import load, once
from bench.harness import Report, arguments, save
from bench.instances import ROTA
from bench.tasks_window import Load, p50, p99
from rota.api import Function, Instance
from rota.client import Client

IN_FLIGHT = (1, 16, 64)
ROUNDS, ROUNDS_QUICK = 3, 1
LOAD_SECONDS, LOAD_SECONDS_QUICK = 2.0, 0.5
COLD_STARTS, COLD_STARTS_QUICK = 9, 3
PATIENCE_SECONDS = 60.0
IDLE_SECONDS = 1
"""Idle time after which the function for cold starts loses its worker."""
POLL_SECONDS = 0.02
PLAIN = "def handler(event, context):\n    return {'ok': True}\n"
ASYNC = "async def handler(event, context):\n    return {'ok': True}\n"
BARE = """
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"11")]})
    await send({"type": "http.response.body", "body": b'{"ok":true}'})
"""
FUNCTIONS: dict[str, dict[str, Any]] = {
    "plain": {"source": {"inline": PLAIN}, "scale": {"min": 1, "max": 1}, "concurrency": 1},
    "threads": {"source": {"inline": PLAIN}, "scale": {"min": 1, "max": 1}, "concurrency": 64},
    "loop": {"source": {"inline": ASYNC}, "scale": {"min": 1, "max": 1}, "concurrency": 64},
    "cold": {"source": {"inline": PLAIN}, "scale": {"min": 0, "max": 1, "idleSeconds": IDLE_SECONDS}},
}
LABELS = {"plain": "Rota, one at a time", "threads": "Rota, 64 threads", "loop": "Rota, async"}


def function(name: str) -> dict[str, Any]:
    spec = {"entrypoint": "app:handler", "public": True, **FUNCTIONS[name]}
    return {"apiVersion": Function.api.api_version, "kind": "Function", "metadata": {"name": name}, "spec": spec}


def is_of(instance: Instance, name: str) -> bool:
    return instance.spec.handler is not None and instance.spec.handler.function == name


@contextlib.asynccontextmanager
async def rota(home: Path) -> AsyncIterator[tuple[Client, int]]:
    """Start a server with the functions ready. Yields a client of the server and the port of its edge."""
    process = await asyncio.create_subprocess_exec(
        ROTA, "up", "--home", home, "--port", "0", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    client = Client.connect(home=home, manager="bench")
    try:
        for name in FUNCTIONS:
            await client.create(function(name))
        found = [await ready(client, name) for name in FUNCTIONS]
        port = re.search(r":(\d+)/", found[0].status.url if found[0].status and found[0].status.url else "")
        assert port is not None
        yield client, int(port[1])
    finally:
        await client.close()
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def ready(client: Client, name: str) -> Function:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found: Function = await client.get(Function, name)
            if found.readiness().state == "Ready":
                return found
            await asyncio.sleep(POLL_SECONDS)


@contextlib.asynccontextmanager
async def bare(folder: Path) -> AsyncIterator[int | None]:
    """Start a bare handler under uvicorn. Yields its port, or None if uvicorn is not installed."""
    if importlib.util.find_spec("uvicorn") is None:
        yield None
        return
    (folder / "bare.py").write_text(BARE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    options = ("--port", str(port), "--log-level", "critical", "--no-access-log")
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "uvicorn", "bare:app", *options, cwd=folder)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with contextlib.suppress(OSError):
                    await once(port, "/")
                    break
                await asyncio.sleep(POLL_SECONDS)
        yield port
    finally:
        process.terminate()
        await process.wait()


async def cold_starts(client: Client, port: int, count: int) -> list[float]:
    """Return the sorted milliseconds of calls that each find no worker and no process with the code."""
    taken = []
    for _ in range(count):
        # A new function has a worker, in which its code was loaded once. It ends when it has been idle.
        await no_worker(client, "cold")
        taken.append(await once(port, "/default/cold/"))
    return sorted(taken)


async def no_worker(client: Client, name: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(is_of(one, name) for one in (await client.list(Instance)).items):
            await asyncio.sleep(POLL_SECONDS)


async def measured(quick: bool) -> list[Report]:
    rounds, seconds = (ROUNDS_QUICK, LOAD_SECONDS_QUICK) if quick else (ROUNDS, LOAD_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        async with rota(Path(folder, "home")) as (client, port), bare(Path(folder)) as limit:
            best: dict[tuple[str, int], Load] = {}
            for _ in range(rounds):
                for in_flight in IN_FLIGHT:
                    places = {label: (port, f"/default/{name}/") for name, label in LABELS.items()}
                    if limit is not None:
                        places["uvicorn, bare handler"] = (limit, "/")
                    for label, (at, path) in places.items():
                        found = await load(at, path, in_flight, seconds)
                        known = best.get((label, in_flight))
                        if known is None or known.per_second < found.per_second:
                            best[label, in_flight] = found
            cold = await cold_starts(client, port, COLD_STARTS_QUICK if quick else COLD_STARTS)
    return [table(best, installed=limit is not None), starts(cold)]


def table(best: dict[tuple[str, int], Load], *, installed: bool) -> Report:
    columns = [f"{what}, {n}" for n in IN_FLIGHT for what in ("calls/s", "p50 ms", "p99 ms")]
    report = Report("warm calls, recorded, by how many are in flight", columns)
    for label in dict.fromkeys(label for label, _ in best):
        loads = [best[label, n] for n in IN_FLIGHT]
        figures = [(one.per_second, p50(one.until_result), p99(one.until_result)) for one in loads]
        report.add(label, *(figure for three in figures for figure in three))
    if not installed:
        report.add("uvicorn is not installed", *(None for _ in columns))
    report.show()
    return report


def starts(cold: list[float]) -> Report:
    report = Report("cold start, ms from the request to the answer", ["best", "p50", "worst"])
    report.add("Rota, from no worker", cold[0], p50(cold), cold[-1])
    report.show()
    return report


def main() -> None:
    parsed = arguments("Calls of functions").parse_args()
    save(parsed.json, asyncio.run(measured(parsed.quick)))


if __name__ == "__main__":
    main()
