"""Whatever is killed, nothing that is claimed is leaked, and nobody sees what another one left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.runtime import sandbox
from tests.claims.chaos import Rush
from tests.server.live import ROTA

KILLS = int(os.environ.get("ROTA_CLAIM_KILLS", "6"))
"""More of them: `make chaos`."""
SEED = int(os.environ.get("ROTA_CLAIM_SEED", "1"))
CLIENTS = int(os.environ.get("ROTA_CLAIM_CLIENTS", "8"))
Step = Callable[[Rush], None]
STEPS: dict[str, tuple[int, Step]] = {
    "instance": (4, lambda rush: rush.kill("instance")),
    "runner": (3, lambda rush: rush.kill("runner")),
    "agent": (3, lambda rush: rush.kill("agent")),
    "box": (2, lambda rush: rush.kill("box")),
    "server": (2, lambda rush: rush.kill("server")),
    "keeper": (1, lambda rush: rush.kill("keeper")),
    "delete": (2, Rush.delete_instance),
    "rest": (12, Rush.rest),
}
"""Events, each with its weight."""

pytestmark = pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")


@pytest.fixture
def rush(tmp_path: Path) -> Iterator[Rush]:
    made = Rush(tmp_path, SEED, CLIENTS)
    try:
        yield made
    finally:
        made.end()
        made.live.kill()
        argv = (ROTA, "stop", "--grace", "0", "--home", str(made.home))
        subprocess.run(argv, capture_output=True, timeout=60, check=True)


@pytest.mark.timeout(420 + 8 * KILLS)
def test_whatever_is_killed_nothing_is_leaked_and_nobody_sees_what_anothers_was(rush: Rush) -> None:
    rush.apply()
    rush.until(rush.is_settled)
    rush.begin()
    while sum(rush.kills.values()) < KILLS:
        [step] = rush.chance.choices(list(STEPS), [often for often, _ in STEPS.values()])
        STEPS[step][1](rush)
    rush.settle()
    print(f"seed {SEED}: killed {dict(rush.kills)}; rounds {dict(rush.outcomes)}; in {rush.seconds:.0f} s")
    assert rush.seen == [], "\n".join(rush.seen)
    assert rush.outcomes["done"] > 0
    assert rush.phases()["Bound"] == 0
    rush.until(lambda: rush.leftovers() == [])
