"""Figures that others have published for handing out sandboxes, on other hardware: only orders of magnitude compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bench.harness import Report, shown

MARK = "published, other hardware"

SERIES = "one client in series"
SERIES_AND_COMMAND = "the same, until a command has run"
IN_A_LOOP = "64 clients, 64 instances"
AT_45, AT_300, AT_1000 = (f"Poisson, {rate}/s, 100 instances" for rate in ("45", "300", "1,000"))
BURST_300, BURST_3000 = (f"burst of {count}, 100 instances" for count in ("300", "3,000"))


class Published(NamedTuple):
    row: str
    """The label of the nearest row of Rota's table."""
    who: str
    what: str
    per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


PUBLISHED = [
    Published(SERIES_AND_COMMAND, "E2B", "440 ms to interactive", p50_ms=440),
    Published(SERIES_AND_COMMAND, "Daytona", "110 ms to interactive", p50_ms=110),
    Published(IN_A_LOOP, "scitix", "65 claims/s, documented peak", per_second=65),
    Published(AT_45, "kubernetes-sigs", "p50 92, p99 376 ms", per_second=45, p50_ms=92, p99_ms=376),
    Published(BURST_300, "kubernetes-sigs", "p50 1,465 ms", p50_ms=1465),
]


@dataclass
class Beside(Report):
    """A table that prints the published figures next to Rota's."""

    def show(self) -> None:
        width = max([len(self.title), *(len(label) for label, _ in self.rows)])
        print(f"\n{self.title:<{width}}  " + "".join(f"{column:>12}" for column in self.columns) + f"   {MARK}")
        for label, figures in self.rows:
            others = "; ".join(f"{one.who}: {one.what}" for one in PUBLISHED if one.row == label)
            ours = f"{label:<{width}}  " + "".join(f"{shown(figure):>12}" for figure in figures)
            print(f"{ours}   {others}".rstrip(), flush=True)


def published() -> Report:
    """Return the published figures as a table of their own, for the JSON file."""
    report = Report(MARK, ["claims/s", "p50 ms", "p99 ms"])
    for one in PUBLISHED:
        report.add(f"{one.who}, beside: {one.row}", one.per_second, one.p50_ms, one.p99_ms)
    return report
