"""The metrics of hubs and cells. Labels are Rota's own words and names of cells, which only an admin can create."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from rota.api import Cell, Quota
from rota.control.cells.contacts import CellContacts
from rota.control.cells.messages import Answer
from rota.control.gate import status_of
from rota.control.quotas.asking import QUOTA_NAME
from rota.engine.clock import Clock
from rota.engine.metrics import OTHER, Labels, Metrics
from rota.engine.objects import Objects
from rota.registry import ApiError

REFUSALS = {
    400: "Malformed",
    403: "Forbidden",
    404: "NotFound",
    409: "NameTaken",
    413: "TooLarge",
    429: "TooMany",
    503: "NotLeading",
}
"""Outcomes of refused reports, by status code."""
TAKEN, LATE, FAILED, UNREACHABLE = "Taken", "Late", "Failed", "Unreachable"
CELL = ("cell",)


class Count:
    """The measurement of one report."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: float | None = None
        self.outcome = FAILED
        self.resyncs = 0

    def begin(self) -> None:
        """Start the time: the report has left the queue."""
        self._began = self._clock.now()

    def taken(self, answer: Answer) -> None:
        self.outcome = LATE if answer.late is not None else TAKEN
        self.resyncs = len(answer.resync)

    @property
    def seconds(self) -> float | None:
        """The seconds since `begin`; None: it has not begun."""
        return None if self._began is None else max(0.0, self._clock.now() - self._began)


class HubCounting:
    """The metrics of the reports that a hub receives."""

    def __init__(self, metrics: Metrics, objects: Objects, contacts: CellContacts, clock: Clock) -> None:
        self._objects = objects
        self._contacts = contacts
        self._clock = clock
        self._reports = metrics.counter("rota_cell_reports_total", "Reports of a cell.", (*CELL, "outcome"))
        self._took = metrics.histogram("rota_cell_report_seconds", "How long the hub took for a report.", CELL)
        self._asked = metrics.counter(
            "rota_cell_resyncs_asked_total", "Deployments of which the hub has asked a cell for everything.", CELL
        )
        metrics.gauge("rota_cell_report_age_seconds", "Seconds since the last report of a cell.", CELL, read=self._ages)
        metrics.gauge("rota_quota_waiting", "Instances that wait for their quota.", ("namespace",), read=self._waiting)

    @contextmanager
    def report(self, cell: str) -> Iterator[Count]:
        """Measure one report. An empty name stands for an unknown cell."""
        count = Count(self._clock)
        try:
            yield count
        except ApiError as error:
            count.outcome = REFUSALS.get(error.code, FAILED)
            raise
        finally:
            cell = cell or OTHER
            self._reports.add((cell, count.outcome))
            if count.seconds is not None:
                self._took.observe((cell,), count.seconds)
            if count.resyncs:
                self._asked.add((cell,), count.resyncs)

    def forget(self, cell: str) -> None:
        """Drop the series of a deleted cell."""
        for series in (self._reports, self._took, self._asked):
            series.forget((cell,))

    def _waiting(self) -> Mapping[Labels, float]:
        quotas = cast("list[Quota]", self._objects.list(Quota.api))
        named = [one for one in quotas if one.metadata.name == QUOTA_NAME]
        return {(one.metadata.namespace,): float(status_of(one).waiting_instances) for one in named}

    def _ages(self) -> Mapping[Labels, float]:
        names = (one.metadata.name for one in self._objects.list(Cell.api))
        return {(name,): self._contacts.silence(name) for name in names if self._contacts.has(name)}


def count_placements(metrics: Metrics) -> Callable[[str], None]:
    """Return a function that counts a decision of the placer, by its reason."""
    decisions = metrics.counter(
        "rota_placement_decisions_total", "Decisions on which cells of a city run a placement.", ("reason",)
    )
    return lambda reason: decisions.add((reason,))


class LinkCounting:
    """The metrics of the reports that a cell sends, and of their answers."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._clock = clock
        self._answered_at: float | None = None
        self._reports = metrics.counter("rota_hub_reports_total", "Reports to the hub.", ("outcome",))
        self._took = metrics.histogram("rota_hub_report_seconds", "From when a report was sent until its answer.")
        self._asked = metrics.counter(
            "rota_hub_resyncs_total", "Deployments of which the hub has asked for everything."
        )
        metrics.gauge("rota_hub_contact_age_seconds", "Seconds since the hub last answered a report.", read=self._age)

    def answered(self, answer: Answer, took: float) -> None:
        self._reports.add((LATE if answer.late is not None else TAKEN,))
        self._took.observe((), max(0.0, took))
        self._answered_at = self._clock.now()
        self._asked.add((), len(answer.resync))

    def failed(self, error: Exception) -> None:
        outcome = REFUSALS.get(error.code, FAILED) if isinstance(error, ApiError) else UNREACHABLE
        self._reports.add((outcome,))

    def _age(self) -> Mapping[Labels, float]:
        return {} if self._answered_at is None else {(): self._clock.now() - self._answered_at}


class TunnelCounting:
    """The metrics of users' requests that a hub passes on to its cells."""

    def __init__(self, open_sessions: Callable[[], Mapping[str, int]]) -> None:
        """`open_sessions` returns the number of requests under way, by cell."""
        self._metrics = Metrics()
        self._sessions = self._metrics.counter("rota_tunnel_sessions_total", "Requests passed on to a cell.", CELL)
        self._bytes = self._metrics.counter(
            "rota_tunnel_bytes_total", "Bytes passed on, to a cell and from it.", (*CELL, "direction")
        )
        self._metrics.gauge(
            "rota_tunnel_sessions",
            "Requests to a cell that are under way.",
            CELL,
            read=lambda: {(cell,): float(number) for cell, number in open_sessions().items()},
        )
        self._counted: set[str] = set()

    def opened(self, cell: str) -> None:
        self._counted.add(cell)
        self._sessions.add((cell,))

    def sent(self, cell: str, size: int) -> None:
        self._bytes.add((cell, "to"), size)

    def received(self, cell: str, size: int) -> None:
        self._bytes.add((cell, "from"), size)

    def render(self, objects: Objects) -> bytes:
        """Return the metrics as text, after dropping the series of deleted cells."""
        for cell in [one for one in self._counted if not objects.has(Cell.api, "", one)]:
            self._counted.discard(cell)
            self._metrics.forget(CELL[0], cell)
        return self._metrics.render()
