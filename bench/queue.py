"""The core of a pool's queue: `python -m bench.queue [--quick] [--json FILE]`.

A cycle is one request from end to end: it comes, an instance is offered, they are bound, that is confirmed, and the
hold ends. What the caller would do in between is left out; what it has to make (requests, offers) is counted.

`deque` and `heapq` alone are the limits: they take a request and an instance out of two queues, in order of arrival or
of priority and arrival, and note who has what. They know no holders, needs, races, cancels or restarts.
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
from rota.pools import Offer, Queue, Request

Work = Callable[[], Awaitable[float]]

INSTANCES = 64
SEED = 7
LISTED = 100
KINDS = [frozenset[str](), frozenset({"gpu"}), frozenset({"big"}), frozenset({"gpu", "big"})]
MANY_KINDS = 1_000


def rate(cycles: int, work: Callable[[], Callable[[], None]]) -> Work:
    """Cycles per second of what `work` prepares."""

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


# The queue.


def with_ready(cycles: int, holders: int) -> Callable[[], None]:
    """Instances are free: a request is bound when it comes."""
    queue = Queue()
    for id_ in instances():
        queue.offer(Offer(id_))
    coming = requests(cycles, holders)

    def run() -> None:
        for number, (id_, holder) in enumerate(coming):
            binding = queue.add(Request(id_, holder, 0, float(number)))
            assert binding is not None and queue.confirmed(binding)
            queue.released(binding.instance)
            queue.offer(Offer(binding.instance, since=float(number)))

    return run


def with_standing(cycles: int, holders: int, depth: int) -> Callable[[], None]:
    """All instances are held and so many wait: an instance is bound when it comes back."""
    queue = Queue()
    coming = requests(depth + INSTANCES + cycles, holders)
    for number, (id_, holder) in enumerate(coming[: depth + INSTANCES]):
        queue.add(Request(id_, holder, 0, float(number)))
    held = instances()
    for instance in held:
        binding = queue.offer(Offer(instance))
        assert binding is not None and queue.confirmed(binding)

    def run() -> None:
        for number in range(depth + INSTANCES, depth + INSTANCES + cycles):
            id_, holder = coming[number]
            queue.add(Request(id_, holder, 0, float(number)))
            instance = held[number % INSTANCES]
            queue.released(instance)
            binding = queue.offer(Offer(instance, since=float(number)))
            assert binding is not None and queue.confirmed(binding)

    return run


def with_needs(cycles: int, holders: int) -> Callable[[], None]:
    """A quarter of the requests each needs nothing, one thing, another, both; and prefers an instance."""
    queue = Queue()
    for number, instance in enumerate(instances()):
        queue.offer(Offer(instance, KINDS[3], last=f"key-{number}"))
    coming = requests(cycles, holders)

    def run() -> None:
        for number, (id_, holder) in enumerate(coming):
            key = f"key-{number % INSTANCES}"
            binding = queue.add(Request(id_, holder, 0, float(number), KINDS[number % 4], key))
            assert binding is not None and queue.confirmed(binding)
            queue.released(binding.instance)
            queue.offer(Offer(binding.instance, KINDS[3], key, float(number)))

    return run


def with_races(cycles: int, holders: int) -> Callable[[], None]:
    """Each request loses one race before it is bound."""
    queue = Queue()
    for instance in instances():
        queue.offer(Offer(instance))
    coming = requests(cycles, holders)

    def run() -> None:
        for number, (id_, holder) in enumerate(coming):
            first = queue.add(Request(id_, holder, 0, float(number)))
            assert first is not None
            [binding] = queue.lost(first)
            assert queue.confirmed(binding)
            queue.released(binding.instance)
            queue.offer(Offer(first.instance, since=float(number)))
            queue.offer(Offer(binding.instance, since=float(number)))

    return run


def waiting(depth: int, holders: int) -> Queue:
    queue = Queue()
    for number, (id_, holder) in enumerate(requests(depth, holders)):
        queue.add(Request(id_, holder, 0, float(number)))
    return queue


def bytes_each(depth: int, holders: int) -> float:
    """Bytes that a waiting request takes, with its part of its holder; the strings and the arrival are the caller's."""
    made = [Request(id_, holder, 0, float(at)) for at, (id_, holder) in enumerate(requests(depth, holders))]
    gc.collect()
    tracemalloc.start()
    queue = Queue()
    for request in made:
        queue.add(request)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert queue.view.depth == depth
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
        ("Rota, 64 waiting", lambda holders: with_standing(cycles, holders, 64)),
        ("Rota, needs and affinity", lambda holders: with_needs(cycles, holders)),
        ("Rota, each loses one race", lambda holders: with_races(cycles, holders)),
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
    report = Report("a standing queue of so many, bindings/s", columns)
    cycles = 20_000 if quick else 100_000
    for depth in (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 300_000):
        works = [
            rate(cycles, lambda depth=depth: with_heapq(cycles, depth)),  # type: ignore[misc]
            *(
                rate(cycles, lambda depth=depth, holders=holders: with_standing(cycles, holders, depth))  # type: ignore[misc]
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
    queues = [waiting(depth, each) for each in shapes]
    middle = f"request-{depth // 2:07d}"
    report.add("position of one, ms", *(1e3 * seconds(lambda q=q: q.view.position(middle)) for q in queues))  # type: ignore[misc]
    report.add(f"the first {LISTED}, ms", *(1e3 * seconds(lambda q=q: q.view.waiting(LISTED)) for q in queues))  # type: ignore[misc]
    order = [id_ for id_, _ in requests(depth, 1)]
    random.Random(SEED).shuffle(order)

    def cancel_all(queue: Queue) -> None:
        for id_ in order:
            queue.cancel(id_)

    report.add("cancel, in any order, µs", *(1e6 * seconds(lambda q=q: cancel_all(q)) / depth for q in queues))  # type: ignore[misc]
    stored = [
        [Request(id_, holder, 0, float(at)) for at, (id_, holder) in enumerate(requests(depth, each))]
        for each in shapes
    ]
    report.add("restart with all of them, ms", *(1e3 * seconds(lambda s=s: Queue().restore(waiting=s)) for s in stored))  # type: ignore[misc]
    report.show()
    return report


def worst_things() -> Report:
    report = Report("what costs more than it should be asked for", ["µs"])
    queue = Queue()
    for number in range(MANY_KINDS):
        queue.add(Request(f"w{number}", "someone", 0, float(number), frozenset({f"image-{number}"})))
    for number in range(INSTANCES):
        queue.restore(bound=[(Request(f"b{number}", "someone", 0, 0.0), f"i{number}")])

    def release_all() -> None:
        for number in range(INSTANCES):
            queue.released(f"i{number}")

    took = seconds(release_all) / INSTANCES
    report.add(f"the end of a hold, its holder waiting with {MANY_KINDS} different needs", 1e6 * took)
    took = seconds(lambda: queue.offer(Offer("new", frozenset({"image-new"}))))
    report.add(f"the first offer of its kind, {MANY_KINDS} different needs waiting", 1e6 * took)
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
