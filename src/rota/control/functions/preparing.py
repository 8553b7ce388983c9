"""What the workers of a function need before there can be one: its code and its packages, as folders of the host."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from rota.api import Function, Instance
from rota.client import Key
from rota.control.functions.planning import Version
from rota.runtime.code import CODE, PACKAGES, CodeCache, CodeRefused, Packages, environment_name
from rota.runtime.code.cache import inline_digest
from rota.runtime.code.places import collect

log = logging.getLogger(__name__)

COLLECT_SECONDS = 60.0
"""At most so often it is looked what nothing uses any more."""
RETRY_SECONDS = 30.0
"""After which it is tried again to have what could not be had: an index of packages may be back by then."""
BLOB_RETRY_SECONDS = 2.0
"""Likewise, of a blob that was not there: to look for it costs nothing."""


class Needs(NamedTuple):
    """The folders that a function's workers are shown, by their names."""

    code: str | None
    """The digest; None: it is in a workspace."""
    packages: str


class Failure(NamedTuple):
    """Why they cannot be had."""

    needs: Needs
    reason: str
    message: str
    time: float

    @property
    def due(self) -> float:
        """When it is tried again."""
        return self.time + (BLOB_RETRY_SECONDS if self.reason == "CodeNotFound" else RETRY_SECONDS)


class Preparing:
    """Makes them, each once, while others go on."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._code = CodeCache(home)
        self._packages = Packages(home)
        self._under_way: dict[Key, tuple[Needs, asyncio.Task[None]]] = {}
        self._failures: dict[Key, Failure] = {}
        self._collected = 0.0

    @staticmethod
    def needs(function: Function) -> Needs:
        spec = function.spec
        source = spec.source
        code = source.digest
        if source.inline is not None:
            code = inline_digest(source.inline, spec.entrypoint or "")
        return Needs(code, environment_name(spec.requirements))

    @staticmethod
    def needs_of(version: Version) -> Needs:
        handler = version.template.handler
        assert handler is not None
        return Needs(handler.code, handler.packages or "")

    def is_there(self, needs: Needs) -> bool:
        """Whether all of it is; then it stays for a while."""
        has_code = needs.code is None or self._code.has(needs.code)
        return has_code and (not needs.packages or self._packages.has(needs.packages))

    def failure(self, key: Key, needs: Needs) -> Failure | None:
        """Why it could not be had when that was last tried."""
        found = self._failures.get(key)
        return found if found is not None and found.needs == needs else None

    def start(self, key: Key, function: Function, needs: Needs, done: Callable[[], None]) -> None:
        """Have it made. `done` is called when that has ended, well or not."""
        before = self._under_way.get(key)
        if before is not None:
            if before[0] == needs:
                return
            before[1].cancel()
        task = asyncio.create_task(self._make(key, function, needs), name=f"code of {key.name}")
        self._under_way[key] = needs, task

        def over(_: object) -> None:
            if self._under_way.get(key, (None, None))[1] is task:
                del self._under_way[key]
            done()

        task.add_done_callback(over)

    async def _make(self, key: Key, function: Function, needs: Needs) -> None:
        spec = function.spec
        try:
            if spec.source.inline is not None:
                await asyncio.to_thread(self._code.put_inline, spec.source.inline, spec.entrypoint or "")
            elif needs.code is not None:
                await asyncio.to_thread(self._code.unpack, needs.code)
            if needs.packages:
                await self._packages.install(spec.requirements)
        except CodeRefused as refused:
            self._failures[key] = Failure(needs, refused.reason, str(refused), time.time())
        except OSError as error:
            self._failures[key] = Failure(needs, "NoSpace", f"it cannot be kept: {error}", time.time())
        except Exception as error:
            log.exception("the code of %s/%s cannot be made ready", *key)
            self._failures[key] = Failure(needs, "NotPrepared", f"it cannot be made ready: {error}", time.time())
        else:
            self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)
        before = self._under_way.get(key)
        if before is not None:
            before[1].cancel()

    async def collect(
        self, functions: Iterable[Function], instances: Iterable[Instance], versions: Iterable[Version]
    ) -> None:
        """Remove what neither a function nor a worker uses, nor a version that may have to go on."""
        if time.monotonic() - self._collected < COLLECT_SECONDS:
            return
        self._collected = time.monotonic()
        needed = [self.needs(one) for one in functions] + [self.needs_of(one) for one in versions]
        needed += [
            Needs(handler.code, handler.packages or "")
            for one in instances
            if (handler := one.spec.handler) is not None
        ]
        code = {one.code for one in needed if one.code}
        packages = {one.packages for one in needed if one.packages}
        await asyncio.to_thread(collect, self._home, CODE, {digest.removeprefix("sha256:") for digest in code})
        await asyncio.to_thread(collect, self._home, PACKAGES, packages)

    async def close(self) -> None:
        for _, task in list(self._under_way.values()):
            task.cancel()
        await self._packages.close()
