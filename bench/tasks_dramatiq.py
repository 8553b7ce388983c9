"""Dramatiq in its default configuration, with Redis as the broker and for the results of actors that ask for it."""

from __future__ import annotations

import importlib
import os

from bench.tasks_reports import PLACE, report_start

# Imported by name, so that type checks do not depend on whether it is installed.
dramatiq = importlib.import_module("dramatiq")
brokers = importlib.import_module("dramatiq.brokers.redis")
results = importlib.import_module("dramatiq.results")
backends = importlib.import_module("dramatiq.results.backends")

ANSWER_MILLISECONDS_MAX = 30_000

broker = brokers.RedisBroker(url=f"{os.environ[PLACE]}/2")
broker.add_middleware(results.Results(backend=backends.RedisBackend(url=f"{os.environ[PLACE]}/3")))
dramatiq.set_broker(broker)
noop = dramatiq.actor(report_start, actor_name="noop")


def four() -> float:
    return 4.0


answered = dramatiq.actor(four, actor_name="answered", store_results=True)


def submit(number: int) -> None:
    noop.send(number)


def answer() -> object:
    return answered.send().get_result(block=True, timeout=ANSWER_MILLISECONDS_MAX)
