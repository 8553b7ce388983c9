"""Benchmark of projects under test: `python -m bench.testing [--quick] [--json FILE]`.

A month of virtual time passes in `rota.testing`, with the controllers of a server. The figure is the CPU time of this
process meanwhile, which other work on the machine changes less than wall time. The best of three runs counts.
"""

from __future__ import annotations

import gc
import time
from typing import NamedTuple

from bench.harness import RUNS, Report, arguments, save
from rota.testing import Project

MONTH_DAYS, MONTH_DAYS_QUICK = 30, 2
START = "2026-03-01T00:00:00Z"
FUNCTION = """
name: shop
functions:
  - name: report
    entrypoint: main:handler
    source: {{inline: "def handler(event, context):\\n    return event['schedule']['scheduledTime']\\n"}}
    schedules:
      - {{name: tick, cron: "{cron}"}}
"""
COMMAND = """
name: shop
pools:
  - {{name: workers, worker: {{type: shell}}}}
schedules:
  - {{name: tick, cron: "{cron}", taskTemplate: {{command: [sh, tidy.sh], workerPoolRef: {{name: workers}}}}}}
"""


class Subject(NamedTuple):
    """A project whose schedule ticks."""

    text: str
    schedule: str
    cron: str
    a_day: int
    """Ticks of the schedule."""


SUBJECTS = {
    "a function every five minutes": Subject(FUNCTION, "report.tick", "*/5 * * * *", 288),
    "a function every hour": Subject(FUNCTION, "report.tick", "0 * * * *", 24),
    "a command every five minutes": Subject(COMMAND, "tick", "*/5 * * * *", 288),
}


class Figures(NamedTuple):
    """The figures of one project."""

    runs: int
    cpu_seconds: float
    wall_seconds: float


def run(subject: Subject, days: int) -> Figures:
    """Let this number of days pass in a project."""
    with Project(subject.text.format(cron=subject.cron), at=START) as project:
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        project.advance(days=days)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        found = project.runs(subject.schedule)
    assert len(found) == days * subject.a_day and all(one.succeeded for one in found), "a run is missing, or failed"
    return Figures(len(found), cpu, wall)


def table(days: int) -> Report:
    report = Report(f"{days} days in rota.testing", ["runs", "CPU s", "wall s", "CPU ms/run", "a month, CPU s"])
    for label, subject in SUBJECTS.items():
        best = min((run(subject, days) for _ in range(RUNS)), key=lambda one: one.cpu_seconds)
        month = best.cpu_seconds / days * MONTH_DAYS
        report.add(label, best.runs, best.cpu_seconds, best.wall_seconds, best.cpu_seconds / best.runs * 1000, month)
    return report


def main() -> None:
    given = arguments("A month of virtual time in rota.testing.").parse_args()
    report = table(MONTH_DAYS_QUICK if given.quick else MONTH_DAYS)
    report.show()
    save(given.json, [report])


if __name__ == "__main__":
    main()
