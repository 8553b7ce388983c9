"""The difference between growth and noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from rota.store.ring import RING_EVENTS_MAX
from tests.soak.judge import LONG_SECONDS, RULES, SAMPLES_MIN, Sample, bound_of, grown

CALM = {"memory_mb": 100.0, "keeper_mb": 10.0, "descriptors": 40.0, "threads": 9.0, "processes": 30.0}
FILES = {"files": 150.0, "store_mb": 20.0}
STEP_SECONDS = 30.0


def run(count: int, of: Mapping[str, Callable[[int], float]] = {}, step: float = STEP_SECONDS) -> list[Sample]:
    """Samples of a server of which measures or tables are functions of the number of the sample."""
    found = []
    for number in range(count):
        told = {name: size(number) for name, size in of.items()}
        measures = {name: told.get(name, size) for name, size in {**CALM, **FILES}.items()}
        tables = {name: int(size) for name, size in told.items() if name not in measures}
        found.append(Sample(number * step, number * step, measures, {"engine.core.Core.nodes": 20, **tables}))
    return found


def names(samples: list[Sample]) -> list[str]:
    return [one.name for one in grown(samples)]


def test_what_stays_as_it_is_has_not_grown() -> None:
    assert names(run(60)) == []


@pytest.mark.parametrize("name", [*CALM, *FILES])
def test_a_measure_that_grows_all_the_time_is_named(name: str) -> None:
    before = {**CALM, **FILES}[name]
    assert names(run(120, {name: lambda number: before * (1 + number / 20)})) == [name]


def test_a_table_that_grows_by_one_entry_a_sample_or_more_is_named() -> None:
    assert names(run(120, {"a.b": lambda number: 2 * number})) == ["a.b"]


def test_a_queue_that_was_long_for_a_while_has_not_grown() -> None:
    assert names(run(60, {"a.b": lambda number: 5_000 if number in (41, 45, 52, 58) else 10})) == []


def test_what_goes_up_and_down_has_not_grown() -> None:
    chance = random.Random(1)
    found = run(90, {"descriptors": lambda _: 40 + chance.randrange(12), "a.b": lambda _: 1000 + chance.randrange(100)})
    assert names(found) == []


def test_a_table_with_a_bound_may_grow_up_to_it() -> None:
    assert names(run(60, {"store.ring.Ring.events": lambda number: number * RING_EVENTS_MAX // 60})) == []


def test_a_cache_may_grow_up_to_the_size_it_was_given() -> None:
    assert bound_of("api.decoding.small()") == 4_096
    assert bound_of("api.meta.decoder()") == 0
    assert names(run(60, {"api.decoding.small()": lambda number: 50 * number})) == []
    assert names(run(60, {"api.meta.decoder()": lambda number: 50 * number})) == ["api.meta.decoder()"]


def test_the_file_of_a_store_is_judged_when_its_log_has_been_compacted_for_a_while() -> None:
    warm = RULES["store_mb"].warm_seconds
    grows_until_warm = run(120, {"store_mb": lambda number: min(number * STEP_SECONDS, warm)})
    assert names(grows_until_warm) == []


def test_memory_is_judged_closely_in_a_long_run_only() -> None:
    def memory(number: int) -> float:
        return 100 + number

    assert names(run(60, {"memory_mb": memory}, LONG_SECONDS / 50)) == ["memory_mb"]
    assert names(run(60, {"memory_mb": memory}, LONG_SECONDS / 100)) == []


def test_of_too_few_samples_nothing_is_said() -> None:
    assert names(run(SAMPLES_MIN - 1, {"a.b": lambda number: 1000 * number})) == []
