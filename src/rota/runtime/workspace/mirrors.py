"""Removes the mirrors of a home that are not needed. Each can be fetched again.

- A mirror to which no Workspace refers is removed if it was not used for `UNUSED_SECONDS_MIN`.
- All mirrors of a namespace have at most `NAMESPACE_BYTES_MAX` together. The least recently used are removed first.
- While the disk is short, all mirrors are removed that were not used for `UNUSED_SECONDS_MIN`.
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
"""A mirror that was used within this time may be in use now."""
REMOVE_SECONDS_MAX = 600.0
MIRRORS, SUFFIX = "mirrors", ".git"


def scope(namespace: str, secret: str) -> str:
    """Return the scope of a mirror, which is part of its name: a namespace, and the Secret with which it is fetched."""
    return f"{namespace}/{secret}"


class _StoredMirror(NamedTuple):
    asked: float
    """The time of its last use."""
    bytes: int
    place: Path


def collect(home: Path, referred: Mapping[str, str], *, is_short: bool = False) -> list[str]:
    """Remove mirrors that are not needed, and return their names.

    `referred`: the namespaces of the mirrors to which Workspaces refer, by mirror.
    """
    gone: list[str] = []
    kept: dict[str, list[_StoredMirror]] = {}
    for place in sorted((home / MIRRORS).glob(f"*{SUFFIX}")):
        with contextlib.suppress(FileNotFoundError):
            asked = place.stat().st_mtime
            is_unused = time.time() - asked > UNUSED_SECONDS_MIN
            if is_unused and (is_short or place.name not in referred):
                gone += _removed(place)
            else:
                kept.setdefault(referred.get(place.name, ""), []).append(_StoredMirror(asked, _bytes(place), place))
    for mirrors in kept.values():
        total = sum(one.bytes for one in mirrors)
        for one in sorted(mirrors):
            if total > NAMESPACE_BYTES_MAX and _removed(one.place):
                total -= one.bytes
                gone.append(one.place.name)
    return gone


def _removed(place: Path) -> list[str]:
    """Remove a mirror, unless it is being fetched. Return its name if it is gone."""
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
