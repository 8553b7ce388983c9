"""Kills on one file, with I/O errors in between. `python -m bench.crash` does thousands."""

from __future__ import annotations

from pathlib import Path

from bench.crash import crash

from tests.amount import amount

KILLS = amount(8, 60)


async def test_nothing_acknowledged_is_lost_and_no_event_is_missed_or_repeated_whenever_killed(
    path: Path,
) -> None:
    ledger = await crash(path, KILLS, seed=1)
    assert ledger.kills >= KILLS
    assert ledger.errors > 0
    assert ledger.acknowledged > 10 * KILLS
    assert 0 < ledger.compacted < ledger.persisted
