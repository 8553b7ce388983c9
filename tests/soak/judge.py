"""Judge whether a measure grew: compare the median of the middle third of a run with that of its last third.

Medians of thirds are not moved by a slow minute of the machine, by a queue that was long for a while, or by a file that
was just compacted. What leaks grows by as much in the last third as it did before.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from rota.api import KINDS
from rota.control.functions.moulds import MOULDS_MAX
from rota.control.holds.executor import PACE_BINDINGS
from rota.control.schedules.heap import STALE_MAX
from rota.engine.recorder import QUEUE_MAX, REMEMBERED_MAX
from rota.engine.timers import STALE_TIMERS_MAX
from rota.pools.waiting import DEAD_ENTRIES_MAX
from rota.runtime.keeper.connection import UNCLAIMED_EXITS_MAX
from rota.store.compaction import CHECKPOINTS, KEEP_SECONDS
from rota.store.ring import RING_EVENTS_MAX

SAMPLES_MIN = 9
"""Three a third. Of fewer, nothing is judged."""
LONG_SECONDS = 600.0
"""From so long a run on, memory is judged closely: by then caches and rings are full."""
PACKAGE = "rota."
POOLS_MAX = 4
"""The pools of the load at a time."""


class Rule(NamedTuple):
    """Allowed growth from the middle third to the last: an absolute number, or a share of the middle median."""

    most: float
    share: float
    warm_seconds: float = 0.0
    """Samples that are younger than this, by the age of the server, are left out."""


RULES = {
    "descriptors": Rule(16, 0.2),
    "threads": Rule(8, 0.2),
    "processes": Rule(12, 0.3),
    "files": Rule(100, 0.3),
    # The log of changes is kept for a time, and its file is not given back but used again.
    "store_mb": Rule(8, 0.25, 2 * KEEP_SECONDS),
}
MEMORY = {"memory_mb": Rule(6, 0.1), "keeper_mb": Rule(4, 0.1)}
MEMORY_OF_SHORT_RUN = Rule(40, 0.5)
"""While rings and caches fill, only what is gross can be told from them."""
TABLE = Rule(32, 0.3)
BOUNDED = {
    "store.ring.Ring.events": len(KINDS) * RING_EVENTS_MAX,
    "store.compaction.Policy.checkpoints": 2 * CHECKPOINTS,
    "engine.recorder._Recent.things": 3 * REMEMBERED_MAX,
    "engine.recorder.Recorder.queue": QUEUE_MAX,
    "engine.timers.Timers.heap": STALE_TIMERS_MAX,
    # Nodes that ran within a window of ten seconds: as many as the load has them run.
    "engine.pacing.Brake.runs": 2_000,
    "control.schedules.heap.Heap.heap": STALE_MAX,
    "control.holds.executor.Executor.paces[]": POOLS_MAX * PACE_BINDINGS,
    "control.functions.moulds.Moulds.moulds": MOULDS_MAX,
    "pools.waiting.Waiting.heap": POOLS_MAX * DEAD_ENTRIES_MAX,
    "pools.ordered.Ordered.chunks": POOLS_MAX * DEAD_ENTRIES_MAX,
    "runtime.keeper.connection.Connection.unasked": UNCLAIMED_EXITS_MAX,
}
"""Tables that fill up, and how far. Below that they may grow."""


class Sample(NamedTuple):
    """The measures of one moment."""

    seconds: float
    """Since the run began."""
    age: float
    """The age of the server's process, in seconds."""
    measures: Mapping[str, float]
    tables: Mapping[str, int]


class Growth(NamedTuple):
    """A measure that grew by more than is allowed."""

    name: str
    middle: float
    last: float
    allowed: float

    def __str__(self) -> str:
        return f"{self.name}: from {self.middle:.1f} to {self.last:.1f}, where {self.allowed:.1f} more are allowed"


def grown(samples: Sequence[Sample]) -> list[Growth]:
    """The measures and tables that grew."""
    if len(samples) < SAMPLES_MIN:
        return []
    found = []
    is_long = samples[-1].seconds - samples[0].seconds >= LONG_SECONDS
    rules = RULES | {name: rule if is_long else MEMORY_OF_SHORT_RUN for name, rule in MEMORY.items()}
    for name, rule in rules.items():
        old_enough = [one for one in samples if one.age >= rule.warm_seconds]
        found.append(_judged(name, [one.measures[name] for one in old_enough], rule))
    for name in sorted({name for one in samples for name in one.tables}):
        growth = _judged(name, [float(one.tables.get(name, 0)) for one in samples], TABLE)
        if growth is not None and growth.last > bound_of(name):
            found.append(growth)
    return [one for one in found if one is not None]


def _judged(name: str, values: Sequence[float], rule: Rule) -> Growth | None:
    if len(values) < SAMPLES_MIN:
        return None
    third = len(values) // 3
    middle, last = median(values[third:-third]), median(values[-third:])
    allowed = max(rule.most, rule.share * middle)
    return Growth(name, middle, last, allowed) if last - middle > allowed else None


def bound_of(table: str) -> float:
    """Return how many entries a table may have whatever happens; 0: it must not grow at all."""
    if not table.endswith("()"):
        return BOUNDED.get(table, 0)
    # A cache of a function says itself how large it may become.
    module, _, name = table.removesuffix("()").rpartition(".")
    there = vars(importlib.import_module(PACKAGE + module))
    cached = there.get(name) or there.get(f"_{name}") or there.get(f"__{name}")
    most = cached.cache_parameters()["maxsize"] if cached is not None else None
    return 0 if most is None else float(most)
