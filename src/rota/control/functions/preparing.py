"""What the workers of a function need before there can be one: its code and its packages, as folders of the host."""

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
"""At most so often it is looked what nothing uses any more."""
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 30.0, 600.0
"""After which it is tried again to have what could not be had, ever longer: an index may be back by then."""
BLOB_RETRY_SECONDS = 2.0
"""Likewise, of a blob that was not there: to look for it costs nothing."""
UNPACKED_AT_ONCE_MAX = 2
"""In threads of their own: what a tenant has unpacked for minutes keeps nobody from starting something. Of one tenant
it is one at a time."""


FAILURES = frozenset(
    ("CodeNotFound", "CodeDamaged", "CodeTooLarge", "NoSpace", "NotPrepared", "NotIsolated", *pip_failures.REASONS)
)
"""Reasons for which the workers of a function lack what they need."""


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
    in_a_row: int = 1
    """How often it has failed by now."""

    @property
    def due(self) -> float:
        """When it is tried again."""
        if self.reason == "CodeNotFound":
            return self.time + BLOB_RETRY_SECONDS
        return self.time + min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2.0 ** min(self.in_a_row - 1, 10))


def needs_of(function: Function) -> Needs:
    """Return what the newest version of a function needs."""
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


class Supply(Protocol):
    """What makes ready the code and the packages of functions."""

    def is_there(self, needs: Needs) -> bool:
        """Whether all of it is; then it stays for a while."""
        ...

    def failure(self, key: Key, needs: Needs) -> Failure | None:
        """Why it could not be had when that was last tried."""
        ...

    def start(self, key: Key, function: Function, needs: Needs, done: Callable[[], None]) -> None:
        """Have it made. `done` is called when that has ended, well or not."""
        ...

    def forget(self, key: Key) -> None:
        """Forget a function that is gone."""
        ...

    def collects_now(self) -> bool:
        """Report whether it is time to collect: to look at all functions takes long where there are many."""
        ...

    async def collect(
        self, functions: Sequence[Function], instances: Iterable[Instance], versions: Iterable[Version]
    ) -> None:
        """Remove what neither a function nor a worker uses, nor a version that may have to go on."""
        ...

    def packages_log(self, function: Function) -> Path | None:
        """Return the log of the installation of what a function requires; None: it requires nothing."""
        ...

    def load_log(self, function: Function) -> Path:
        """Return the log of the newest version of a function that could not be loaded."""
        ...

    async def keep_load_log(self, function: Function, said: str) -> None:
        """Keep that log, until the version is loaded; nothing: it is."""
        ...

    async def close(self) -> None: ...


class Preparing:
    """Makes them, each once, while others go on."""

    def __init__(self, home: Path, clock: Clock, policy: Policy = NO_POLICY) -> None:
        self._clock = clock
        self._home = home
        self._code = CodeCache(home)
        self._packages = Packages(home, policy)
        self._under_way: dict[Key, tuple[Needs, asyncio.Task[None]]] = {}
        self._failures: dict[Key, Failure] = {}
        self._collected: float | None = None
        self._threads = ThreadPoolExecutor(UNPACKED_AT_ONCE_MAX, "rota-code")
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By tenant."""

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
                await self._in_turn(key.namespace, self._code.put_inline, spec.source.inline, spec.entrypoint or "")
            elif needs.code is not None:
                await self._in_turn(key.namespace, self._code.unpack, needs.code)
            if needs.packages:
                is_restricted = privileges.is_restricted(function.metadata.annotations)
                await self._packages.install(spec.requirements, needs_sandbox=is_restricted, tenant=key.namespace)
        except CodeRefused as refused:
            self._fail(key, needs, refused.reason, str(refused))
        except OSError as error:
            self._fail(key, needs, "NoSpace", f"it cannot be kept: {error}")
        except Exception as error:
            log.exception("the code of %s/%s cannot be made ready", *key)
            self._fail(key, needs, "NotPrepared", f"it cannot be made ready: {error}")
        else:
            self._failures.pop(key, None)

    async def _in_turn(self, tenant: str, do: Callable[..., object], *arguments: str) -> None:
        """Run it when a tenant has its turn. Who is cancelled leaves it to end, and only then the next one begins."""
        turn = self._turns.setdefault(tenant, asyncio.Semaphore(1))
        await turn.acquire()

        def over(done: asyncio.Future[object]) -> None:
            turn.release()
            if not done.cancelled():
                done.exception()  # Who no longer asks is not to be warned of it.

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
        """Remove what neither a function nor a worker uses, nor a version that may have to go on."""
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
        """What pip wrote when it installed what a function requires; None: it requires nothing."""
        name = needs_of(function).packages
        return packages_log(self._home, name) if name else None

    def load_log(self, function: Function) -> Path:
        """What was written when the newest version of a function could not be loaded."""
        return load_log(self._home, function.metadata.uid)

    async def keep_load_log(self, function: Function, said: str) -> None:
        """Keep that, until it is loaded; nothing: it is."""
        path = self.load_log(function)
        try:
            await asyncio.to_thread(_replace, path, said)
        except OSError as error:
            # The condition says the last line of it.
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
