"""The peer of `bench.schedules`: APScheduler 3 with its jobs in memory, as a process of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from typing import Any

from bench.instances_peers import cpu_seconds, memory_mib

AHEAD_SECONDS = 5.0
PROGRAM = """
import datetime, json, random, sys, threading, time
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

count, due, ahead = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
late, done = [], threading.Event()

def tick(at):
    late.append((time.time() - at) * 1000)
    if len(late) == due:
        done.set()

def never():
    pass

scheduler = BackgroundScheduler(timezone="UTC", executors={"default": ThreadPoolExecutor(10)},
                                job_defaults={"misfire_grace_time": 3600})
chance = random.Random(11)
month = (time.gmtime().tm_mon + 5) % 12 + 1
began = time.perf_counter()
for number in range(count - due):
    trigger = CronTrigger(minute=chance.randrange(60), hour=chance.randrange(24), day=chance.randrange(1, 29),
                          month=month, timezone="UTC")
    scheduler.add_job(never, trigger, id=f"quiet-{number}")
scheduler.start()
print(json.dumps(time.perf_counter() - began), flush=True)
sys.stdin.readline()
at = int(time.time() + ahead)
for number in range(due):
    scheduler.add_job(tick, "date", run_date=datetime.datetime.fromtimestamp(at, datetime.timezone.utc), args=[at])
done.wait(600)
print(json.dumps(late), flush=True)
sys.stdin.readline()
"""

Peer = tuple[float, float | None, float, float, list[float]]
"""Seconds to add all jobs, seconds to start again, MiB, idle CPU in percent, and the lateness of each due job in ms."""


def apscheduler(count: int, due: int, idle_seconds: float) -> Peer | None:
    """Return APScheduler's figures, or None if it is not installed."""
    if importlib.util.find_spec("apscheduler") is None:
        return None
    argv = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(count), str(due), str(AHEAD_SECONDS)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        added = _read_line(process)
        before = cpu_seconds(process.pid)
        time.sleep(idle_seconds)
        percent = (cpu_seconds(process.pid) - before) / idle_seconds * 100
        memory = memory_mib(process.pid)
        _end_step(process)
        lateness: list[float] = _read_line(process)
        _end_step(process)
    # It stores nothing: after a start all jobs are added again.
    return added, added, memory, percent, sorted(lateness)


def _read_line(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def _end_step(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
