"""Huey in its default configuration on SQLite: every write is on disk, and workers poll."""

from __future__ import annotations

import importlib
import os

from bench.tasks_reports import PLACE, report_start

# Imported by name, so that type checks do not depend on whether it is installed.
huey = importlib.import_module("huey")

ANSWER_SECONDS_MAX = 30.0

app = huey.SqliteHuey("bench", filename=f"{os.environ[PLACE]}/huey.db")
noop = app.task(name="noop")(report_start)


def four() -> float:
    return 4.0


answered = app.task(name="answered")(four)


def submit(number: int) -> None:
    noop(number)


def answer() -> object:
    return answered().get(blocking=True, timeout=ANSWER_SECONDS_MAX)
