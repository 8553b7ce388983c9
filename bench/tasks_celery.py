"""Celery as it comes: a broker and a store of results in Redis."""

from __future__ import annotations

import importlib
import os

from bench.tasks_told import PLACE, tell

# By name, so that types are checked alike whether it is installed or not.
celery = importlib.import_module("celery")

ANSWER_SECONDS_MAX = 30.0

app = celery.Celery("bench", broker=f"{os.environ[PLACE]}/0", backend=f"{os.environ[PLACE]}/1")
told = app.task(tell, name="told", ignore_result=True)


def four() -> float:
    return 4.0


answered = app.task(four, name="answered")


def submit(number: int) -> None:
    told.delay(number)


def answer() -> object:
    return answered.delay().get(timeout=ANSWER_SECONDS_MAX)
