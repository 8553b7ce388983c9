"""The preparation of a function's workers: its code and packages, as folders of the host."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from rota.api import Function, Instance
from rota.api.egress import Policy
from rota.client import Key
from rota.control.functions.loading import last_loaded
from rota.control.functions.planning import Version
from rota.engine.clock import Clock
from rota.registry import privileges
from rota.runtime.code import CODE, PACKAGES, CodeCache, CodeRefused, Packages, environment_name, pip_failures
from rota.runtime.code.cache import inline_digest
from rota.runtime.code.places import LOADS, collect, collect_logs, load_log, packages_log

log = logging.getLogger(__name__)

NO_POLICY = Policy()
COLLECT_SECONDS = 60.0
"""Pause between two collections of folders that nothing uses any more."""
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 30.0, 600.0
"""Pause before a failed preparation is retried; it doubles up to the maximum."""
BLOB_RETRY_SECONDS = 2.0
"""Pause before a missing blob is looked for again, which costs nothing."""
UNPACKED_AT_ONCE_MAX = 2
"""Threads that unpack code, apart from those that start instances. Each tenant has at most one at a time."""


FAILURES = frozenset(
    ("CodeNotFound", "CodeDamaged", "CodeTooLarge", "NoSpace", "NotPrepared", "NotIsolated", *pip_failures.REASONS)
)
"""Reasons of a failed preparation."""


class Needs(NamedTuple):
    """The folders that a function's workers need, by name."""

    code: str | None
    """The digest; None: it is in a workspace."""
    packages: str


class Failure(NamedTuple):
    """A failed preparation."""

    needs: Needs
    reason: str
    message: str
    time: float
    in_a_row: int = 1

    @property
    def due(self) -> float:
        """The time of the next try."""
        if self.reason == "CodeNotFound":
            return self.time + BLOB_RETRY_SECONDS
        return self.time + min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2.0 ** min(self.in_a_row - 1, 10))


def needs_of(function: Function) -> Needs:
    """Return the needs of a function's newest version."""
    spec = function.spec
    source = spec.source
    code = source.digest
    if source.inline is not None:
        code = inline_digest(source.inline, spec.entrypoint or "")
    return Needs(code, environment_name(spec.requirements))


def needs_of_version(version: Version) -> Needs:
    handler = version.template.handler
    assert handler is not None
    return Needs(handler.code, handler.packages or "")


class Preparer(Protocol):
    """Prepares the code and the packages of functions."""

    def is_there(self, needs: Needs) -> bool:
        """Report whether all folders exist. They are not collected for a while after that."""
        ...

    def failure(self, key: Key, needs: Needs) -> Failure | None:
        """Return the failure of the last preparation of these needs; None: it has not failed."""
        ...

    def start(self, key: Key, function: Function, needs: Needs, done: Callable[[], None]) -> None:
        """Prepare in the background. `done` is called when that has ended, successfully or not."""
        ...

    def forget(self, key: Key) -> None:
        """Forget a function that is gone."""
        ...

    def collects_now(self) -> bool:
        """Report whether a collection is due. Callers ask first, since listing all functions for it may take long."""
        ...

    async def collect(
        self, functions: Sequence[Function], instances: Iterable[Instance], versions: Iterable[Version]
    ) -> None:
        """Remove the folders that no function, worker or formerly loaded version uses."""
        ...

    def packages_log(self, function: Function) -> Path | None:
        """Return pip's log of a function's packages; None: it requires none."""
        ...

    def load_log(self, function: Function) -> Path:
        """Return the log of the last failed load of a function."""
        ...

    async def keep_load_log(self, function: Function, said: str) -> None:
        """Write the log of a failed load; an empty one removes it."""
        ...

    async def close(self) -> None: ...


class CodePreparer:
    """Prepares code and packages on this machine, several functions at a time."""

    def __init__(self, home: Path, clock: Clock, policy: Policy = NO_POLICY) -> None:
        self._clock = clock
        self._home = home
        self._code = CodeCache(home)
        self._packages = Packages(home, policy)
        self._under_way: dict[Key, tuple[Needs, asyncio.Task[None]]] = {}
        self._failures: dict[Key, Failure] = {}
        self._collected: float | None = None
        self._threads = ThreadPoolExecutor(UNPACKED_AT_ONCE_MAX, "rota-code")
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """The semaphore of each tenant."""

    def is_there(self, needs: Needs) -> bool:
        has_code = needs.code is None or self._code.has(needs.code)
        return has_code and (not needs.packages or self._packages.has(needs.packages))

    def failure(self, key: Key, needs: Needs) -> Failure | None:
        found = self._failures.get(key)
        return found if found is not None and found.needs == needs else None

    def start(self, key: Key, function: Function, needs: Needs, done: Callable[[], None]) -> None:
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
                await self._in_slot(key.namespace, self._code.put_inline, spec.source.inline, spec.entrypoint or "")
            elif needs.code is not None:
                await self._in_slot(key.namespace, self._code.unpack, needs.code)
            if needs.packages:
                is_restricted = privileges.is_restricted(function.metadata.annotations)
                await self._packages.install(spec.requirements, needs_sandbox=is_restricted, tenant=key.namespace)
        except CodeRefused as refused:
            self._fail(key, needs, refused.reason, str(refused))
        except OSError as error:
            self._fail(key, needs, "NoSpace", f"its code or packages cannot be stored: {error}")
        except Exception as error:
            log.exception("the code of %s/%s cannot be prepared", *key)
            self._fail(key, needs, "NotPrepared", f"its code or packages cannot be prepared: {error}")
        else:
            self._failures.pop(key, None)

    async def _in_slot(self, tenant: str, do: Callable[..., object], *arguments: str) -> None:
        """Run a function in the tenant's slot. If cancelled, it still runs to its end and keeps the slot until then."""
        slot = self._slots.setdefault(tenant, asyncio.Semaphore(1))
        await slot.acquire()

        def over(done: asyncio.Future[object]) -> None:
            slot.release()
            if not done.cancelled():
                done.exception()  # Retrieved, so that asyncio does not warn if the caller was cancelled.

        doing = asyncio.get_running_loop().run_in_executor(self._threads, do, *arguments)
        doing.add_done_callback(over)
        await asyncio.shield(doing)

    def _fail(self, key: Key, needs: Needs, reason: str, message: str) -> None:
        before = self.failure(key, needs)
        count = before.in_a_row + 1 if before is not None else 1
        self._failures[key] = Failure(needs, reason, message, self._clock.time(), count)

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)
        before = self._under_way.get(key)
        if before is not None:
            before[1].cancel()

    def collects_now(self) -> bool:
        return self._collected is None or self._clock.now() - self._collected >= COLLECT_SECONDS

    async def collect(
        self, functions: Sequence[Function], instances: Iterable[Instance], versions: Iterable[Version]
    ) -> None:
        self._collected = self._clock.now()
        loaded = [version for one in functions if (version := last_loaded(one.status)) is not None]
        needed = [needs_of(one) for one in functions] + [needs_of_version(one) for one in (*versions, *loaded)]
        needed += [
            Needs(handler.code, handler.packages or "")
            for one in instances
            if (handler := one.spec.handler) is not None
        ]
        code = {one.code for one in needed if one.code}
        packages = {one.packages for one in needed if one.packages}
        await asyncio.to_thread(collect, self._home, CODE, {digest.removeprefix("sha256:") for digest in code})
        await asyncio.to_thread(collect, self._home, PACKAGES, packages)
        await asyncio.to_thread(collect_logs, self._home, PACKAGES, packages)
        uids = {one.metadata.uid for one in functions}
        await asyncio.to_thread(collect_logs, self._home, LOADS, uids)

    # Logs.

    def packages_log(self, function: Function) -> Path | None:
        name = needs_of(function).packages
        return packages_log(self._home, name) if name else None

    def load_log(self, function: Function) -> Path:
        return load_log(self._home, function.metadata.uid)

    async def keep_load_log(self, function: Function, said: str) -> None:
        path = self.load_log(function)
        try:
            await asyncio.to_thread(_replace, path, said)
        except OSError as error:
            # The condition has its last line.
            log.warning("%s cannot be written: %s", path, error.strerror)

    async def close(self) -> None:
        for _, task in list(self._under_way.values()):
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._packages.close()


def _replace(path: Path, text: str) -> None:
    if not text:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f".{path.name}.new")
    new.touch(mode=0o600)
    new.write_text(text, encoding="utf-8", errors="replace")
    new.replace(path)
