"""One run: a server of its own, load, restarts, and the curve of what it took up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rota.client.http import HttpBackend
from rota.registry import ApiError
from tests.soak.judge import BOUNDED, SAMPLES_MIN, Growth, Sample, grown
from tests.soak.load import Load
from tests.soak.measure import NoServerError, measures, server_pid, tables
from tests.until import until_async

ROTA = str(Path(sys.executable).parent / "rota")
COMMAND_SECONDS_MAX = 120.0
WARM_SHARE, WARM_SECONDS_MAX = 0.25, 600.0
FILL_SECONDS_MAX = 300.0
"""The time in which a slow machine makes as many calls as are kept."""
SAMPLES = 120
"""The number of samples of a run, unless they would be closer than SAMPLE_SECONDS_MIN."""
SAMPLE_SECONDS_MIN = 2.0
SHOWN_MAX = 24
COLUMNS = ("memory_mb", "keeper_mb", "descriptors", "threads", "processes", "files", "store_mb")

Say = Callable[[str], None]


class Report(NamedTuple):
    """The result of a run."""

    steady: list[Sample]
    """Between warm-up and the restarts at the end."""
    all: list[Sample]
    grown: list[Growth]
    done: dict[str, int]
    troubles: dict[str, int]
    restarts: int

    @property
    def idle(self) -> list[str]:
        """The streams of which no round went well."""
        return sorted(name for name, rounds in self.done.items() if not rounds)

    def table(self) -> Iterator[str]:
        """The curve, one line a moment."""
        yield f"{'minute':>7}{''.join(f'{name:>12}' for name in COLUMNS)}{'entries':>10}"
        step = max(1, len(self.all) // SHOWN_MAX)
        for one in self.all[::step]:
            figures = "".join(f"{one.measures[name]:>12.1f}" for name in COLUMNS)
            yield f"{one.seconds / 60:>7.1f}{figures}{entries(one):>10}"

    def json(self) -> dict[str, Any]:
        return {
            "samples": [one._asdict() for one in self.all],
            "steady": [self.steady[0].seconds, self.steady[-1].seconds] if self.steady else [],
            "grown": [one._asdict() for one in self.grown],
            "done": self.done,
            "troubles": self.troubles,
            "restarts": self.restarts,
        }


def entries(sample: Sample) -> int:
    """Return the number of entries of all tables that must not fill up."""
    return sum(size for name, size in sample.tables.items() if name not in BOUNDED and not name.endswith("()"))


class Server:
    """`rota start` in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.restarts = -1
        self._started = 0.0

    @property
    def age(self) -> float:
        return time.monotonic() - self._started

    async def start(self) -> None:
        await self._rota("start", "--port", "0", "--edge-port", "0")
        self._begun()

    async def kill(self) -> None:
        """Kill the server. Its instances go on, and the next server adopts them."""
        pid = server_pid(self.home)
        os.kill(pid, signal.SIGKILL)
        await until_async(lambda: not _is_alive(pid), f"server {pid} goes on", seconds=COMMAND_SECONDS_MAX)
        await self.start()

    async def restart(self) -> None:
        await self._rota("restart")
        self._begun()

    async def stop_and_start(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        await self._rota("stop", "--grace", "0")

    def _begun(self) -> None:
        self.restarts += 1
        self._started = time.monotonic()

    async def _rota(self, *words: str) -> None:
        command = (ROTA, *words, "--home", str(self.home))
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[Server]:
    server = Server(home)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


async def soak(home: Path, seconds: float, say: Say = print) -> Report:
    """Put load on a server for so long, and judge what it took up between warm-up and the end.

    It is killed, restarted and stopped in the warm-up and again at the end: what it keeps in memory is then begun anew,
    and what it keeps in files is not.
    """
    began = time.monotonic()
    async with serving(home) as server:
        load, found = Load(home), list[Sample]()
        await load.prepare()
        load.begin()
        watching = asyncio.create_task(_sample(server, began, max(SAMPLE_SECONDS_MIN, seconds / SAMPLES), found))
        try:
            await _restarted(server, say)
            warm_seconds = min(seconds * WARM_SHARE, WARM_SECONDS_MAX)
            await _warm(load, warm_seconds)
            warm = len(found)
            say(f"warm after {(time.monotonic() - began) / 60:.1f} minutes; {dict(load.done)}")
            await asyncio.wait((watching,), timeout=seconds - warm_seconds)
            assert not watching.done(), "nothing is measured any more"
            steady = found[warm:]
            assert len(steady) >= SAMPLES_MIN, f"the server was measured {len(steady)} times only"
            await _restarted(server, say)
        finally:
            await load.end()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        return Report(steady, found, grown(steady), dict(load.done), dict(load.troubles), server.restarts)


async def _restarted(server: Server, say: Say) -> None:
    ways: list[Callable[[], Awaitable[None]]] = [server.kill, server.restart, server.stop_and_start]
    for way in ways:
        await way()
        say(f"{way.__name__}: the server is up again, as process {server_pid(server.home)}")


async def _warm(load: Load, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends or not load.is_filled:
        assert time.monotonic() < ends + FILL_SECONDS_MAX, f"too slow: {dict(load.done)}, {dict(load.troubles)}"
        await asyncio.sleep(0.1)


async def _sample(server: Server, began: float, every: float, found: list[Sample]) -> None:
    while True:
        next_ = time.monotonic() + every
        backend = HttpBackend.connect(home=server.home)
        with contextlib.suppress(NoServerError, ApiError, OSError):
            entries_ = await tables(backend)
            measured = await asyncio.to_thread(measures, server.home)
            found.append(Sample(time.monotonic() - began, server.age, measured, entries_))
        await backend.close()
        await asyncio.sleep(max(0.0, next_ - time.monotonic()))


def _is_alive(pid: int) -> bool:
    """Not if it is dead and waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def write(path: Path, report: Report) -> None:
    path.write_text(json.dumps(report.json(), indent=1) + "\n")
