"""procrastinate in its default configuration on PostgreSQL: writes are on disk, workers are notified. No results."""

from __future__ import annotations

import importlib
import os

from bench.tasks_reports import PLACE, report_start

# Imported by name, so that type checks do not depend on whether it is installed.
procrastinate = importlib.import_module("procrastinate")

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ[PLACE]))


async def now(number: int) -> None:
    report_start(number)


noop = app.task(now, name="noop")


def submit(number: int) -> None:
    noop.defer(number=number)
