"""Kills a writing store again and again, and checks after every time that nothing that was promised is gone.

`python -m bench.crash [--kills N] [--quick] [--json FILE]`

A child process (`bench.crash_child`) runs 64 writers on one file and tells what was acknowledged and what its watcher
saw. It is ended by SIGKILL at a random instant, or by an I/O error at a random commit, before or after the real
commit. Then the file is opened here, and:

* every acknowledged write is in the log, with its revision, key and content;
* so is every event that a watcher saw, and the watcher saw all from where it resumed, once, in order;
* a watcher that resumes here from the revision it had persisted sees every revision exactly once;
* revisions never go back; and the objects are what all events together make of them.
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
# One round in so many ends by an I/O error instead of a kill.
ERROR_SHARE = 5
COMMITS_BEFORE_ERROR_MAX = 60

Told = tuple[int, str, bool, int]


SLOW_FACTOR_MAX = 6
"""Times more kills that it may take until so much was written that the log was compacted."""


@dataclass
class Ledger:
    """What must be true of the file, from everything that was told so far."""

    seen: int = 0  # the revision that the watcher here has persisted
    state: dict[str, tuple[int, int]] = field(default_factory=dict)  # by key: revision and checksum
    kills: int = 0
    errors: int = 0
    acknowledged: int = 0
    compacted: int = 0

    async def check(self, path: Path, lines: list[str]) -> None:
        """Reopens the file after an end, and holds it against what was told."""
        acknowledged = [acknowledgement(line) for line in lines if line.startswith("ack ")]
        watched = [int(line.split()[1]) for line in lines if line.startswith("saw ")]
        assert watched == list(range(self.seen + 1, self.seen + 1 + len(watched))), (
            "the child's watcher missed something"
        )
        store = SqliteStore(path, ring_events_max=256)
        try:
            assert store.revision >= max([self.seen, *watched, *(told[0] for told in acknowledged)]), (
                "revisions went back"
            )
            events = await self._resume(store)
            for told in acknowledged:
                assert events[told[0]] == told, f"acknowledged and not there: {told}"
            now = {entry.key: (entry.rev, crc32(entry.value)) for entry in store.list("things/").entries}
            assert now == self.state, "the objects are not what the events make of them"
            self.acknowledged += len(acknowledged)
            self.compacted = store.compacted
        finally:
            await store.close()

    async def _resume(self, store: SqliteStore) -> dict[int, Told]:
        """Everything since the last time, by revision."""
        events: dict[int, Told] = {}
        watch = store.watch("things/", self.seen)
        while self.seen < store.revision:
            for event in await watch.next():
                assert event.rev == self.seen + 1, f"revision {event.rev} came after {self.seen}"
                assert event.prev_rev == self.state.get(event.key, (0, 0))[0], f"wrong state before {event.rev}"
                self.seen = event.rev
                events[event.rev] = (event.rev, event.key, event.deleted, crc32(event.value))
                if event.deleted:
                    del self.state[event.key]
                else:
                    self.state[event.key] = (event.rev, crc32(event.value))
        return events


def acknowledgement(line: str) -> Told:
    _, rev, key, deleted, checksum = line.split()
    return int(rev), key, deleted == "d", int(checksum)


def live_and_die(path: Path, ledger: Ledger, random: Random) -> list[str]:
    """One life of the child. Returns the lines it told."""
    fail = random.choice(("before", "after")) if random.randrange(ERROR_SHARE) == 0 else "never"
    command = [sys.executable, "-m", "bench.crash_child", str(path), "--since", str(ledger.seen)]
    command += ["--seed", str(random.randrange(2**32)), "--fail", fail]
    command += ["--fail-at", str(random.randrange(1, COMMITS_BEFORE_ERROR_MAX))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        killer = Timer(random.random() * LIFE_SECONDS_MAX, child.kill)
        if fail == "never":
            killer.start()
        told = child.stdout.read()
    if fail == "never":
        ledger.kills += 1
        killer.join()
    else:
        ledger.errors += 1
        assert child.returncode == 0, "the child did not survive an I/O error"
    # What comes after the last newline was cut by the kill, and never told.
    return told[: told.rfind("\n") + 1].splitlines()


async def crash(path: Path, kills: int, seed: int) -> Ledger:
    """Ends a store until it was killed so many times, on one file; more often on a slow machine, until it compacted."""
    random = Random(seed)
    ledger = Ledger()
    while ledger.kills < kills or (not ledger.compacted and ledger.kills < kills * SLOW_FACTOR_MAX):
        lines = live_and_die(path, ledger, random)
        await ledger.check(path, lines)
    return ledger


def main() -> None:
    parser = arguments("Kill a writing store again and again; nothing that was promised may be gone.")
    parser.add_argument("--kills", type=int, help=f"how many times (default {KILLS}, with --quick {KILLS_QUICK})")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    kills = options.kills or (KILLS_QUICK if options.quick else KILLS)
    print(f"seed {options.seed}")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        ledger = asyncio.run(crash(Path(folder) / "store.db", kills, options.seed))
    report = Report("crash: all held", ["kills", "I/O errors", "acknowledged", "revisions", "compacted to", "seconds"])
    figures = (ledger.kills, ledger.errors, ledger.acknowledged, ledger.seen, ledger.compacted)
    report.add("64 writers, one file", *figures, time.perf_counter() - started)
    report.show()
    save(options.json, [report])


if __name__ == "__main__":
    main()
