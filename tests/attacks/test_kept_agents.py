"""By what a task leaves of the agent of a kept box, of which each command inherits."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.runtime import sandbox
from tests.attacks.test_kept_trees import POOLS, done
from tests.claims.test_gateway import pool, until
from tests.runner.boxes import Bench, in_a_sandbox
from tests.server.conftest import Server, served
from tests.until import until_async


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as server:
        yield server


# What it says is what it is held to.
SEES = """
import ctypes, os, resource
libc = ctypes.CDLL(None)
limits = [resource.getrlimit(getattr(resource, name)) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")]
ioprio_get = {"x86_64": 252, "aarch64": 31}[os.uname().machine]
print(limits, os.getpriority(0, 0), os.sched_getscheduler(0), os.sched_getaffinity(0), libc.syscall(ioprio_get, 1, 0))
"""
# Whatever runs in a box has the uid of its agent, which is its parent.
WAYS = (
    "resource.prlimit(agent, resource.RLIMIT_NOFILE, (20, 20))",
    "resource.prlimit(agent, resource.RLIMIT_FSIZE, (0, 0))",
    "resource.prlimit(agent, resource.RLIMIT_STACK, (1 << 16, 1 << 16))",
    "os.setpriority(os.PRIO_PROCESS, agent, 19)",
    "os.sched_setscheduler(agent, os.SCHED_IDLE, os.sched_param(0))",
    "os.sched_setaffinity(agent, {max(os.sched_getaffinity(0))})",
    "libc.syscall({'x86_64': 251, 'aarch64': 30}[os.uname().machine], 1, agent, 3 << 13)",
)
CHANGES = "import ctypes, os, resource; libc, agent = ctypes.CDLL(None), os.getppid(); {way}"


@pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")
async def test_to_slow_down_or_break_the_tasks_that_follow_by_what_they_inherit(live: Server) -> None:
    wanted = pool("boxes", 1, worker={"type": "shell", "isolation": "sandbox"})
    del wanted["spec"]["template"]
    assert (await live.ask("POST", POOLS, wanted)).status == 201
    await until(live, 1)
    sees = f"cat > ~/sees.py <<'end'\n{SEES}\nend\npython3 -I ~/sees.py > ~/first"
    assert await done(live, "first", sees) == "Succeeded"
    for number, way in enumerate(WAYS):
        changes = f'exec python3 -I -c "{CHANGES.format(way=way)}"'
        assert await done(live, f"changes-{number}", changes) == "Succeeded", way
        assert await done(live, f"follows-{number}", "python3 -I ~/sees.py | diff ~/first -") == "Succeeded", way


@in_a_sandbox
async def test_to_stop_the_agent_for_the_next_task_by_a_signal_that_is_still_under_way(bench: Bench) -> None:
    """It is seen as soon as it was sent, wherever the agent is at that moment."""
    outside = bench.box._processes
    assert outside is not None and outside._agent is not None
    agent = outside._agent.pid
    missed = 0
    for _ in range(300):
        os.kill(agent, signal.SIGSTOP)
        missed += bench.box.is_clear()
        os.kill(agent, signal.SIGCONT)
        await until_async(bench.box.is_clear, "the agent has not gone on", poll_seconds=0)
    assert not missed
