"""A pool under fire: its processes, its keeper and its server are killed while it is scaled and rolled."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from pathlib import Path

import pytest

from tests.control.running.test_processes import all_of, apply, is_main, keeper_of, pool, processes, server, told, until
from tests.server.live import Live

__all__ = ["server"]

KILLS = int(os.environ.get("ROTA_POOL_KILLS", "24"))
"""More of them: `make chaos`."""
SEED = int(os.environ.get("ROTA_POOL_SEED", "1"))


@pytest.mark.timeout(120 + 5 * KILLS)
def test_whatever_is_killed_in_the_end_exactly_what_is_wanted_runs(server: Live) -> None:
    chance = random.Random(SEED)
    home = server.home
    replicas, marks = 3, "one"
    apply(server, pool(home, replicas, marks))
    for turn in range(KILLS):
        what = chance.choice(("instance", "instance", "instance", "server", "keeper", "scale", "roll"))
        if what == "instance":
            _kill_one(home, chance)
        elif what == "keeper":
            for pid in keeper_of(home):
                _kill(pid)
        elif what == "server":
            server.kill()
            server.start()
        else:
            replicas = chance.randint(1, 4) if what == "scale" else replicas
            marks = f"turn-{turn}" if what == "roll" else marks
            apply(server, pool(home, replicas, marks))
    # A last roll: what was crashing through no fault of its own does not wait for its turn.
    apply(server, pool(home, replicas, "last"))
    until(lambda: all_of(server, replicas, "last"), told(server), seconds=60)
    until(lambda: len(_outermost(home)) == replicas, lambda: str(processes(home)))
    names = {one["metadata"]["name"] for one in server.json("get", "inst")["items"]}
    assert names == {f"box-{ordinal}" for ordinal in range(replicas)}
    folders = {one.name.rpartition("-")[0][:5] for one in (home / "instances" / "default").iterdir()}
    assert folders == names and len(list((home / "instances" / "default").iterdir())) == replicas


def _outermost(home: Path) -> list[int]:
    """The main processes of everything that is alive, of whatever template."""
    return [pid for pid, command in processes(home).items() if is_main(command)]


def _kill_one(home: Path, chance: random.Random) -> None:
    found = sorted(processes(home))
    if found:
        _kill(chance.choice(found))


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
