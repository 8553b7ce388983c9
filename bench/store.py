"""Benchmark of the store beside SQLite with the same group commit, and of its growth.

`python -m bench.store [--quick] [--json FILE]`

Durable writes by several numbers of concurrent writers, a listing of 5,000 objects, and 1,000 watchers. Then the same
as the number of objects grows, with the memory of each object, in a fresh process for each subject. Higher is better,
except for milliseconds and bytes. Compare columns, not machines.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path

from bench.harness import Report, arguments, best_of, resident_bytes, save
from bench.store_subjects import SUBJECTS, Subject, key_of

WRITERS = (1, 16, 64, 256)
WRITES = 20_000
WRITES_ALONE = 1500
OBJECTS = 5000
LIST_RUNS = 20
PAGE = 500
WATCHERS = 1000
WATCHED_WRITES = 2000
SIZES = (1000, 20_000, 200_000)
SIZES_QUICK = (1000, 20_000)
GROWTH_WRITERS = 64
GROWTH_WRITES = 10_000

numbers = count()


async def spread(writers: int, writes: int, write: Callable[[int], Awaitable[None]]) -> float:
    """Return the writes per second of concurrent writers. `write` gets the number of the writer."""

    async def work(writer: int) -> None:
        for _ in range(writes // writers):
            await write(writer)

    started = time.perf_counter()
    await asyncio.gather(*(work(writer) for writer in range(writers)))
    return writes / (time.perf_counter() - started)


async def creates(subject: Subject, writers: int, writes: int) -> float:
    return await spread(writers, writes, lambda _: subject.create(key_of("new", next(numbers))))


async def updates(subject: Subject, writers: int, writes: int) -> float:
    """Return the updates per second. Every writer has its own object, so that none conflicts."""
    return await spread(writers, writes, lambda writer: subject.update(key_of("old", writer)))


async def lists(subject: Subject, limit: int) -> float:
    """Return the listings per second."""
    started = time.perf_counter()
    for _ in range(LIST_RUNS):
        assert subject.list(limit) == limit
    return LIST_RUNS / (time.perf_counter() - started)


async def deliveries(subject: Subject) -> float:
    """Return the events per second over all watchers, each of which watches all objects."""

    async def look() -> None:
        received = 0
        with subject.watch() as watch:
            while received < WATCHED_WRITES:
                received += len(await watch.next())
            assert received == WATCHED_WRITES

    watchers = [asyncio.create_task(look()) for _ in range(WATCHERS)]
    await asyncio.sleep(0)
    started = time.perf_counter()
    await updates(subject, 50, WATCHED_WRITES)
    await asyncio.gather(*watchers)
    return WATCHERS * WATCHED_WRITES / (time.perf_counter() - started)


async def compare(subjects: list[Subject]) -> Report:
    report = Report("per second", [subject.name for subject in subjects])
    for subject in subjects:
        await asyncio.gather(*(subject.create(key_of("old", number)) for number in range(OBJECTS)))
    for what, measure in (("creates", creates), ("updates", updates)):
        for writers in WRITERS:
            writes = WRITES if writers > 1 else WRITES_ALONE
            works = [partial(measure, subject, writers, writes) for subject in subjects]
            report.add(f"durable {what}, {writers} writers", *await best_of(works))
    report.add(f"lists of {OBJECTS:,}", *await best_of_readers(subjects, partial(lists, limit=OBJECTS)))
    report.add(f"deliveries to {WATCHERS:,} watchers", *await best_of_readers(subjects, deliveries))
    return report


async def best_of_readers(
    subjects: list[Subject], measure: Callable[[Subject], Awaitable[float]]
) -> list[float | None]:
    best = await best_of([partial(measure, subject) for subject in subjects if subject.reads])
    return [best.pop(0) if subject.reads else None for subject in subjects]


async def grow(kind: type[Subject], sizes: tuple[int, ...], folder: Path) -> list[list[float]]:
    """Return for each size: creates/s, updates/s, milliseconds to list a page after a write, bytes per object."""
    subject = kind(folder)
    await subject.create(key_of("old", 0))
    before, size = resident_bytes(), 1
    for writer in range(1, GROWTH_WRITERS):
        await subject.create(key_of("old", writer))
    rows = []
    for target in sizes:
        await spread(GROWTH_WRITERS, target - size, lambda _: subject.create(key_of("new", next(numbers))))
        bytes_per_object = (resident_bytes() - before) / target
        created = await creates(subject, GROWTH_WRITERS, GROWTH_WRITES)
        updated = await updates(subject, GROWTH_WRITERS, GROWTH_WRITES)
        size = target + GROWTH_WRITES
        subject.list(PAGE)
        await subject.create(key_of("new", next(numbers)))
        started = time.perf_counter()
        subject.list(PAGE)
        rows.append([created, updated, (time.perf_counter() - started) * 1000, bytes_per_object])
    await subject.close()
    return rows


def grow_in_process(kind: type[Subject], sizes: tuple[int, ...]) -> list[list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(grow(kind, sizes, Path(folder)))


def growth(kind: type[Subject], sizes: tuple[int, ...]) -> Report:
    """Measure the growth in a new process, whose memory has no remains of other measurements."""
    with get_context("spawn").Pool(1) as pool:
        rows = pool.apply(grow_in_process, (kind, sizes))
    report = Report(f"{kind.name}, as it grows", ["creates/s", "updates/s", f"ms to list {PAGE}", "bytes/object"])
    for size, figures in zip(sizes, rows, strict=True):
        report.add(f"{size:,} objects", *figures)
    return report


async def compare_all() -> Report:
    with tempfile.TemporaryDirectory() as folder:
        subjects = [kind(Path(folder)) for kind in SUBJECTS]
        report = await compare(subjects)
        for subject in subjects:
            await subject.close()
    return report


def main() -> None:
    options = arguments("Measure the store beside SQLite itself.").parse_args()
    reports = [asyncio.run(compare_all())]
    reports[0].show()
    for kind in SUBJECTS:
        if kind.reads:
            reports.append(growth(kind, SIZES_QUICK if options.quick else SIZES))
            reports[-1].show()
    save(options.json, reports)


if __name__ == "__main__":
    main()
