"""Benchmark of the ledger of a pool: `python -m bench.queue [--quick] [--json FILE]`.

A cycle is one request from its arrival to the end of its hold: the request arrives, an instance is opened, both are
bound, the binding counts as written, and the hold ends. Making the Request is included; the caller's other work is not.

`deque` and `heapq` alone are the limits: they take a request and an instance from two queues, in order of arrival, or
of priority and arrival, and record the pair. They know no holders, races, cancels or restarts.
"""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import time
import tracemalloc
from collections import deque
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush

from bench.harness import Report, arguments, best_of, save
from rota.pools import Binding, Ledger, Opened, Request

Work = Callable[[], Awaitable[float]]

INSTANCES = 64
SEED = 7
SHARING = 8
MANY_INSTANCES = 1_000


def rate(cycles: int, work: Callable[[], Callable[[], None]]) -> Work:
    """Return a work that measures the cycles per second of the function that `work` prepares."""

    async def measure() -> float:
        run = work()
        gc.collect()
        began = time.perf_counter()
        run()
        return cycles / (time.perf_counter() - began)

    return measure


def requests(count: int, holders: int) -> list[tuple[str, str]]:
    names = [f"holder-{number}" for number in range(holders)]
    return [(f"request-{number:07d}", names[number % holders]) for number in range(count)]


def instances() -> list[str]:
    return [f"instance-{number}" for number in range(INSTANCES)]


# The limits.


def with_deque(cycles: int, depth: int) -> Callable[[], None]:
    waiting, free = deque(requests(depth, 1)), deque(instances())
    coming, bound = requests(cycles, 1), dict[str, tuple[str, str]]()

    def run() -> None:
        for request in coming:
            waiting.append(request)
            instance = free.popleft()
            bound[instance] = waiting.popleft()
            del bound[instance]
            free.append(instance)

    return run


def with_heapq(cycles: int, depth: int) -> Callable[[], None]:
    waiting, free = list[tuple[int, float, str]](), deque(instances())
    for number, (id_, _) in enumerate(requests(depth, 1)):
        heappush(waiting, (0, float(number), id_))
    coming, bound = requests(cycles, 1), dict[str, str]()

    def run() -> None:
        for number, (id_, _) in enumerate(coming, start=depth):
            heappush(waiting, (0, float(number), id_))
            instance = free.popleft()
            bound[instance] = heappop(waiting)[2]
            del bound[instance]
            free.append(instance)

    return run


# The ledger.


def opened() -> Ledger:
    ledger = Ledger()
    for id_ in instances():
        ledger.open(id_, Opened.WHOLE)
    return ledger


def decided(ledger: Ledger) -> Binding:
    """Take the effect of an event that binds one request."""
    binding = ledger.effects.pop()
    assert isinstance(binding, Binding)
    return binding


def with_ready(cycles: int, holders: int) -> Callable[[], None]:
    """Bind each request at its arrival, to a free instance."""
    ledger, coming = opened(), requests(cycles, holders)

    def run() -> None:
        for number, (id_, holder) in enumerate(coming):
            ledger.request(Request(id_, holder, 0, float(number)))
            binding = decided(ledger)
            assert ledger.bound(binding)
            ledger.ended(id_)
            ledger.open(binding.instance, Opened.WHOLE)

    return run


def with_backlog(cycles: int, holders: int, depth: int) -> Callable[[], None]:
    """Bind each instance when it is returned, to the first of `depth` waiting requests."""
    ledger = Ledger()
    coming = requests(depth + INSTANCES + cycles, holders)
    for number, (id_, holder) in enumerate(coming[: depth + INSTANCES]):
        ledger.request(Request(id_, holder, 0, float(number)))
    held: deque[Binding] = deque()
    for instance in instances():
        ledger.open(instance, Opened.WHOLE)
        held.append(decided(ledger))
        assert ledger.bound(held[-1])

    def run() -> None:
        for number in range(depth + INSTANCES, depth + INSTANCES + cycles):
            id_, holder = coming[number]
            ledger.request(Request(id_, holder, 0, float(number)))
            ended = held.popleft()
            ledger.ended(ended.request.id)
            ledger.open(ended.instance, Opened.WHOLE)
            binding = decided(ledger)
            assert ledger.bound(binding)
            held.append(binding)

    return run


def with_affinity(cycles: int, holders: int) -> Callable[[], None]:
    """Bind each request to the instance that had the same affinity key last."""
    ledger, coming = opened(), requests(cycles, holders)
    for number, instance in enumerate(instances()):
        ledger.open(instance, Opened.WHOLE, last=f"key-{number}")

    def run() -> None:
        for number, (id_, holder) in enumerate(coming):
            ledger.request(Request(id_, holder, 0, float(number), f"key-{number % INSTANCES}"))
            binding = decided(ledger)
            assert ledger.bound(binding)
            ledger.ended(id_)
            ledger.open(binding.instance, Opened.WHOLE)

    return run


def with_races(cycles: int, holders: int) -> Callable[[], None]:
    """Bind each request at the second attempt: its first binding loses a race."""
    ledger, coming = opened(), requests(cycles, holders)

    def run() -> None:
        for number, (id_, holder) in enumerate(coming):
            ledger.request(Request(id_, holder, 0, float(number)))
            first = decided(ledger)
            ledger.lost(first)
            binding = decided(ledger)
            assert ledger.bound(binding)
            ledger.ended(id_)
            ledger.open(first.instance, Opened.WHOLE)
            ledger.open(binding.instance, Opened.WHOLE)

    return run


def with_sharing(cycles: int, holders: int, depth: int) -> Callable[[], None]:
    """Fill each instance with `depth` requests that share it. When one ends, its place is handed over."""
    ledger = Ledger(depth)
    ledger.ran(0.0)
    for instance in instances():
        ledger.open(instance, Opened.JOBS, reopened=Opened.JOBS, slots=depth)
    coming = requests(INSTANCES * depth + cycles, holders)
    held: deque[str] = deque()
    for number, (id_, holder) in enumerate(coming[: INSTANCES * depth]):
        ledger.request(Request(id_, holder, 0, float(number), "", True))
        assert ledger.bound(decided(ledger))
        held.append(id_)

    def run() -> None:
        for number in range(INSTANCES * depth, INSTANCES * depth + cycles):
            id_, holder = coming[number]
            ledger.request(Request(id_, holder, 0, float(number), "", True))
            ended = held.popleft()
            ledger.ending(ended, frees=True)
            assert ledger.bound(decided(ledger))
            ledger.ended(ended)
            held.append(id_)

    return run


def waiting(depth: int, holders: int) -> Ledger:
    ledger = Ledger()
    for number, (id_, holder) in enumerate(requests(depth, holders)):
        ledger.request(Request(id_, holder, 0, float(number)))
    return ledger


def bytes_each(depth: int, holders: int) -> float:
    """Return the bytes of a waiting request in the ledger, with its part of its holder.

    The Request itself, with its strings and arrival time, belongs to the caller and does not count.
    """
    made = [Request(id_, holder, 0, float(at)) for at, (id_, holder) in enumerate(requests(depth, holders))]
    gc.collect()
    tracemalloc.start()
    ledger = Ledger()
    for request in made:
        ledger.request(request)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert ledger.depth == depth
    return used / depth


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def side_by_side(cycles: int) -> Report:
    report = Report(f"{cycles} cycles, bindings/s", ["1 holder", "64 holders", "to heapq"])
    ways: list[tuple[str, Callable[[int], Callable[[], None]]]] = [
        ("deque alone, an instance ready", lambda holders: with_deque(cycles, 0)),
        ("heapq alone, an instance ready", lambda holders: with_heapq(cycles, 0)),
        ("Rota, an instance ready", lambda holders: with_ready(cycles, holders)),
        ("Rota, 64 waiting", lambda holders: with_backlog(cycles, holders, 64)),
        ("Rota, affinity", lambda holders: with_affinity(cycles, holders)),
        ("Rota, each loses one race", lambda holders: with_races(cycles, holders)),
        ("Rota, one at a time shares an instance", lambda holders: with_sharing(cycles, holders, 1)),
        (f"Rota, {SHARING} share an instance", lambda holders: with_sharing(cycles, holders, SHARING)),
    ]
    figures = [
        await best_of([rate(cycles, lambda way=way, holders=holders: way(holders)) for _, way in ways])  # type: ignore[misc]
        for holders in (1, 64)
    ]
    for (label, _), one, many in zip(ways, *figures, strict=True):
        report.add(label, one, many, one / figures[0][1])
    report.show()
    return report


async def growth(quick: bool) -> Report:
    columns = ["heapq alone", "1 holder", "10 each", "1 each", "µs, 10 each"]
    report = Report("a constant number waiting, bindings/s", columns)
    cycles = 20_000 if quick else 100_000
    for depth in (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 300_000):
        works = [
            rate(cycles, lambda depth=depth: with_heapq(cycles, depth)),  # type: ignore[misc]
            *(
                rate(cycles, lambda depth=depth, holders=holders: with_backlog(cycles, holders, depth))  # type: ignore[misc]
                for holders in (1, depth // 10, depth)
            ),
        ]
        figures = await best_of(works, runs=3 if depth <= 100_000 else 1)
        report.add(f"{depth}", *figures, 1e6 / figures[2])
    report.show()
    return report


def small_things(quick: bool) -> Report:
    depth = 20_000 if quick else 100_000
    report = Report(f"with {depth} waiting", ["1 holder", "10 each", "1 each"])
    shapes = (1, depth // 10, depth)
    report.add("bytes of one that waits, with its part of its holder", *(bytes_each(depth, each) for each in shapes))
    ledgers = [waiting(depth, each) for each in shapes]
    middle = f"request-{depth // 2:07d}"
    report.add("position of one, ms", *(1e3 * seconds(lambda one=one: one.position(middle)) for one in ledgers))  # type: ignore[misc]
    order = [id_ for id_, _ in requests(depth, 1)]
    random.Random(SEED).shuffle(order)

    def cancel_all(ledger: Ledger) -> None:
        for id_ in order:
            ledger.cancel(id_)

    def restart(stored: list[Request]) -> None:
        ledger = Ledger()
        for request in stored:
            ledger.request(request)

    report.add("cancel, in any order, µs", *(1e6 * seconds(lambda one=one: cancel_all(one)) / depth for one in ledgers))  # type: ignore[misc]
    stored = [
        [Request(id_, holder, 0, float(at)) for at, (id_, holder) in enumerate(requests(depth, each))]
        for each in shapes
    ]
    report.add("restart with all of them, ms", *(1e3 * seconds(lambda each=each: restart(each)) for each in stored))  # type: ignore[misc]
    report.show()
    return report


def worst_things() -> Report:
    report = Report("with many instances that are shared", ["µs"])
    ledger = Ledger(SHARING)
    ledger.ran(0.0)
    for number in range(MANY_INSTANCES):
        ledger.open(f"i{number}", Opened.JOBS, reopened=Opened.JOBS, slots=SHARING)
    for number in range(MANY_INSTANCES * SHARING):
        ledger.request(Request(f"r{number}", "someone", 0, float(number), "", True))
        assert ledger.bound(decided(ledger))
    ledger.request(Request("urgent", "someone", 1, 0.0))
    ledger.effects.clear()

    def end_all() -> None:
        for number in range(MANY_INSTANCES * SHARING):
            ledger.ended(f"r{number}")

    took = seconds(end_all) / (MANY_INSTANCES * SHARING)
    report.add(f"the end of a hold on one of {MANY_INSTANCES}, while one of higher priority waits", 1e6 * took)
    report.add("peak memory of all this, MiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    report.show()
    return report


async def main() -> None:
    options = arguments(__doc__.splitlines()[0] if __doc__ else "").parse_args()
    reports = [
        await side_by_side(50_000 if options.quick else 200_000),
        await growth(options.quick),
        small_things(options.quick),
        worst_things(),
    ]
    save(options.json, reports)


if __name__ == "__main__":
    asyncio.run(main())
