"""Merge the output of a project: the logs of its pools' and functions' instances, and of its tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

from rota.api import Function, Instance, Kind, Task, WorkerPool
from rota.cli.following import follow
from rota.cli.log_following import log_pieces
from rota.cli.output import note, print_line
from rota.cli.patience import Patience
from rota.cli.task_output import Lines, output_of
from rota.cli.tasks import is_over
from rota.client import Client, ConnectionFailed
from rota.manifest.project import Project
from rota.registry import ApiError

Object = dict[str, Any]
COLOURS = ("cyan", "magenta", "blue", "green", "yellow")
FOLLOWED_MAX = 100
"""Logs that are followed at once."""
KNOWN_MAX = 20_000
"""Objects that are remembered."""
TAIL_LINES = 10
"""Lines shown of an instance that ran before this command."""
NAME_CHARS = 24


class Tail:
    """Prints new output of what belongs to a project."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._owners: set[tuple[str, str]] = set()
        self._known: dict[str, None] = {}
        self._passed: dict[str, tuple[Kind, Object]] = {}
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._is_full = False
        # Shared, so that one message says that the server is away.
        self._patience = Patience()
        self._colours: dict[str, str] = {}

    def of(self, project: Project) -> None:
        """Follow what this project declares, from now on."""
        self._owners = {(one.kind.name, one.name) for one in project.manifests}
        self._owners |= {(Function.api.name, name) for name in project.mentioned}
        # An instance may arrive before the project that declares its owner.
        passed, self._passed = self._passed, {}
        for kind, obj in passed.values():
            self._take(kind, obj, is_first=False)

    async def run(self) -> None:
        """Watch instances and tasks. Does not return."""
        try:
            async with asyncio.TaskGroup() as group:
                for kind in (Instance.api, Task.api):
                    group.create_task(self._watch(kind))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            for following in self._followed.values():
                following.cancel()
            await asyncio.gather(*self._followed.values(), return_exceptions=True)

    async def _watch(self, kind: Kind) -> None:
        is_first = True
        begin = lambda: follow(self._client, kind, namespace=None)  # noqa: E731
        async with contextlib.aclosing(self._patience.follow(begin)) as batches:
            async for changed, gone in batches:
                for obj in changed:
                    self._take(kind, obj, is_first=is_first)
                for obj in gone:
                    self._known.pop(obj["metadata"]["uid"], None)
                    self._passed.pop(obj["metadata"]["uid"], None)
                is_first = False

    def _take(self, kind: Kind, obj: Object, *, is_first: bool) -> None:
        uid = obj["metadata"]["uid"]
        if uid in self._followed or (uid in self._known and kind is Task.api):
            return
        if is_first and kind is Task.api and is_over(obj):
            # It ended before this command. A server that was away lists it again.
            self._remember(uid)
            return
        if not self._is_own(kind, obj):
            if len(self._passed) < KNOWN_MAX:
                self._passed[uid] = (kind, obj)
            return
        was_known = uid in self._known
        self._remember(uid)
        if len(self._followed) >= FOLLOWED_MAX:
            if not self._is_full:
                note(f"more than {FOLLOWED_MAX} logs at once: those of the rest are not shown; `rota logs` has them")
            self._is_full = True
            return
        name = obj["metadata"]["name"]
        if kind is Task.api:
            pieces = output_of(self._client, name, self._patience)
        else:
            pieces = self._of_instance(obj, 0 if was_known else TAIL_LINES)
        following = asyncio.create_task(self._show(name, pieces))
        self._followed[uid] = following
        following.add_done_callback(lambda _: self._followed.pop(uid, None))

    def _remember(self, uid: str) -> None:
        self._known[uid] = None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _is_own(self, kind: Kind, obj: Object) -> bool:
        owners = {(one["kind"], one["name"]) for one in obj["metadata"].get("ownerReferences", [])}
        if kind is Task.api:
            spec = obj.get("spec") or {}
            owners.add((WorkerPool.api.name, (spec.get("workerPoolRef") or {}).get("name", "")))
            owners.add((Function.api.name, (spec.get("function") or {}).get("name", "")))
        return bool(owners & self._owners)

    # One log.

    def _of_instance(self, instance: Object, tail: int) -> AsyncGenerator[bytes, None]:
        meta = instance["metadata"]
        place = f"{quote(meta['namespace'], safe='')}/{quote(meta['name'], safe='')}"
        return log_pieces(self._client, f"/v1/logs/{place}", {"follow": "true", "tail": tail}, self._patience)

    async def _show(self, name: str, pieces: AsyncGenerator[bytes, None]) -> None:
        prefix = (f"{name:<{NAME_CHARS}}  ", self._colour_of(name))
        lines = Lines()
        # It has not begun, or is gone: the next change of it is the next attempt.
        with contextlib.suppress(ApiError, ConnectionFailed):
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    for text in lines.split(piece):
                        print_line(prefix, text)
        for text in lines.end():
            print_line(prefix, text)

    def _colour_of(self, name: str) -> str:
        if len(self._colours) > KNOWN_MAX:
            self._colours.clear()
        return self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
