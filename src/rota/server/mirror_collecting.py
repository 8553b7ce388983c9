"""Mirrors of repositories that are not to stay are removed: when the server begins, and then again and again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import cast

from rota.api import Workspace
from rota.engine import Objects
from rota.engine.clock import Clock, RealClock
from rota.runtime.workspace import Source, WorkspaceError, mirrors
from rota.runtime.workspace.mirror import place_name

log = logging.getLogger(__name__)

COLLECT_SECONDS = 60.0


class MirrorCollecting:
    """Goes on from when it is entered until it is left."""

    def __init__(self, home: Path, objects: Objects, is_short: Callable[[], bool], clock: Clock | None = None) -> None:
        """`is_short`: whether the disk has too little space."""
        self._home = home
        self._objects = objects
        self._is_short = is_short
        self._clock = clock or RealClock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> MirrorCollecting:
        self._task = asyncio.create_task(self._run(), name="mirrors that nothing refers to")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def collect(self) -> list[str]:
        """Remove what is not to stay. Returns the names of the mirrors that are gone."""
        referred = referred_to(self._objects)
        return await asyncio.to_thread(mirrors.collect, self._home, referred, is_short=self._is_short())

    async def _run(self) -> None:
        while True:
            try:
                await self.collect()
            except Exception as error:
                # Whatever one object has in it: without this, nothing would be removed for anybody.
                log.warning("mirrors that nothing refers to are not removed: %s", error)
            due = asyncio.Event()
            timer = self._clock.call_at(self._clock.now() + COLLECT_SECONDS, due.set)
            try:
                await due.wait()
            finally:
                timer.cancel()


def referred_to(objects: Objects) -> dict[str, str]:
    """The names of the mirrors of all Workspaces, with the namespace of each."""
    found = {}
    for one in cast("list[Workspace]", objects.list(Workspace.api)):
        namespace, signed = one.metadata.namespace, one.spec.secret_ref
        scope = mirrors.scope(namespace, signed.name if signed is not None else "")
        # An address that cannot be read was never fetched.
        with contextlib.suppress(WorkspaceError):
            found[place_name(Source(one.spec.repo, scope))] = namespace
    return found
