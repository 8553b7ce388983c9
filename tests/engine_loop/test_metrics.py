"""Numbers as Prometheus reads them, and those of the engine."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rota.engine import Blocked, Done, Failed, Outcome, RequeueAfter, Scheduler, VirtualClock
from rota.engine.metrics import LABEL_LENGTH_MAX, SECONDS_BUCKETS, SERIES_MAX, EngineMetrics, Metrics

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(metrics: Metrics) -> Samples:
    """Return the samples that a monitoring system reads: values by the sample's name and the values of its labels."""
    text = metrics.render().decode()
    families = text_string_to_metric_families(text)
    found = [(s.name, tuple(s.labels.values()), s.value) for family in families for s in family.samples]
    assert len({(name, labels) for name, labels, _ in found}) == len(found), "a series is there twice"
    return {(name, labels): value for name, labels, value in found}


# Counters and gauges.


def test_a_counter_counts_by_its_labels() -> None:
    metrics = Metrics()
    runs = metrics.counter("runs_total", "Runs.", ("kind", "outcome"))
    runs.add(("Task", "done"))
    runs.add(("Task", "done"), 2)
    runs.add(("Task", "failed"), 0.5)
    assert samples(metrics) == {("runs_total", ("Task", "done")): 3, ("runs_total", ("Task", "failed")): 0.5}


def test_the_text_says_what_a_metric_is() -> None:
    metrics = Metrics()
    metrics.counter("runs_total", "Runs.", ("kind",)).add(("Task",))
    assert metrics.render() == b'# HELP runs_total Runs.\n# TYPE runs_total counter\nruns_total{kind="Task"} 1\n'


def test_a_counter_without_labels_is_there_before_it_counted() -> None:
    metrics = Metrics()
    metrics.counter("starts_total", "Starts.")
    assert samples(metrics) == {("starts_total", ()): 0}


@pytest.mark.parametrize("amount", [-1, math.nan, math.inf])
def test_a_counter_only_goes_up(amount: float) -> None:
    runs = Metrics().counter("runs_total", "Runs.", ("kind",))
    with pytest.raises(ValueError, match="cannot go up"):
        runs.add(("Task",), amount)


def test_a_gauge_is_read_when_it_is_rendered() -> None:
    metrics = Metrics()
    depth: dict[tuple[str, ...], float] = {("Task",): 3.0}
    metrics.gauge("depth", "Depth.", ("kind",), read=lambda: depth)
    assert samples(metrics) == {("depth", ("Task",)): 3}
    depth[("Claim",)] = -1.5
    assert samples(metrics) == {("depth", ("Task",)): 3, ("depth", ("Claim",)): -1.5}


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300, 2**60 + 1, 0.1, 1e-9])
def test_numbers_arrive_as_they_are(value: float) -> None:
    metrics = Metrics()
    metrics.gauge("size", "Size.", read=lambda: {(): value})
    assert samples(metrics) == {("size", ()): value}


def test_a_gauge_may_be_no_number() -> None:
    metrics = Metrics()
    metrics.gauge("size", "Size.", read=lambda: {(): math.nan})
    assert math.isnan(samples(metrics)[("size", ())])


# Labels.


@pytest.mark.parametrize("value", ['a "b"', "a\\b", "a\nb", "\\n", "\\", '\\"', "a\rb", "", "é→🐟", "a,b}=", "{"])
def test_labels_and_help_are_escaped(value: str) -> None:
    metrics = Metrics()
    metrics.counter("runs_total", f"Runs of {value}.", ("kind", "last")).add((value, "x"))
    (family,) = text_string_to_metric_families(metrics.render().decode())
    assert family.documentation == f"Runs of {value}."
    assert [sample.labels for sample in family.samples] == [{"kind": value, "last": "x"}]


def test_half_a_character_does_not_spoil_the_text() -> None:
    metrics = Metrics()
    metrics.counter("runs_total", "Runs.", ("kind",)).add(("\ud83d",))
    assert samples(metrics) == {("runs_total", ("?",)): 1}


def test_the_text_is_sorted() -> None:
    metrics = Metrics()
    for name in ("b_total", "a_total"):
        counter = metrics.counter(name, "Things.", ("kind",))
        for kind in ("Task", "Claim"):
            counter.add((kind,))
    lines = [line for line in metrics.render().decode().splitlines() if line[0] != "#"]
    assert lines == [
        'a_total{kind="Claim"} 1',
        'a_total{kind="Task"} 1',
        'b_total{kind="Claim"} 1',
        'b_total{kind="Task"} 1',
    ]


def test_a_counter_has_so_many_series_and_counts_the_rest_under_other() -> None:
    metrics = Metrics()
    runs = metrics.counter("runs_total", "Runs.", ("kind", "reason"))
    for number in range(SERIES_MAX + 5):
        runs.add(("Task", f"reason {number}"))
    runs.add(("Task", "reason 0"))
    found = samples(metrics)
    assert len(found) == SERIES_MAX + 1
    assert found[("runs_total", ("other", "other"))] == 5
    assert found[("runs_total", ("Task", "reason 0"))] == 2


def test_a_histogram_has_so_many_series_too() -> None:
    metrics = Metrics()
    seconds = metrics.histogram("run_seconds", "Time.", ("kind",), buckets=(1.0,))
    for number in range(SERIES_MAX + 5):
        seconds.observe((f"{number}",), 0.5)
    found = samples(metrics)
    assert sum(name == "run_seconds_count" for name, _ in found) == SERIES_MAX + 1
    assert found[("run_seconds_count", ("other",))] == 5


def test_a_gauge_has_so_many_series_too() -> None:
    metrics = Metrics()
    metrics.gauge("depth", "Depth.", ("kind",), read=lambda: {(f"{n:05}",): 2 for n in range(SERIES_MAX + 5)})
    found = samples(metrics)
    assert len(found) == SERIES_MAX + 1
    assert found[("depth", ("other",))] == 10


def test_a_long_label_is_cut() -> None:
    metrics = Metrics()
    runs = metrics.counter("runs_total", "Runs.", ("kind",))
    runs.add(("x" * 1000,))
    runs.add(("x" * 2000,))
    assert samples(metrics) == {("runs_total", ("x" * LABEL_LENGTH_MAX,)): 2}


def test_labels_must_be_as_many_as_there_are_names() -> None:
    with pytest.raises(ValueError, match="has the labels"):
        Metrics().counter("runs_total", "Runs.", ("kind",)).add(("Task", "done"))


@pytest.mark.parametrize(
    "make",
    [
        lambda metrics: metrics.counter("1st", ""),
        lambda metrics: metrics.counter("a-b", ""),
        lambda metrics: metrics.counter("a", "", ("b c",)),
        lambda metrics: metrics.counter("a", "", ("__b",)),
        lambda metrics: metrics.histogram("a", "", ("le",)),
        lambda metrics: metrics.histogram("a", "", buckets=(2, 1)),
        lambda metrics: metrics.histogram("a", "", buckets=(1, math.inf)),
        lambda metrics: metrics.counter("taken", ""),
    ],
)
def test_what_could_not_be_read_cannot_be_made(make: Callable[[Metrics], object]) -> None:
    metrics = Metrics()
    metrics.counter("taken", "")
    with pytest.raises(ValueError):
        make(metrics)


# Histograms.


def test_buckets_are_cumulative_and_end_with_all() -> None:
    metrics = Metrics()
    seconds = metrics.histogram("run_seconds", "Time.", ("kind",), buckets=(0.01, 0.1, 1))
    for value in (0.0, 0.01, 0.02, 0.5, 7.0):
        seconds.observe(("Task",), value)
    assert samples(metrics) == {
        ("run_seconds_bucket", ("Task", "0.01")): 2,
        ("run_seconds_bucket", ("Task", "0.1")): 3,
        ("run_seconds_bucket", ("Task", "1.0")): 4,
        ("run_seconds_bucket", ("Task", "+Inf")): 5,
        ("run_seconds_count", ("Task",)): 5,
        ("run_seconds_sum", ("Task",)): pytest.approx(7.53),
    }


def test_a_histogram_without_labels_is_there_before_it_was_used() -> None:
    metrics = Metrics()
    metrics.histogram("run_seconds", "Time.", buckets=(1,))
    assert samples(metrics)[("run_seconds_bucket", ("+Inf",))] == 0


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_a_histogram_refuses_what_is_no_size(value: float) -> None:
    metrics = Metrics()
    seconds = metrics.histogram("run_seconds", "Time.", ("kind",))
    with pytest.raises(ValueError, match="cannot be observed"):
        seconds.observe(("Task",), value)
    assert samples(metrics) == {}


# The engine.


class Plant:
    """A scheduler on the virtual clock, its metrics, and bodies that take the time they are told to."""

    def __init__(self, script: dict[str, list[tuple[float, Outcome]]]) -> None:
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.script = script
        self.idle = asyncio.Event()
        self.scheduler = Scheduler(self.body, clock=self.clock, live=True)
        self.scheduler.observer = EngineMetrics(self.metrics, self.scheduler.view, lambda id_: id_.partition("/")[0])

    def body(self, id_: str, level: int) -> Outcome:
        took, outcome = self.script[id_].pop(0)
        self.clock.advance(took)
        if not any(self.script.values()):
            self.idle.set()
        return outcome

    async def until_done(self) -> None:
        serving = asyncio.create_task(self.scheduler.serve())
        await self.idle.wait()
        await self.scheduler.stop()
        await serving


async def test_runs_their_time_and_their_waiting_are_counted_exactly() -> None:
    plant = Plant({"Task/a": [(0.25, Done())], "Task/b": [(0.5, Failed())], "Pool/c": [(2.0, Done())]})
    plant.scheduler.seed(plant.script)
    await plant.until_done()
    found = samples(plant.metrics)
    # In the order of their ids: Pool/c at once, Task/a after 2 s, Task/b after 2.25 s.
    assert {k: v for k, v in found.items() if "bucket" not in k[0]} == {
        ("rota_engine_runs_total", ("Pool", "done")): 1,
        ("rota_engine_runs_total", ("Task", "done")): 1,
        ("rota_engine_runs_total", ("Task", "failed")): 1,
        ("rota_engine_run_seconds_count", ("Pool",)): 1,
        ("rota_engine_run_seconds_sum", ("Pool",)): 2.0,
        ("rota_engine_run_seconds_count", ("Task",)): 2,
        ("rota_engine_run_seconds_sum", ("Task",)): 0.75,
        ("rota_engine_wake_to_run_seconds_count", ("Pool",)): 1,
        ("rota_engine_wake_to_run_seconds_sum", ("Pool",)): 0.0,
        ("rota_engine_wake_to_run_seconds_count", ("Task",)): 2,
        ("rota_engine_wake_to_run_seconds_sum", ("Task",)): 4.25,
    }
    assert found[("rota_engine_run_seconds_bucket", ("Task", "0.1"))] == 0
    assert found[("rota_engine_run_seconds_bucket", ("Task", "0.25"))] == 1
    assert found[("rota_engine_run_seconds_bucket", ("Task", "0.5"))] == 2
    assert found[("rota_engine_wake_to_run_seconds_bucket", ("Task", "2.5"))] == 2


async def test_what_is_parked_is_told_by_its_reason() -> None:
    plant = Plant(
        {
            "Task/a": [(0.0, Blocked(("Pool/x",), reason="NoPool"))],
            "Task/b": [(0.0, Blocked(("Pool/x",), reason="NoPool"))],
            "Task/c": [(0.0, Blocked(("Secret/x",)))],
        }
    )
    plant.scheduler.seed(plant.script)
    await plant.until_done()
    found = samples(plant.metrics)
    assert {k: v for k, v in found.items() if k[0] == "rota_engine_parked"} == {
        ("rota_engine_parked", ("Task", "NoPool")): 2,
        ("rota_engine_parked", ("Task", "Blocked")): 1,
    }
    assert found[("rota_engine_runs_total", ("Task", "blocked"))] == 3


async def test_retries_are_requeues_because_of_an_error() -> None:
    plant = Plant(
        {
            "Task/a": [(0.0, RequeueAfter(5, reason="Conflict", error=OSError("x")))],
            "Task/b": [(0.0, RequeueAfter(5, error=OSError("x")))],
            "Task/c": [(0.0, RequeueAfter(5, reason="Later"))],
        }
    )
    plant.scheduler.seed(plant.script)
    await plant.until_done()
    found = samples(plant.metrics)
    assert {k: v for k, v in found.items() if k[0] == "rota_engine_retries_total"} == {
        ("rota_engine_retries_total", ("Task", "Conflict")): 1,
        ("rota_engine_retries_total", ("Task", "OSError")): 1,
    }
    assert found[("rota_engine_runs_total", ("Task", "requeued"))] == 3


async def test_what_could_run_and_what_runs_is_told() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def body(id_: str, level: int) -> Outcome:
        started.set()
        await go_on.wait()
        return Done()

    scheduler = Scheduler(body, clock=VirtualClock(), concurrency=1, live=True)
    metrics = Metrics()
    EngineMetrics(metrics, scheduler.view, lambda id_: id_.partition("/")[0])
    scheduler.seed(["Pool/a", "Task/b", "Task/c"])
    serving = asyncio.create_task(scheduler.serve())
    await started.wait()
    assert samples(metrics) == {
        ("rota_engine_running", ("Pool",)): 1,
        ("rota_engine_queue_depth", ("Task",)): 2,
    }
    go_on.set()
    await scheduler.stop()
    await serving


def test_a_clock_that_goes_back_does_not_stop_the_engine() -> None:
    metrics = Metrics()
    scheduler = Scheduler(lambda id_, level: Done())
    EngineMetrics(metrics, scheduler.view, lambda id_: "Task").ran("a", Done(), -1.0, math.nan)
    assert samples(metrics)[("rota_engine_run_seconds_bucket", ("Task", str(SECONDS_BUCKETS[0])))] == 1


def test_what_was_counted_of_something_goes_with_it() -> None:
    metrics = Metrics()
    calls = metrics.counter("calls_total", "Calls.", ("namespace", "function", "outcome"))
    took = metrics.histogram("call_seconds", "How long.", ("namespace", "function"), buckets=(1.0,))
    runs = metrics.counter("runs_total", "Runs.", ("kind",))
    long = "x" * (LABEL_LENGTH_MAX + 1)
    for namespace, function in (("a", "f"), ("a", "g"), ("b", "f"), ("b", long)):
        calls.add((namespace, function, "Succeeded"))
        took.observe((namespace, function), 0.5)
    runs.add(("a",))
    calls.forget(("b", long))
    took.forget(("b", long))
    assert {labels[:2] for name, labels in samples(metrics) if name != "runs_total"} == {
        ("a", "f"),
        ("a", "g"),
        ("b", "f"),
    }
    metrics.forget("namespace", "a")
    assert {labels[:2] for name, labels in samples(metrics) if name != "runs_total"} == {("b", "f")}
    assert samples(metrics)[("runs_total", ("a",))] == 1
