"""The peers of `bench.instances`: supervisord, and `subprocess` alone, which watches nothing.

Each runs as a process of its own. The memory is that of the supervising process, without the sleeping ones.
supervisord's time includes its own start; like Rota it stores the output of each process in a file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

COMMAND = ("sleep", "1000000")
PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.005
SCHEDULED_TIME = 2
"""The kernel's number for the processor time of a process, within the clock id of that process."""
DESCRIPTORS_A_CHILD = 4

SUPERVISED = """
[supervisord]
nodaemon = true
logfile = {folder}/supervisord.log
pidfile = {folder}/supervisord.pid
childlogdir = {folder}
loglevel = warn
minfds = {descriptors}

[program:many]
command = {command}
numprocs = {count}
process_name = %(program_name)s_%(process_num)d
startsecs = 0
redirect_stderr = true
"""
PLAIN = """
import subprocess, sys
null = subprocess.DEVNULL
children = [subprocess.Popen(sys.argv[2:], stdin=null, stdout=null) for _ in range(int(sys.argv[1]))]
sys.stdin.read()
for child in children:
    child.kill()
for child in children:
    child.wait()
"""


class Cost(NamedTuple):
    """The cost of the processes that supervise."""

    start_seconds: float
    memory_mib: float
    cpu_percent: float


def cost(pids: Sequence[int], start_seconds: float, steady_seconds: float) -> Cost:
    before = sum(map(cpu_seconds, pids))
    time.sleep(steady_seconds)
    used = sum(map(cpu_seconds, pids)) - before
    return Cost(start_seconds, sum(map(memory_mib, pids)), used / steady_seconds * 100)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process. /proc would give hundredths of a second, too coarse for an idle one."""
    return time.clock_gettime((~pid << 3) | SCHEDULED_TIME)


def memory_mib(pid: int) -> float:
    """Return the PSS of a process: its own memory, and its part of shared memory."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def all_sleep(pid: int, count: int) -> bool:
    """Report whether a process has this number of children, and all of them execute the command."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return len(children) >= count and sum(map(_sleeps, children)) == count


def _sleeps(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == COMMAND[0]
    except OSError:
        return False


def supervisord(count: int, folder: Path, steady_seconds: float) -> Cost | None:
    """Return the cost of supervisord, or None if it is not installed."""
    if importlib.util.find_spec("supervisor") is None:
        return None
    file = folder / "supervisord.conf"
    descriptors = DESCRIPTORS_A_CHILD * count + 1024
    file.write_text(SUPERVISED.format(folder=folder, count=count, command=" ".join(COMMAND), descriptors=descriptors))
    argv = [sys.executable, "-m", "supervisor.supervisord", "-c", str(file)]
    with _running(argv, count) as (process, took):
        found = cost([process.pid], took, steady_seconds)
        process.terminate()
    return found


def plain(count: int, steady_seconds: float) -> Cost:
    with _running([sys.executable, "-c", PLAIN, str(count), *COMMAND], count) as (process, took):
        return cost([process.pid], took, steady_seconds)


@contextlib.contextmanager
def _running(argv: Sequence[str], count: int) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """Start a program that runs all children, and end it by closing its input. Yields it with the seconds taken."""
    began = time.perf_counter()
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or all_sleep(process.pid, count))
        assert process.poll() is None, f"{argv} has ended"
        yield process, time.perf_counter() - began
    finally:
        process.communicate(timeout=PATIENCE_SECONDS)


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(POLL_SECONDS)
