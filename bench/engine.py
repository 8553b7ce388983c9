"""Benchmark of the scheduler beside its peers: `python -m bench.engine [--quick] [--json FILE]`.

Every row does the same work: no-op nodes that each need three others on average, and run after them. `graphlib` alone
is the limit for bookkeeping in Python: it gets the graph beforehand and runs nothing.
"""

from __future__ import annotations

import asyncio
import gc
import graphlib
import random
import resource
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bench.harness import Report, arguments, best_of, save
from rota.engine import DONE, Blocked, Outcome, Scheduler, VirtualClock

Graph = Mapping[str, tuple[str, ...]]
Work = Callable[[], Awaitable[float]]

NEEDS_MAX = 6
SEED = 7
PARKED = 10_000
WAKES = 5_000
DASK_NODES_MAX = 20_000


def names(count: int) -> list[str]:
    return [f"node-{i:07d}" for i in range(count)]


def random_graph(count: int, *, shuffled: bool) -> Graph:
    """Return a graph in which each node needs up to six earlier ones. `shuffled` names do not follow that order."""
    chance = random.Random(SEED)
    order = names(count)
    if shuffled:
        chance.shuffle(order)
    return {
        name: tuple({order[chance.randrange(i)] for _ in range(min(i, chance.randint(0, NEEDS_MAX)))})
        for i, name in enumerate(order)
    }


def chain(count: int) -> Graph:
    """Return a graph in which each node needs the next one by name: a start in the order of names is the worst."""
    order = names(count)
    return {name: (order[i + 1],) if i + 1 < count else () for i, name in enumerate(order)}


def fan_in(count: int) -> Graph:
    order = names(count)
    return {"all": tuple(order), **dict.fromkeys(order, ())}


def fan_out(count: int) -> Graph:
    return {"zero": (), **dict.fromkeys(names(count), ("zero",))}


# Ways to run a graph. Each returns nodes per second.


def with_graphlib(graph: Graph) -> Work:
    async def work() -> float:
        began = time.perf_counter()
        sorter = graphlib.TopologicalSorter(graph)
        sorter.prepare()
        while sorter.is_active():
            for node in sorter.get_ready():
                sorter.done(node)
        return len(graph) / (time.perf_counter() - began)

    return work


def with_engine(graph: Graph, *, declared: bool = False, awaits: bool = False) -> Work:
    """Run a graph on Rota's engine.

    With `declared`, the engine gets the needs of each node beforehand, as the peers do. Otherwise a node runs, reports
    what it is blocked on, and runs again.
    """

    async def work() -> float:
        ended: set[str] = set()

        def body(id_: str, level: int) -> Outcome:
            missing = [need for need in graph[id_] if need not in ended]
            if missing:
                return Blocked(tuple(missing))
            ended.add(id_)
            return DONE

        async def waiting_body(id_: str, level: int) -> Outcome:
            await asyncio.sleep(0)
            return body(id_, level)

        began = time.perf_counter()
        scheduler = Scheduler(waiting_body if awaits else body, clock=VirtualClock())
        scheduler.seed(graph, after=graph.__getitem__ if declared else None)
        result = await scheduler.run()
        took = time.perf_counter() - began
        assert len(ended) == len(graph) and result.level == 0
        return len(graph) / took

    return work


def with_task_group(graph: Graph) -> Work:
    """Run a graph as one asyncio task for each node, which waits for its needs; 64 run at once."""

    async def work() -> float:
        ended = {id_: asyncio.Event() for id_ in graph}
        slots = asyncio.Semaphore(64)

        async def run(id_: str) -> None:
            for need in graph[id_]:
                await ended[need].wait()
            async with slots:
                await asyncio.sleep(0)
            ended[id_].set()

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for id_ in graph:
                group.create_task(run(id_))
        return len(graph) / (time.perf_counter() - began)

    return work


def with_dask(graph: Graph) -> Work | None:
    try:
        from dask.threaded import get
    except ImportError:
        return None

    def nothing(*_: Any) -> None:
        return None

    async def work() -> float:
        tasks: dict[str, Any] = {id_: (nothing, *needs) for id_, needs in graph.items()}
        tasks["everything"] = (nothing, *graph)
        began = time.perf_counter()
        get(tasks, "everything", num_workers=2)
        return len(graph) / (time.perf_counter() - began)

    return work


# Memory, wakes, and nodes without watchers.


async def unwatched_arrivals(count: int) -> float:
    scheduler = Scheduler(lambda id_, level: DONE, clock=VirtualClock())
    ids = names(count)
    began = time.perf_counter()
    for id_ in ids:
        scheduler.arrive(id_, 1, runnable=False)
    await scheduler.run()
    assert len(scheduler.view) == 0
    return count / (time.perf_counter() - began)


async def bytes_each(count: int) -> tuple[float, float, float]:
    """Return the bytes of a parked node with one edge, of each further edge, and of an ended node while serving."""

    async def parked(edges: int) -> float:
        ids = names(count)
        on = {id_: tuple(f"{id_}-{i}" for i in range(edges)) for id_ in ids}
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        scheduler = Scheduler(lambda id_, level: Blocked(on[id_]), clock=VirtualClock(), live=True)
        serving = asyncio.create_task(scheduler.serve())
        for id_ in ids:
            scheduler.arrive(id_)
        while len(scheduler.view.parked()) < count:
            await asyncio.sleep(0)
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        await scheduler.cancel()
        await serving
        return used / count

    async def ended() -> float:
        ids = names(count)
        gc.collect()
        tracemalloc.start()
        scheduler = Scheduler(lambda id_, level: DONE, clock=VirtualClock(), live=True)
        serving = asyncio.create_task(scheduler.serve())
        before = tracemalloc.get_traced_memory()[0]
        for id_ in ids:
            scheduler.arrive(id_)
        while len(scheduler.view):
            await asyncio.sleep(0)
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        await scheduler.cancel()
        await serving
        return max(0.0, used / count)

    one, four = await parked(1), await parked(4)
    return one, (four - one) / 3, await ended()


async def wake_to_run(parked: int, wakes: int) -> list[float]:
    """Return the sorted seconds from a wake to the run of the woken node, with this number of parked nodes."""
    ran: asyncio.Future[float]

    def body(id_: str, level: int) -> Outcome:
        if started and not ran.done():
            ran.set_result(time.perf_counter())
        return Blocked((f"{id_}-need",))

    started = False
    scheduler = Scheduler(body, live=True)
    serving = asyncio.create_task(scheduler.serve())
    ids = names(parked)
    for id_ in ids:
        scheduler.arrive(id_)
    while len(scheduler.view.parked()) < parked:
        await asyncio.sleep(0)
    started = True
    chance = random.Random(SEED)
    found = []
    for _ in range(wakes):
        ran = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        scheduler.status(f"{chance.choice(ids)}-need", "Ready")
        found.append(await ran - began)
    await scheduler.cancel()
    await serving
    return sorted(found)


async def main() -> None:
    options = arguments(__doc__.splitlines()[0] if __doc__ else "").parse_args()
    count = 20_000 if options.quick else 100_000
    reports = [
        await side_by_side(count),
        await shapes(2_000 if options.quick else 10_000),
        await growth(options.quick),
        await small_things(options.quick),
    ]
    save(options.json, reports)


async def side_by_side(count: int) -> Report:
    report = Report(f"{count} nodes, 3 needs each on average, nodes/s", ["in order", "any order", "to graphlib"])
    graphs = [random_graph(count, shuffled=shuffled) for shuffled in (False, True)]
    ways: list[tuple[str, Callable[[Graph], Work | None]]] = [
        ("graphlib alone: the limit", with_graphlib),
        ("Rota, needs declared beforehand", lambda graph: with_engine(graph, declared=True)),
        ("Rota, needs discovered by running", with_engine),
        ("Rota, declared, bodies that await", lambda graph: with_engine(graph, declared=True, awaits=True)),
        ("Rota, discovered, bodies that await", lambda graph: with_engine(graph, awaits=True)),
        ("asyncio TaskGroup + semaphore", with_task_group),
    ]
    figures = [await best_of([work for _, way in ways if (work := way(graph))]) for graph in graphs]
    limit = figures[1][0]
    for (label, _), first, second in zip(ways, *figures, strict=True):
        report.add(label, first, second, second / limit)
    small = random_graph(min(count, DASK_NODES_MAX), shuffled=True)
    dask = with_dask(small)
    if dask is not None:
        [ours, threaded] = await best_of([with_engine(small, declared=True), dask], runs=2)
        report.add(f"dask.threaded ({len(small)} nodes)", None, threaded, threaded / limit)
        report.add("Rota, declared, to dask", None, ours / threaded, None)
    else:
        report.add("dask is not here: pip install dask", None, None, None)
    report.show()
    return report


async def shapes(count: int) -> Report:
    report = Report(f"shapes of {count} nodes, nodes/s", ["graphlib", "declared", "discovered", "await, declared"])
    for label, graph in (
        ("chain, last first", chain(count)),
        ("fan-in", fan_in(count)),
        ("fan-out", fan_out(count)),
    ):
        works = [
            with_graphlib(graph),
            with_engine(graph, declared=True),
            with_engine(graph),
            with_engine(graph, declared=True, awaits=True),
        ]
        report.add(label, *await best_of(works))
    report.show()
    return report


async def growth(quick: bool) -> Report:
    report = Report("growth, declared, nodes/s", ["graphlib", "Rota", "µs a node"])
    sizes = (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    for size in sizes:
        graph = random_graph(size, shuffled=True)
        runs = 3 if size <= 100_000 else 1
        [limit, rota] = await best_of([with_graphlib(graph), with_engine(graph, declared=True)], runs=runs)
        report.add(f"{size}", limit, rota, 1e6 / rota)
    report.show()
    return report


async def small_things(quick: bool) -> Report:
    report = Report("single figures", ["figure"])
    arrivals = 200_000 if quick else 1_000_000
    report.add(f"{arrivals} arrivals of nodes that nobody waits for, per s", await unwatched_arrivals(arrivals))
    node, edge, ended = await bytes_each(10_000)
    report.add("bytes of a parked node with one edge, serving", node)
    report.add("bytes of each further edge (its id's place in the index)", edge)
    report.add("bytes of a node that has ended, serving", ended)
    latencies = await wake_to_run(PARKED, WAKES)
    report.add(f"wake to run, p50 in µs, {PARKED} parked", latencies[len(latencies) // 2] * 1e6)
    report.add(f"wake to run, p99 in µs, {PARKED} parked", latencies[int(len(latencies) * 0.99)] * 1e6)
    report.add("peak memory of all this, MiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    report.show()
    return report


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())
