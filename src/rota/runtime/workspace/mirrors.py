"""Which mirrors of a home stay. All of them can be fetched again, so that whatever is removed is not lost.

- One that no Workspace refers to goes, once nobody has asked for it for a while.
- All mirrors of a namespace have `NAMESPACE_BYTES_MAX` together: those that were asked for longest ago go first.
- While the disk is short, all go that nobody asked for a moment ago.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rota.runtime.measuring import NotMeasurable, used
from rota.runtime.workspace.discard import remove
from rota.runtime.workspace.locks import locked_now

NAMESPACE_BYTES_MAX = 32 << 30
UNUSED_SECONDS_MIN = 300.0
"""What was asked for since may be in use."""
REMOVE_SECONDS_MAX = 600.0
MIRRORS, SUFFIX = "mirrors", ".git"


def scope(namespace: str, secret: str) -> str:
    """Who may read a mirror, which is part of its name: the namespace, and the Secret with which it was fetched."""
    return f"{namespace}/{secret}"


class _Found(NamedTuple):
    asked: float
    """When it was last asked for."""
    bytes: int
    place: Path


def collect(home: Path, referred: Mapping[str, str], *, is_short: bool = False) -> list[str]:
    """Remove what is not to stay. `referred`: names of mirrors, with the namespace of each. Returns what is gone."""
    gone: list[str] = []
    kept: dict[str, list[_Found]] = {}
    for place in sorted((home / MIRRORS).glob(f"*{SUFFIX}")):
        with contextlib.suppress(FileNotFoundError):
            asked = place.stat().st_mtime
            is_unused = time.time() - asked > UNUSED_SECONDS_MIN
            if is_unused and (is_short or place.name not in referred):
                gone += _removed(place)
            else:
                kept.setdefault(referred.get(place.name, ""), []).append(_Found(asked, _bytes(place), place))
    for mirrors in kept.values():
        total = sum(one.bytes for one in mirrors)
        for one in sorted(mirrors):
            if total > NAMESPACE_BYTES_MAX and _removed(one.place):
                total -= one.bytes
                gone.append(one.place.name)
    return gone


def _removed(place: Path) -> list[str]:
    """Its name, if it is gone: not while somebody fetches."""
    lock = place.with_suffix(".lock")
    with locked_now(lock) as is_ours:
        if is_ours and remove(place, seconds_max=REMOVE_SECONDS_MAX):
            os.unlink(lock)
            return [place.name]
    return []


def _bytes(place: Path) -> int:
    try:
        return used(place).bytes
    except (NotMeasurable, OSError):
        return 0
