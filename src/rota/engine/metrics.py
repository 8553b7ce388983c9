"""Metrics: counters, gauges and histograms, and their text format for Prometheus.

Only the parts that Rota needs, so that importing and counting cost next to nothing. For use on one thread.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from rota.engine.outcome import Blocked, Done, Failed, Outcome, RequeueAfter
from rota.engine.view import NodeView, View

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SERIES_MAX = 1_000
"""Bound on the series of one metric. Values with further labels are counted in one additional series."""
LABEL_LENGTH_MAX = 256
"""Bound on the characters of a label's value. The rest is cut off."""
OTHER = "other"
EXACT_MAX = 2**53
"""Whole numbers below this are written without an exponent."""
SECONDS_BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)

Labels = tuple[str, ...]
"""The values of a metric's labels, in the order of their names."""

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


class Metric(Protocol):
    """A metric that `Metrics` renders."""

    @property
    def labels(self) -> Labels:
        """Return the names of its labels."""
        ...

    def forget(self, labels: Labels) -> None:
        """Drop the series whose labels begin with these: their subject is gone."""
        ...

    def lines(self) -> Iterator[str]: ...


M = TypeVar("M", bound=Metric)


class _Series:
    """The name and labels of a metric, and the bound on its series."""

    def __init__(self, name: str, text: str, labels: Sequence[str], type_: str) -> None:
        if not _METRIC_NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a metric")
        for label in labels:
            if not _LABEL_NAME.fullmatch(label):
                raise ValueError(f"{name}: {label!r} cannot be the name of a label")
        self.name = name
        self.labels = tuple(labels)
        self.head = f"# HELP {name} {_escaped(text)}\n# TYPE {name} {type_}"

    def fit(self, labels: Labels, known: Mapping[Labels, object]) -> Labels:
        """Return the series for labels: their own, or the additional one beyond the bound."""
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {len(labels)} of them")
        labels = tuple(value[:LABEL_LENGTH_MAX] for value in labels)
        if labels in known or len(known) < SERIES_MAX:
            return labels
        return (OTHER,) * len(labels)

    def sample(self, labels: Labels, value: float, suffix: str = "", bound: str = "") -> str:
        pairs = [f'{name}="{_escaped(value, quoted=True)}"' for name, value in zip(self.labels, labels, strict=True)]
        if bound:
            pairs.append(f'le="{bound}"')
        return f"{self.name}{suffix}{'{' if pairs else ''}{','.join(pairs)}{'}' if pairs else ''} {_number(value)}"


class Counter:
    """A counter of events."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self._series = _Series(name, text, labels, "counter")
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, labels: Labels, amount: float = 1) -> None:
        if not 0 <= amount < math.inf:
            raise ValueError(f"{self._series.name}: a counter cannot go up by {amount}")
        try:
            self._values[labels] += amount
        except KeyError:
            labels = self._series.fit(labels, self._values)
            self._values[labels] = self._values.get(labels, 0) + amount

    @property
    def labels(self) -> Labels:
        return self._series.labels

    def forget(self, labels: Labels) -> None:
        _forget(self._values, labels)

    def lines(self) -> Iterator[str]:
        yield self._series.head
        for labels, value in sorted(self._values.items()):
            yield self._series.sample(labels, value)


class Gauge:
    """A gauge, whose values are read at each rendering."""

    def __init__(self, name: str, text: str, labels: Sequence[str], read: Callable[[], Mapping[Labels, float]]) -> None:
        self._series = _Series(name, text, labels, "gauge")
        self._read = read

    @property
    def labels(self) -> Labels:
        return self._series.labels

    def forget(self, labels: Labels) -> None:
        """Do nothing: no values are kept."""

    def lines(self) -> Iterator[str]:
        yield self._series.head
        values: dict[Labels, float] = {}
        for labels, value in sorted(self._read().items()):
            labels = self._series.fit(labels, values)
            values[labels] = values.get(labels, 0) + value
        for labels, value in sorted(values.items()):
            yield self._series.sample(labels, value)


class Histogram:
    """A histogram of observed values."""

    def __init__(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self._bounds = tuple(map(float, buckets))
        if not all(map(math.isfinite, self._bounds)) or any(
            a >= b for a, b in zip(self._bounds, self._bounds[1:], strict=False)
        ):
            raise ValueError(f"{name}: the bounds of buckets are numbers that grow, not {buckets}")
        if "le" in labels:
            raise ValueError(f"{name}: the label 'le' is the bound of a bucket")
        self._series = _Series(name, text, labels, "histogram")
        self._values: dict[Labels, list[float]] = {}
        """By labels, the count of each bucket alone, followed by the sum of all values."""
        if not labels:
            self._new(())

    def observe(self, labels: Labels, value: float) -> None:
        if not 0 <= value < math.inf:
            raise ValueError(f"{self._series.name}: {value} cannot be observed")
        try:
            values = self._values[labels]
        except KeyError:
            values = self._new(labels)
        values[bisect_left(self._bounds, value)] += 1
        values[-1] += value

    @property
    def labels(self) -> Labels:
        return self._series.labels

    def forget(self, labels: Labels) -> None:
        _forget(self._values, labels)

    def _new(self, labels: Labels) -> list[float]:
        labels = self._series.fit(labels, self._values)
        return self._values.setdefault(labels, [0] * (len(self._bounds) + 1) + [0.0])

    def lines(self) -> Iterator[str]:
        series = self._series
        yield series.head
        for labels, (*counts, total) in sorted(self._values.items()):
            below = 0.0
            for bound, count in zip((*map(repr, self._bounds), "+Inf"), counts, strict=True):
                below += count
                yield series.sample(labels, below, "_bucket", bound)
            yield series.sample(labels, total, "_sum")
            yield series.sample(labels, below, "_count")


class Metrics:
    """All metrics of a process."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return self._keep(name, Counter(name, text, labels))

    def gauge(
        self, name: str, text: str, labels: Sequence[str] = (), *, read: Callable[[], Mapping[Labels, float]]
    ) -> Gauge:
        """Add a gauge. `read` is called at each rendering and returns the values by labels."""
        return self._keep(name, Gauge(name, text, labels, read))

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float] = SECONDS_BUCKETS
    ) -> Histogram:
        return self._keep(name, Histogram(name, text, labels, buckets))

    def _keep(self, name: str, metric: M) -> M:
        if name in self._metrics:
            raise ValueError(f"there is a metric {name} already")
        self._metrics[name] = metric
        return metric

    def forget(self, label: str, value: str) -> None:
        """Drop the series whose first label has a value: their subject is gone."""
        for metric in self._metrics.values():
            if metric.labels[:1] == (label,):
                metric.forget((value,))

    def render(self) -> bytes:
        """Return all metrics as text of `CONTENT_TYPE`."""
        lines = (line for _, metric in sorted(self._metrics.items()) for line in metric.lines())
        # Texts from outside may have lone surrogates, which cannot be encoded.
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


class EngineMetrics:
    """The metrics of a scheduler: an `Observer` of its runs, and gauges of its state."""

    def __init__(self, metrics: Metrics, view: View, kind_of: Callable[[str], str]) -> None:
        self._kind_of = kind_of
        self._runs = metrics.counter("rota_engine_runs_total", "Runs of a node.", ("kind", "outcome"))
        self._took = metrics.histogram("rota_engine_run_seconds", "How long a run of a node took.", ("kind",))
        self._waited = metrics.histogram(
            "rota_engine_wake_to_run_seconds", "How long a node that could run had to wait.", ("kind",)
        )
        self._retries = metrics.counter(
            "rota_engine_retries_total", "Runs that ended in an error and are tried again.", ("kind", "reason")
        )
        metrics.gauge(
            "rota_engine_queue_depth", "Nodes that could run.", ("kind",), read=lambda: self._by_kind(view.runnable())
        )
        metrics.gauge("rota_engine_running", "Nodes that run.", ("kind",), read=lambda: self._by_kind(view.running()))
        metrics.gauge(
            "rota_engine_parked",
            "Nodes that wait for others.",
            ("kind", "reason"),
            read=lambda: Tally((kind_of(node.id), _why_parked(node)) for node in view.parked()),
        )

    def ran(self, id_: str, outcome: Outcome, waited: float, took: float) -> None:
        kind = self._kind_of(id_)
        of_kind = (kind,)
        self._runs.add((kind, _OUTCOMES[type(outcome)]))
        # A clock that went back must not stop the engine.
        self._took.observe(of_kind, took if took > 0.0 else 0.0)
        self._waited.observe(of_kind, waited if waited > 0.0 else 0.0)
        if type(outcome) is RequeueAfter and outcome.error is not None:
            self._retries.add((kind, outcome.reason or type(outcome.error).__name__))

    def _by_kind(self, nodes: Iterable[NodeView]) -> Mapping[Labels, float]:
        return Tally((self._kind_of(node.id),) for node in nodes)


_OUTCOMES: dict[type[Outcome], str] = {Done: "done", Blocked: "blocked", Failed: "failed", RequeueAfter: "requeued"}


def _why_parked(node: NodeView) -> str:
    return (isinstance(node.outcome, Blocked) and node.outcome.reason) or "Blocked"


def _forget(values: dict[Labels, Any], labels: Labels) -> None:
    labels = tuple(value[:LABEL_LENGTH_MAX] for value in labels)
    for one in [one for one in values if one[: len(labels)] == labels]:
        del values[one]


def _escaped(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quoted else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < EXACT_MAX else repr(value)
