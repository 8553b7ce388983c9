"""Huey as it comes, on SQLite: every write is on disk, and workers ask for work again and again."""

from __future__ import annotations

import importlib
import os

from bench.tasks_told import PLACE, tell

# By name, so that types are checked alike whether it is installed or not.
huey = importlib.import_module("huey")

ANSWER_SECONDS_MAX = 30.0

app = huey.SqliteHuey("bench", filename=f"{os.environ[PLACE]}/huey.db")
told = app.task(name="told")(tell)


def four() -> float:
    return 4.0


answered = app.task(name="answered")(four)


def submit(number: int) -> None:
    told(number)


def answer() -> object:
    return answered().get(blocking=True, timeout=ANSWER_SECONDS_MAX)
