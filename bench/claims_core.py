"""The ledger of `bench.claims` alone: no server, no disk, no clock. `bench.queue` measures more of it."""

from __future__ import annotations

import gc
import time
import tracemalloc

from bench.harness import RUNS, Report, best_of
from bench.queue import INSTANCES, bytes_each, instances, rate, requests, seconds, waiting, with_backlog, with_ready
from rota.pools import Binding, Ledger, Opened, Request

CYCLES, CYCLES_QUICK = 200_000, 50_000
RUNS_QUICK = 1
WAITERS = 100_000
SHAPES = {"1 holder": 1, "10 each": WAITERS // 10}
"""The numbers of holders: one for all requests, or one for every ten."""
MIB = 2**20


async def bindings(quick: bool) -> Report:
    cycles = CYCLES_QUICK if quick else CYCLES
    report = Report("the ledger alone, bindings/s", [*SHAPES])
    for label, way in {
        "an instance is ready": with_ready,
        f"{INSTANCES} wait": lambda cycles, holders: with_backlog(cycles, holders, INSTANCES),
        f"{WAITERS:,} wait": lambda cycles, holders: with_backlog(cycles, holders, WAITERS),
    }.items():
        works = [rate(cycles, lambda way=way, holders=holders: way(cycles, holders)) for holders in SHAPES.values()]  # type: ignore[misc]
        report.add(label, *await best_of(works, RUNS_QUICK if quick else RUNS))
    report.show()
    return report


def waiters() -> Report:
    """Measure many waiting requests: queueing them, serving all of them, and their memory."""
    report = Report(f"{WAITERS:,} waiting requests, in the ledger", [*SHAPES])
    report.add("queued, per s", *(WAITERS / seconds(lambda h=h: waiting(WAITERS, h)) for h in SHAPES.values()))  # type: ignore[misc]
    report.add("all bound, per s", *(served_per_second(holders) for holders in SHAPES.values()))
    report.add("memory, MiB", *(bytes_each(WAITERS, holders) * WAITERS / MIB for holders in SHAPES.values()))
    report.add("memory with the requests, MiB", *(memory_mib(holders) for holders in SHAPES.values()))
    report.show()
    return report


def served_per_second(holders: int) -> float:
    """Return the requests bound per second while a queue is emptied. Each hold ends when its instance is needed."""
    ledger, free = waiting(WAITERS, holders), instances()
    held: dict[str, str] = {}
    gc.collect()
    began = time.perf_counter()
    for number in range(WAITERS):
        instance = free[number % INSTANCES]
        if instance in held:
            ledger.ended(held[instance])
        ledger.open(instance, Opened.WHOLE)
        binding = ledger.effects.pop()
        assert isinstance(binding, Binding) and ledger.bound(binding)
        held[instance] = binding.request.id
    took = time.perf_counter() - began
    assert ledger.depth == 0
    return WAITERS / took


def memory_mib(holders: int) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        ledger = Ledger()
        for number, (id_, holder) in enumerate(requests(WAITERS, holders)):
            ledger.request(Request(id_, holder, 0, float(number)))
        return tracemalloc.get_traced_memory()[0] / MIB
    finally:
        tracemalloc.stop()
