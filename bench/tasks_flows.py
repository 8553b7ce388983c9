"""Two flows from Windmill's comparison of workflow engines, run by Rota.

A flow has 40 light tasks (`fibo(10)`) or 10 heavier ones (`fibo(33)`), each after the one before. The figures of the
others are Windmill's (Python, one worker, an AWS m4.large). The hardware differs, so only the light flow compares: it
is all orchestration.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

from bench.harness import Report
from bench.tasks_rota import NAMESPACE, PATIENCE_SECONDS, Pool, Rota, declared

FIBO = """\
def fibo(n: str) -> int:
    return _fibo(int(n))


def _fibo(n: int) -> int:
    if n <= 1:
        return n
    else:
        return _fibo(n - 1) + _fibo(n - 2)
"""
LIGHT, HEAVY = (40, 10), (10, 33)
"""The number of tasks, and the argument of each."""
ROUNDS, ROUNDS_QUICK = 5, 2
PUBLISHED = {
    "Airflow 2.7.3": (116.221, 54.668),
    "Kestra 0.22.3": (6.044, 15.786),
    "Prefect 2.14.4": (4.872, 15.489),
    "Windmill 1.483.1": (4.383, 8.347),
    "Temporal 2.34.0": (2.967, 7.247),
    "Windmill 1.483.1, dedicated worker": (2.092, 7.701),
    "Hatchet 0.62.0": (1.222, 7.793),
}
POOL = Pool("flows", "python", ("fibo:fibo", "1"))


async def flows(here: Rota, folder: Path, quick: bool) -> Report:
    repository = folder / "fibo"
    await asyncio.to_thread(_commit, repository)
    await here.client.apply(declared("Workspace", "fibo", {"repo": f"file://{repository}"}), force=True)
    await here.pool(POOL, 1, workspace="fibo")
    report = Report("flows, one task after the other, s", ["40 × fibo(10)", "10 × fibo(33)"])
    found = []
    for count, number in (LIGHT, HEAVY):
        await _flow(here, 2, number)
        took = [await _flow(here, count, number) for _ in range(ROUNDS_QUICK if quick else ROUNDS)]
        found.append(min(took))
    report.add("Rota, python, one worker, best", *found)
    for who, figures in PUBLISHED.items():
        report.add(f"{who} (published, other hardware)", *figures)
    report.show()
    return report


async def _flow(here: Rota, count: int, number: int) -> float:
    """Submit a flow in one request. Returns the seconds until its last task is over."""
    began, first = time.perf_counter(), here.submitted
    here.submitted += count
    tasks = []
    for at in range(count):
        spec = {"command": ["fibo:fibo", str(number)], "workerPoolRef": {"name": POOL.name}}
        after = {"dependsOn": [f"flow-{first + at - 1}"]} if at else {}
        tasks.append(declared("Task", f"flow-{first + at}", {**spec, **after}))
    jobs = await here.client.submit(tasks, namespace=NAMESPACE)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await jobs[-1]
    return time.perf_counter() - began


def _commit(repository: Path) -> None:
    """Make a repository with the function."""
    repository.mkdir()
    (repository / "fibo.py").write_text(FIBO)
    git = ["git", "-C", str(repository), "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "fibo"]):
        subprocess.run([*git, *arguments], check=True)
