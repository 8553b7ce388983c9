"""The ticks of a schedule: the first one that counts, the due time of each, and which missed ones are caught up."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from rota.api import Schedule
from rota.api.cron import Cron

ON_TIME_SECONDS = 10.0
"""A tick that fires later than this was missed."""
CATCH_UP_TICKS_MAX = 100
"""The newest missed ticks that are considered, and so the most that are caught up."""
FRACTION_BYTES = 8


class Due(NamedTuple):
    """The ticks that are due, oldest first, and the next one."""

    ticks: tuple[int, ...]
    coming: int | None


def since(schedule: Schedule, text: str, now: float) -> int:
    """Return the moment after which ticks count. `text` identifies the schedule's cron.

    It is before the status's `nextRunTime`, the first tick that has not fired or been skipped. After a pause, or with
    another cron, ticks count from now on. Those of a new schedule count from its creation.
    """
    status, created = schedule.status, schedule.metadata.creation_timestamp
    begin = int(now)
    if status is None or status.observed_cron is None:
        begin = int(created.timestamp()) if created is not None else begin
    elif status.observed_cron == text and status.next_run_time is not None:
        begin = int(status.next_run_time.timestamp()) - 1
    last = status.last_scheduled_time if status is not None else None
    return begin if last is None else max(begin, int(last.timestamp()))


def due_at(schedule: Schedule, cron: Cron, tick: int) -> float:
    """Return when a tick is due: at its moment, or by its jitter later, but before the next one."""
    if not schedule.spec.jitter_seconds:
        return float(tick)
    following = cron.after(tick)
    span = schedule.spec.jitter_seconds if following is None else min(schedule.spec.jitter_seconds, following - tick)
    return tick + fraction(schedule.metadata.uid, tick) * span


def fraction(uid: str, tick: int) -> float:
    """Return a number from 0 to 1, evenly spread and always the same for a tick of a schedule."""
    digest = blake2b(f"{uid} {tick}".encode(), digest_size=FRACTION_BYTES).digest()
    return int.from_bytes(digest) / float(1 << 8 * FRACTION_BYTES)


def due(schedule: Schedule, cron: Cron, begin: int, now: float) -> Due:
    """Return the ticks after `begin` that are due now, at most CATCH_UP_TICKS_MAX."""
    moment = int(now)
    newest = cron.until(moment, begin) if begin < moment else None
    if newest is not None and due_at(schedule, cron, newest) > now:
        coming: int | None = newest
        newest = cron.until(newest - 1, begin)
    else:
        coming = cron.after(max(moment, begin))
    found: list[int] = []
    while newest is not None and len(found) < CATCH_UP_TICKS_MAX:
        found.append(newest)
        newest = cron.until(newest - 1, begin)
    return Due(tuple(reversed(found)), coming)


def is_missed(schedule: Schedule, cron: Cron, tick: int, now: float) -> bool:
    return now - due_at(schedule, cron, tick) > ON_TIME_SECONDS


def to_fire(schedule: Schedule, cron: Cron, ticks: Sequence[int], now: float) -> tuple[int, ...]:
    """Return the due ticks that `spec.catchUp` and their age allow to fire."""
    spec = schedule.spec
    age_max = max(float(spec.catch_up_within_seconds), ON_TIME_SECONDS)
    young = tuple(tick for tick in ticks if now - due_at(schedule, cron, tick) <= age_max)
    if spec.catch_up == "All":
        return young
    if spec.catch_up == "Last":
        return young[-1:]
    return tuple(tick for tick in young if not is_missed(schedule, cron, tick, now))
