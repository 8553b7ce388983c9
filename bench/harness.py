"""The parts that all benchmarks share: arguments, the best of several runs, tables, the JSON file."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RUNS = 3
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to a file")
    return parser


async def best_of(works: Sequence[Callable[[], Awaitable[float]]], runs: int = RUNS) -> list[float]:
    """Return the highest figure of each work over several runs.

    Runs of the works are interleaved, so that a noisy moment of the machine affects all of them.
    """
    best = [0.0] * len(works)
    for _ in range(runs):
        for at, work in enumerate(works):
            gc.collect()
            best[at] = max(best[at], await work())
    return best


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


@dataclass
class Report:
    """Rows of figures under named columns, printed as they come and kept for the JSON file."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[float | None]]] = field(default_factory=list)

    def add(self, label: str, *figures: float | None) -> None:
        assert len(figures) == len(self.columns), label
        self.rows.append((label, list(figures)))

    def show(self) -> None:
        width = max([len(self.title), *(len(label) for label, _ in self.rows)])
        print(f"\n{self.title:<{width}}  " + "".join(f"{column:>18}" for column in self.columns))
        for label, figures in self.rows:
            print(f"{label:<{width}}  " + "".join(f"{shown(figure):>18}" for figure in figures), flush=True)


def shown(figure: float | None) -> str:
    if figure is None:
        return "–"
    if figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"


def save(path: Path | None, reports: list[Report]) -> None:
    if path is None:
        return
    content = {
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "tables": [
            {
                "title": report.title,
                "rows": [
                    {"label": label, **dict(zip(report.columns, figures, strict=True))}
                    for label, figures in report.rows
                ],
            }
            for report in reports
        ],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
