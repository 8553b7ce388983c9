"""Which items had a Task. The Task may be gone; its item must not get another one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

DELIVERIES_MAX = 500
"""Deliveries of a webhook that are remembered. A sender repeats what is recent, and a Task that is there tells too."""


def remembered(known: Sequence[str], new: Iterable[str], listed: Collection[str], most: int) -> list[str]:
    """The record with more in it, the newest last. Past its bound the oldest go that are not listed any more.

    What is listed would be made again at once. A listing is no longer than the record.
    """
    record = [*dict.fromkeys((*known, *new))]
    excess = len(record) - most
    if excess <= 0:
        return record
    kept = []
    for one in record:
        if excess > 0 and one not in listed:
            excess -= 1
        else:
            kept.append(one)
    return kept[-most:]
