"""What `bench.tasks` is measured beside: four queues as they come, with two worker processes each, and their limit.

Of a peer it is measured when its task runs, which the task itself tells; nothing is asked of it that it does not do by
itself, such as to keep a result. How long its own way to a result takes is measured apart.
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

from bench.tasks_services import Absent, postgres, redis, running
from bench.tasks_told import PIPE, PLACE, Pipe, tell
from bench.tasks_window import Load, Window

WORKERS = 2


class Peer(NamedTuple):
    label: str
    pipe: Pipe
    submit: Callable[[int], object]
    answer: Callable[[], object] | None = None
    """Submit a task and wait for its result, in the way of the peer; None if it has none."""

    def load(self, in_flight: int, seconds: float) -> Load:
        """A new task for each that has run, for so long."""
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
        """Results, one after the other."""
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
    """All of them, up at once; for one that is not here, a line that says so."""
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
    with redis() as place, pipe() as told:
        module = imported("bench.tasks_celery", place)
        argv = ["celery", "--app", module.__name__, "worker", "--concurrency", str(WORKERS), "--loglevel", "WARNING"]
        try:
            with workers(argv, place, told):
                yield Peer("Celery + Redis (in memory)", told, module.submit, module.answer)
        finally:
            # What is left of its results takes leave of the server, which has to be there for that.
            gc.collect()


@contextlib.contextmanager
def dramatiq() -> Iterator[Peer]:
    check("dramatiq", "dramatiq[redis]")
    with redis() as place, pipe() as told:
        module = imported("bench.tasks_dramatiq", place)
        with workers(["dramatiq", module.__name__, "--processes", str(WORKERS)], place, told):
            yield Peer("Dramatiq + Redis (in memory)", told, module.submit, module.answer)


@contextlib.contextmanager
def huey() -> Iterator[Peer]:
    check("huey", "huey")
    with tempfile.TemporaryDirectory() as place, pipe() as told:
        module = imported("bench.tasks_huey", place)
        argv = ["huey.bin.huey_consumer", f"{module.__name__}.app", "-w", str(WORKERS), "-k", "process", "-q"]
        with workers(argv, place, told):
            yield Peer("Huey on SQLite", told, module.submit, module.answer)


@contextlib.contextmanager
def procrastinate() -> Iterator[Peer]:
    check("procrastinate", "procrastinate 'psycopg[binary]'")
    with postgres() as place, pipe() as told, contextlib.ExitStack() as stack:
        module = imported("bench.tasks_procrastinate", place)
        stack.enter_context(module.app.open())
        module.app.schema_manager.apply_schema()
        for _ in range(WORKERS):
            stack.enter_context(workers(["procrastinate", "--app", f"{module.__name__}.app", "worker"], place, told))
        yield Peer("procrastinate + PostgreSQL", told, module.submit)


@contextlib.contextmanager
def process_pool() -> Iterator[Peer]:
    """Nothing is kept anywhere: this is what two warm processes can do."""
    with pipe() as told:
        os.environ[PIPE] = str(told.path)
        # A fork of this process would take over what the clients of the others have open.
        context = multiprocessing.get_context("forkserver")
        with ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
            yield Peer(
                "ProcessPoolExecutor: the limit",
                told,
                lambda number: pool.submit(tell, number),
                lambda: pool.submit(math.sqrt, 4).result(),
            )


def check(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise Absent(f"{module} is not here: pip install {package}")


def imported(module: str, place: str) -> ModuleType:
    """The tasks of a peer, as their client has them."""
    os.environ[PLACE] = place
    return importlib.import_module(module)


@contextlib.contextmanager
def pipe() -> Iterator[Pipe]:
    with tempfile.TemporaryDirectory() as folder:
        found = Pipe(Path(folder) / "told")
        try:
            yield found
        finally:
            found.close()


@contextlib.contextmanager
def workers(argv: list[str], place: str, told: Pipe) -> Iterator[None]:
    """A program of a peer that runs its tasks."""
    here = str(Path(__file__).parent.parent)
    environment = {PLACE: place, PIPE: str(told.path), "PYTHONPATH": here}
    with (
        tempfile.TemporaryDirectory() as folder,
        running([sys.executable, "-m", *argv], Path(folder), environment=environment),
    ):
        yield
