"""Background packing of cold objects: now and then, in small steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

from rota.store.model import Entry
from rota.store.objects import Objects

COOL_AFTER_SECONDS = 60.0
"""Seconds between the drop of history from a ring and the next scan of all objects."""
STEP_SECONDS = 0.05
STEP_LOOKS_MAX = 2_000
STEP_PACKED_MAX = 100
"""Bound on the packed objects of one step, which takes about a millisecond."""


class Cooling:
    """Packs cold objects of a store, which stops it."""

    __slots__ = ("_keys", "_objects", "_timer")

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._keys: Iterator[str] = iter(())
        self._timer: asyncio.TimerHandle | None = None

    def soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a scan."""
        if self._timer is None:
            self._timer = loop.call_later(COOL_AFTER_SECONDS, self._begin, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def at_once(self) -> None:
        """Pack all cold objects now."""
        self._keys = iter([*self._objects.live])
        while self.step():
            pass

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._keys = iter([*self._objects.live])
        self._go_on(loop)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(STEP_SECONDS, self._go_on, loop) if self.step() else None

    def step(self) -> bool:
        """Do one step of a scan. Return whether more are left."""
        looked = packed = 0
        for key in islice(self._keys, STEP_LOOKS_MAX):
            looked += 1
            packed += self._cool(key)
            if packed >= STEP_PACKED_MAX:
                return True
        return looked == STEP_LOOKS_MAX

    def _cool(self, key: str) -> bool:
        """Pack an object if it is cold. Return whether it was."""
        objects = self._objects
        entry = objects.live.get(key)
        if type(entry) is not Entry:
            return False
        bucket = objects.bucket(key)
        if entry.rev > bucket.ring.floor or not bucket.packs():
            return False
        objects.live[key] = bucket.packer.pack(entry)
        return True
