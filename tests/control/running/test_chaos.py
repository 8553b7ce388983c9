"""Pools under fire: everything of them is killed, again and again, while they are scaled, rolled and held."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.runtime import sandbox
from rota.server.stopping import STOP_SECONDS_MAX
from tests.control.running.chaos import World
from tests.server.live import ROTA

KILLS = int(os.environ.get("ROTA_POOL_KILLS", "5"))
"""More of them: `make chaos`."""
SEED = int(os.environ.get("ROTA_POOL_SEED", "1"))
SLACK_SECONDS = 5.0
"""The start of a command, on a machine that does other things too."""
Step = Callable[[World], None]
STEPS: dict[str, tuple[int, Step]] = {
    "instance": (4, lambda world: world.kill("instance")),
    "runner": (3, lambda world: world.kill("runner")),
    "box": (2, lambda world: world.kill("box")),
    "agent": (2, lambda world: world.kill("agent")),
    "server": (3, lambda world: world.kill("server")),
    "keeper": (1, lambda world: world.kill("keeper")),
    "scale": (2, World.scale),
    "roll": (2, World.roll),
    "come or go": (2, World.come_or_go),
    "hold": (3, World.hold),
    "release": (1, World.release),
    "restart": (1, World.restart),
    "rest": (4, World.rest),
}
"""Events, each with its weight."""

pytestmark = pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, SEED)
    try:
        yield made
    finally:
        made.live.kill()
        argv = (ROTA, "stop", "--grace", "0", "--home", str(made.home))
        subprocess.run(argv, capture_output=True, timeout=60, check=True)


@pytest.mark.timeout(180 + 5 * KILLS)
def test_whatever_is_killed_in_the_end_exactly_what_is_wanted_runs_and_nothing_else_is_left(world: World) -> None:
    world.apply()
    world.until(world.is_settled)
    while sum(world.kills.values()) < KILLS:
        [step] = world.chance.choices(list(STEPS), [often for often, _ in STEPS.values()])
        STEPS[step][1](world)
        world.look()
    world.settle()
    _each_runs_once(world)
    _nothing_else_is_there(world)
    _storage_is_intact(world)
    _a_stop_leaves_nothing(world)
    print(f"seed {SEED}: killed {dict(world.kills)}, held and left dirty {world.dirtied}, in {world.seconds:.0f} s")


def _each_runs_once(world: World) -> None:
    """Assert that each instance has its main process, or its runner with one box and one agent; and no others run."""
    world.until(lambda: _sorts(world) == _wanted_sorts(world))
    groups = world.groups()
    if groups:
        names = {Path(group).name for group in groups}
        assert len(names) == len(groups) == len(world.wanted())
        strangers = [one for one in world.processes() if Path(one.group.rpartition("0::")[2].strip()).name not in names]
        assert strangers == []
    assert len(world.keepers()) == 1


def _sorts(world: World) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in world.processes():
        found["main"] += one.is_main
        found["runner"] += one.is_runner
        found["agent"] += one.is_agent
        found["of another template"] += one.is_main and ": last;" not in one.command
    return +found


def _wanted_sorts(world: World) -> Counter[str]:
    crew = world.replicas["crew"]
    return Counter({"main": world.replicas["box"], "runner": crew, "agent": crew})


def _nothing_else_is_there(world: World) -> None:
    uids = world.instances()
    assert uids.keys() == world.wanted()
    world.until(lambda: world.names("instances", "default") == {f"{name}-{uid}" for name, uid in uids.items()})
    world.until(lambda: world.names("discarded") == set())
    ordinals = {f"{pool}-{ordinal}" for pool, count in world.ordinals.items() for ordinal in range(count)}
    stored = world.names("storage", "default")
    assert stored - {f"{name}{end}" for name in ordinals for end in ("", ".owner", ".prepared")} == set()
    assert {name for name in stored if "." not in name} >= world.wanted()
    assert world.mounts() == []
    assert world.sockets() == {"rota.sock", "keeper.sock"}


def _storage_is_intact(world: World) -> None:
    world.look()
    folder = world.home / "storage" / "default"
    assert {f"box-{ordinal}" for ordinal in range(world.replicas["box"])} <= world.marks.keys()
    assert list(folder.glob("box-*/twice")) == []
    for ordinal in range(world.replicas["crew"]):
        tree = folder / f"crew-{ordinal}" / "repo"
        assert (tree / "file").read_text() == "content\n" and (tree / "set").read_text() == "set\n"
        assert not (tree / ".git" / "dirty").exists(), tree


def _a_stop_leaves_nothing(world: World) -> None:
    assert world.stop() < STOP_SECONDS_MAX + SLACK_SECONDS
    assert [one.command for one in world.processes()] == [] and world.keepers() == []
    assert world.groups() == [] and world.mounts() == []
    assert world.sockets() == set()
