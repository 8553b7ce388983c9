"""Blobs that no Function refers to are removed: when the server begins, and then again and again."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from rota.api import Function
from rota.engine import Objects
from rota.engine.clock import Clock, RealClock
from rota.runtime.archive import BlobArchive

log = logging.getLogger(__name__)

COLLECT_SECONDS = 300.0
"""So often it is looked what nothing refers to."""


class BlobCollecting:
    """Goes on from when it is entered until it is left."""

    def __init__(self, blobs: BlobArchive, objects: Objects, clock: Clock | None = None) -> None:
        self._blobs = blobs
        self._objects = objects
        self._clock = clock or RealClock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> BlobCollecting:
        self._task = asyncio.create_task(self._run(), name="blobs that nothing refers to")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def collect(self) -> list[str]:
        """Remove what no Function refers to and is not new. Returns the digests that are gone."""
        return await asyncio.to_thread(self._blobs.collect, frozenset(referred_to(self._objects)))

    async def _run(self) -> None:
        while True:
            try:
                await self.collect()
            except Exception as error:
                # As for mirrors: one object must not end it for all.
                log.warning("blobs that nothing refers to are not removed: %s", error)
            await self._slept()

    async def _slept(self) -> None:
        due = asyncio.Event()
        timer = self._clock.call_at(self._clock.now() + COLLECT_SECONDS, due.set)
        try:
            await due.wait()
        finally:
            timer.cancel()


def referred_to(objects: Objects, namespace: str = "") -> set[str]:
    """What Functions have, and what is still served of what they had."""
    functions = cast("list[Function]", objects.list(Function.api, namespace))
    wanted = {one.spec.source.digest for one in functions}
    served = {one.status.digest for one in functions if one.status is not None}
    return {digest for digest in wanted | served if digest}
