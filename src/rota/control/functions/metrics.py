"""The metrics of functions: calls by outcome, waiting and running times, queue lengths, workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rota.client import Key
from rota.control.functions.routing import Routing
from rota.engine.metrics import Metrics


class FunctionMetrics:
    """The metrics of calls, by namespace and function."""

    def __init__(self, metrics: Metrics) -> None:
        where = ("namespace", "function")
        self._metrics = metrics
        self._calls = metrics.counter("rota_function_calls_total", "Calls that are over.", (*where, "outcome"))
        self._waited = metrics.histogram("rota_function_wait_seconds", "From when a call came until it began.", where)
        self._took = metrics.histogram("rota_function_call_seconds", "How long a call took.", where)

    def watch(self, functions: Callable[[], Mapping[Key, Routing]]) -> None:
        """Add gauges, which read the present state of functions."""
        where = ("namespace", "function")
        self._metrics.gauge(
            "rota_function_waiting",
            "Calls that wait for a worker.",
            where,
            read=lambda: {tuple(key): float(one.waiting) for key, one in functions().items()},
        )
        self._metrics.gauge(
            "rota_function_running",
            "Calls that are under way.",
            where,
            read=lambda: {tuple(key): float(one.under_way) for key, one in functions().items()},
        )
        self._metrics.gauge(
            "rota_function_workers",
            "Workers that can be called.",
            where,
            read=lambda: {
                tuple(key): float(sum(worker.is_open for worker in one.workers)) for key, one in functions().items()
            },
        )

    def ended(self, key: Key, outcome: str, waited_seconds: float, took_seconds: float) -> None:
        self._calls.add((*key, outcome))
        self._waited.observe(tuple(key), max(0.0, waited_seconds))
        self._took.observe(tuple(key), max(0.0, took_seconds))

    def forget(self, key: Key) -> None:
        """Drop the series of a deleted function."""
        for series in (self._calls, self._waited, self._took):
            series.forget(tuple(key))

    def not_called(self, key: Key, reason: str) -> None:
        self._calls.add((*key, reason))
