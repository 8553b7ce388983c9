"""Dramatiq as it comes: a broker in Redis; results, which are kept by those actors only that ask for it, there too."""

from __future__ import annotations

import importlib
import os

from bench.tasks_told import PLACE, tell

# By name, so that types are checked alike whether it is installed or not.
dramatiq = importlib.import_module("dramatiq")
brokers = importlib.import_module("dramatiq.brokers.redis")
results = importlib.import_module("dramatiq.results")
backends = importlib.import_module("dramatiq.results.backends")

ANSWER_MILLISECONDS_MAX = 30_000

broker = brokers.RedisBroker(url=f"{os.environ[PLACE]}/2")
broker.add_middleware(results.Results(backend=backends.RedisBackend(url=f"{os.environ[PLACE]}/3")))
dramatiq.set_broker(broker)
told = dramatiq.actor(tell, actor_name="told")


def four() -> float:
    return 4.0


answered = dramatiq.actor(four, actor_name="answered", store_results=True)


def submit(number: int) -> None:
    told.send(number)


def answer() -> object:
    return answered.send().get_result(block=True, timeout=ANSWER_MILLISECONDS_MAX)
