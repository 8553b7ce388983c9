"""The peers of `bench.tasks`: four queues in their default configuration with two worker processes each, and the limit.

The time of a peer ends when its task runs, as the task itself reports. Peers do nothing that is not their default, such
as storing results. The time to a result in the peer's own way is measured separately.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import itertools
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from bench.tasks_reports import PIPE, PLACE, Pipe, report_start
from bench.tasks_services import Absent, postgres, redis, running
from bench.tasks_window import Load, Window

WORKERS = 2


class Peer(NamedTuple):
    label: str
    pipe: Pipe
    submit: Callable[[int], object]
    answer: Callable[[], object] | None = None
    """Submit a task and wait for its result, in the peer's own way. None if it has no results."""

    def load(self, in_flight: int, seconds: float) -> Load:
        """Keep this number of tasks in flight: submit another whenever one runs."""
        window, numbers, submitted = Window(seconds), itertools.count(), dict[int, float]()

        def submit() -> None:
            number = next(numbers)
            submitted[number] = time.perf_counter()
            self.submit(number)

        for _ in range(in_flight):
            submit()
        while submitted:
            for number, at in self.pipe.read():
                since = submitted.pop(number)
                window.over(running=at - since, result=time.perf_counter() - since)
                if window.is_open():
                    submit()
        return window.load()

    def answers(self, seconds: float) -> Load | None:
        """Measure the times to a result, with one task in flight. Returns None if the peer has no results."""
        if self.answer is None:
            return None
        window = Window(seconds)
        while window.is_open():
            began = time.perf_counter()
            self.answer()
            took = time.perf_counter() - began
            window.over(running=took, result=took)
        return window.load()


@contextlib.contextmanager
def peers() -> Iterator[list[Peer | str]]:
    """Start all peers at once. Yields a line that says why for each that is not installed."""
    with contextlib.ExitStack() as stack:
        found: list[Peer | str] = []
        for start in (celery, dramatiq, huey, procrastinate, process_pool):
            try:
                found.append(stack.enter_context(start()))
            except Absent as absent:
                found.append(str(absent))
        yield found


@contextlib.contextmanager
def celery() -> Iterator[Peer]:
    check("celery", "celery[redis]")
    with redis() as place, pipe() as reports:
        module = imported("bench.tasks_celery", place)
        argv = ["celery", "--app", module.__name__, "worker", "--concurrency", str(WORKERS), "--loglevel", "WARNING"]
        try:
            with workers(argv, place, reports):
                yield Peer("Celery + Redis (in memory)", reports, module.submit, module.answer)
        finally:
            # Remaining results unsubscribe from Redis when they are collected, so it must still run.
            gc.collect()


@contextlib.contextmanager
def dramatiq() -> Iterator[Peer]:
    check("dramatiq", "dramatiq[redis]")
    with redis() as place, pipe() as reports:
        module = imported("bench.tasks_dramatiq", place)
        with workers(["dramatiq", module.__name__, "--processes", str(WORKERS)], place, reports):
            yield Peer("Dramatiq + Redis (in memory)", reports, module.submit, module.answer)


@contextlib.contextmanager
def huey() -> Iterator[Peer]:
    check("huey", "huey")
    with tempfile.TemporaryDirectory() as place, pipe() as reports:
        module = imported("bench.tasks_huey", place)
        argv = ["huey.bin.huey_consumer", f"{module.__name__}.app", "-w", str(WORKERS), "-k", "process", "-q"]
        with workers(argv, place, reports):
            yield Peer("Huey on SQLite", reports, module.submit, module.answer)


@contextlib.contextmanager
def procrastinate() -> Iterator[Peer]:
    check("procrastinate", "procrastinate 'psycopg[binary]'")
    with postgres() as place, pipe() as reports, contextlib.ExitStack() as stack:
        module = imported("bench.tasks_procrastinate", place)
        stack.enter_context(module.app.open())
        module.app.schema_manager.apply_schema()
        for _ in range(WORKERS):
            stack.enter_context(workers(["procrastinate", "--app", f"{module.__name__}.app", "worker"], place, reports))
        yield Peer("procrastinate + PostgreSQL", reports, module.submit)


@contextlib.contextmanager
def process_pool() -> Iterator[Peer]:
    """Run two warm processes that store nothing: the limit."""
    with pipe() as reports:
        os.environ[PIPE] = str(reports.path)
        # A fork of this process would inherit the open connections of the other peers' clients.
        context = multiprocessing.get_context("forkserver")
        with ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
            yield Peer(
                "ProcessPoolExecutor: the limit",
                reports,
                lambda number: pool.submit(report_start, number),
                lambda: pool.submit(math.sqrt, 4).result(),
            )


def check(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise Absent(f"{module} is not here: pip install {package}")


def imported(module: str, place: str) -> ModuleType:
    """Import the tasks of a peer, with the place where it stores them."""
    os.environ[PLACE] = place
    return importlib.import_module(module)


@contextlib.contextmanager
def pipe() -> Iterator[Pipe]:
    with tempfile.TemporaryDirectory() as folder:
        found = Pipe(Path(folder) / "reports")
        try:
            yield found
        finally:
            found.close()


@contextlib.contextmanager
def workers(argv: list[str], place: str, reports: Pipe) -> Iterator[None]:
    """Run a worker program of a peer."""
    here = str(Path(__file__).parent.parent)
    environment = {PLACE: place, PIPE: str(reports.path), "PYTHONPATH": here}
    with (
        tempfile.TemporaryDirectory() as folder,
        running([sys.executable, "-m", *argv], Path(folder), environment=environment),
    ):
        yield
