"""Collect blobs and mirrors of repositories that are no longer used, at the start and regularly afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Self, cast

from rota.api import Function, Workspace
from rota.engine import Objects
from rota.engine.clock import Clock, RealClock
from rota.runtime.archive import BlobArchive
from rota.runtime.workspace import Source, WorkspaceError, mirrors
from rota.runtime.workspace.mirror import place_name

log = logging.getLogger(__name__)

BLOBS_SECONDS = 300.0
"""Time between two collections of blobs."""
MIRRORS_SECONDS = 60.0
"""Time between two collections of mirrors."""


class Collector(ABC):
    """Collects from its entry to its exit."""

    def __init__(self, what: str, seconds: float, clock: Clock | None) -> None:
        self._what = what
        self._seconds = seconds
        self._clock = clock or RealClock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"{self._what} that nothing refers to")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @abstractmethod
    async def collect(self) -> list[str]:
        """Remove what is no longer used. Returns its names."""

    async def _run(self) -> None:
        while True:
            try:
                await self.collect()
            except Exception as error:
                # One object with bad content must not stop all further collections.
                log.warning("%s that nothing refers to are not removed: %s", self._what, error)
            due = asyncio.Event()
            timer = self._clock.call_at(self._clock.now() + self._seconds, due.set)
            try:
                await due.wait()
            finally:
                timer.cancel()


class BlobCollector(Collector):
    """Removes old blobs that no Function refers to."""

    def __init__(self, blobs: BlobArchive, objects: Objects, clock: Clock | None = None) -> None:
        super().__init__("blobs", BLOBS_SECONDS, clock)
        self._blobs = blobs
        self._objects = objects

    async def collect(self) -> list[str]:
        return await asyncio.to_thread(self._blobs.collect, frozenset(blobs_of_functions(self._objects)))


class MirrorCollector(Collector):
    """Removes mirrors not used for a while: those without a Workspace; while the disk is short of space, all."""

    def __init__(self, home: Path, objects: Objects, is_short: Callable[[], bool], clock: Clock | None = None) -> None:
        """`is_short` reports whether the disk has too little space."""
        super().__init__("mirrors", MIRRORS_SECONDS, clock)
        self._home = home
        self._objects = objects
        self._is_short = is_short

    async def collect(self) -> list[str]:
        referred = _mirrors_of_workspaces(self._objects)
        return await asyncio.to_thread(mirrors.collect, self._home, referred, is_short=self._is_short())


def blobs_of_functions(objects: Objects, namespace: str = "") -> set[str]:
    """Return the digests of Functions, and of the versions that are still served."""
    functions = cast("list[Function]", objects.list(Function.api, namespace))
    wanted = {one.spec.source.digest for one in functions}
    served = {one.status.digest for one in functions if one.status is not None}
    return {digest for digest in wanted | served if digest}


def _mirrors_of_workspaces(objects: Objects) -> dict[str, str]:
    """Return the names of the mirrors of all Workspaces, with the namespace of each."""
    found = {}
    for one in cast("list[Workspace]", objects.list(Workspace.api)):
        namespace, signed = one.metadata.namespace, one.spec.secret_ref
        scope = mirrors.scope(namespace, signed.name if signed is not None else "")
        # An address that cannot be read was never fetched.
        with contextlib.suppress(WorkspaceError):
            found[place_name(Source(one.spec.repo, scope))] = namespace
    return found
