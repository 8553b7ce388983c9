"""Kill a writing store again and again, and check after each time that it kept every promise.

`python -m bench.crash [--kills N] [--quick] [--json FILE]`

A child process (`bench.crash_child`) runs 64 writers and a watcher on one file, and prints each acknowledged write and
each watched event. It ends by SIGKILL at a random instant, or by an I/O error at a random commit, before or after the
real commit. Then this process opens the file and checks:

* Every acknowledged write is in the log, with its revision, key and content.
* So is every event that the child's watcher got, which were all events since its start, once and in order.
* A watcher here that resumes from its persisted revision gets every later revision exactly once.
* Revisions never go back, and the objects are the sum of all events.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Timer
from zlib import crc32

from bench.harness import Report, arguments, save
from rota.store import SqliteStore

KILLS = 2000
KILLS_QUICK = 50
LIFE_SECONDS_MAX = 0.15
# One in this number of rounds ends by an I/O error instead of a kill.
ERROR_SHARE = 5
COMMITS_BEFORE_ERROR_MAX = 60

Written = tuple[int, str, bool, int]


SLOW_FACTOR_MAX = 6
"""The most kills, as a multiple of the wanted ones, until enough is written for a compaction."""


@dataclass
class Ledger:
    """The expected content of the file, by all lines that the child has printed."""

    persisted: int = 0  # the revision that this process's watcher resumes from
    state: dict[str, tuple[int, int]] = field(default_factory=dict)  # by key: revision and checksum
    kills: int = 0
    errors: int = 0
    acknowledged: int = 0
    compacted: int = 0

    async def check(self, path: Path, lines: list[str]) -> None:
        """Open the file after the child has ended, and compare it with the child's lines."""
        acknowledged = [acknowledgement(line) for line in lines if line.startswith("ack ")]
        watched = [int(line.split()[1]) for line in lines if line.startswith("saw ")]
        assert watched == list(range(self.persisted + 1, self.persisted + 1 + len(watched))), (
            "the child's watcher missed something"
        )
        store = SqliteStore(path, ring_events_max=256)
        try:
            assert store.revision >= max([self.persisted, *watched, *(write[0] for write in acknowledged)]), (
                "revisions went back"
            )
            events = await self._resume(store)
            for write in acknowledged:
                assert events[write[0]] == write, f"acknowledged and not there: {write}"
            now = {entry.key: (entry.rev, crc32(entry.value)) for entry in store.list("things/").entries}
            assert now == self.state, "the objects are not what the events make of them"
            self.acknowledged += len(acknowledged)
            self.compacted = store.compacted
        finally:
            await store.close()

    async def _resume(self, store: SqliteStore) -> dict[int, Written]:
        """Return the events since the last check, by revision."""
        events: dict[int, Written] = {}
        watch = store.watch("things/", self.persisted)
        while self.persisted < store.revision:
            for event in await watch.next():
                assert event.rev == self.persisted + 1, f"revision {event.rev} came after {self.persisted}"
                assert event.prev_rev == self.state.get(event.key, (0, 0))[0], f"wrong state before {event.rev}"
                self.persisted = event.rev
                events[event.rev] = (event.rev, event.key, event.deleted, crc32(event.value))
                if event.deleted:
                    del self.state[event.key]
                else:
                    self.state[event.key] = (event.rev, crc32(event.value))
        return events


def acknowledgement(line: str) -> Written:
    _, rev, key, deleted, checksum = line.split()
    return int(rev), key, deleted == "d", int(checksum)


def live_and_die(path: Path, ledger: Ledger, random: Random) -> list[str]:
    """Run the child until its end. Returns the complete lines that it printed."""
    fail = random.choice(("before", "after")) if random.randrange(ERROR_SHARE) == 0 else "never"
    command = [sys.executable, "-m", "bench.crash_child", str(path), "--since", str(ledger.persisted)]
    command += ["--seed", str(random.randrange(2**32)), "--fail", fail]
    command += ["--fail-at", str(random.randrange(1, COMMITS_BEFORE_ERROR_MAX))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        killer = Timer(random.random() * LIFE_SECONDS_MAX, child.kill)
        if fail == "never":
            killer.start()
        output = child.stdout.read()
    if fail == "never":
        ledger.kills += 1
        killer.join()
    else:
        ledger.errors += 1
        assert child.returncode == 0, "the child did not survive an I/O error"
    # The kill cut the line after the last newline.
    return output[: output.rfind("\n") + 1].splitlines()


async def crash(path: Path, kills: int, seed: int) -> Ledger:
    """Kill a store this many times, on one file. A slow machine needs more kills until the store has compacted."""
    random = Random(seed)
    ledger = Ledger()
    while ledger.kills < kills or (not ledger.compacted and ledger.kills < kills * SLOW_FACTOR_MAX):
        lines = live_and_die(path, ledger, random)
        await ledger.check(path, lines)
    return ledger


def main() -> None:
    parser = arguments("Kill a writing store again and again; nothing that was acknowledged may be lost.")
    parser.add_argument("--kills", type=int, help=f"how many times (default {KILLS}, with --quick {KILLS_QUICK})")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    kills = options.kills or (KILLS_QUICK if options.quick else KILLS)
    print(f"seed {options.seed}")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        ledger = asyncio.run(crash(Path(folder) / "store.db", kills, options.seed))
    report = Report(
        "crash: nothing was lost", ["kills", "I/O errors", "acknowledged", "revisions", "compacted to", "seconds"]
    )
    figures = (ledger.kills, ledger.errors, ledger.acknowledged, ledger.persisted, ledger.compacted)
    report.add("64 writers, one file", *figures, time.perf_counter() - started)
    report.show()
    save(options.json, [report])


if __name__ == "__main__":
    main()
