"""procrastinate as it comes, on PostgreSQL: every write is on disk, and workers are told of work. It has no results."""

from __future__ import annotations

import importlib
import os

from bench.tasks_told import PLACE, tell

# By name, so that types are checked alike whether it is installed or not.
procrastinate = importlib.import_module("procrastinate")

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ[PLACE]))


async def now(number: int) -> None:
    tell(number)


told = app.task(now, name="told")


def submit(number: int) -> None:
    told.defer(number=number)
