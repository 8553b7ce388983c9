"""Celery in its default configuration, with Redis as the broker and for results."""

from __future__ import annotations

import importlib
import os

from bench.tasks_reports import PLACE, report_start

# Imported by name, so that type checks do not depend on whether it is installed.
celery = importlib.import_module("celery")

ANSWER_SECONDS_MAX = 30.0

app = celery.Celery("bench", broker=f"{os.environ[PLACE]}/0", backend=f"{os.environ[PLACE]}/1")
noop = app.task(report_start, name="noop", ignore_result=True)


def four() -> float:
    return 4.0


answered = app.task(four, name="answered")


def submit(number: int) -> None:
    noop.delay(number)


def answer() -> object:
    return answered.delay().get(timeout=ANSWER_SECONDS_MAX)
