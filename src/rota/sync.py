"""Claims without `async`: the same names, for programs that wait.

    with rota.sync.Client().claim("boxes") as box:
        print(box.exec("pytest -q").check().stdout)

They run on one event loop, in a thread that exists while a claim is held and ends with the last of them. An
interrupt cancels the current call, and the claim is released before `KeyboardInterrupt` is raised.
"""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, TypeVar

from rota.api.instance import Address
from rota.client import Client as AsyncClient
from rota.client.claims import Box as AsyncBox
from rota.client.claims import ClaimContext as AsyncClaimContext
from rota.client.claims import ClaimLost, CommandFailed, Entry, ExecFailed, NoneFree, Result
from rota.client.claims import Files as AsyncFiles
from rota.client.claims.result import OUTPUT_BYTES_MAX
from rota.client.target import PathLike

__all__ = [
    "Box",
    "ClaimContext",
    "ClaimLost",
    "Client",
    "CommandFailed",
    "Entry",
    "ExecFailed",
    "Files",
    "NoneFree",
    "Result",
]

R = TypeVar("R")


class _Loop:
    """An event loop in a thread, which exists while it has users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            started = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(started,), name="rota-claims", daemon=True)
            self._thread.start()
            started.wait()

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            assert self._loop is not None and self._thread is not None
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def _run(self, started: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(started.set)
            self._loop.run_forever()

    def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine and return its result. `KeyboardInterrupt` cancels it, and is raised once it has ended."""
        loop = self._loop
        if loop is None:
            work.close()
            raise RuntimeError("the block is over, and its instance given back")
        outcome: Future[R] = Future()
        tasks: list[asyncio.Task[R]] = []

        def start() -> None:
            if not outcome.done():
                tasks.append(loop.create_task(work))
                tasks[0].add_done_callback(lambda task: _resolve(task, outcome))

        def end() -> None:
            if tasks:
                tasks[0].cancel()
            elif not outcome.done():
                # The interrupt came before the start.
                work.close()
                outcome.set_exception(asyncio.CancelledError())

        interrupted: KeyboardInterrupt | None = None
        begin = start
        while not outcome.done():
            try:
                loop.call_soon_threadsafe(begin)
                wait((outcome,))
            except KeyboardInterrupt as error:
                # Cancelled work cleans up, which takes a bounded time.
                interrupted, begin = interrupted or error, end
        if interrupted is not None:
            raise interrupted
        return outcome.result()


def _resolve(task: asyncio.Task[R], outcome: Future[R]) -> None:
    if task.cancelled():
        outcome.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


class Client:
    """Claims on the server of an async `Client`; without one, on the local server."""

    def __init__(self, client: AsyncClient | None = None) -> None:
        self._client = client or AsyncClient()
        self._loop = _Loop()

    @classmethod
    def connect(
        cls,
        *,
        home: PathLike | None = None,
        kubeconfig: PathLike | None = None,
        context: str | None = None,
        namespace: str | None = None,
    ) -> Client:
        """Return a client of the server in a home, or of a context of a kubeconfig; by default of the local server."""
        return cls(AsyncClient.connect(home=home, kubeconfig=kubeconfig, context=context, namespace=namespace))

    def claim(
        self,
        pool: str,
        *,
        namespace: str | None = None,
        name: str = "",
        lease_seconds: float | None = None,
        wait_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        images: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        priority: int = 0,
    ) -> ClaimContext:
        """Claim an idle instance of a pool exclusively, in a `with`. See the async `Client.claim`."""
        claim_context = self._client.claim(
            pool,
            namespace=namespace,
            name=name,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            env=env,
            images=images,
            labels=labels,
            annotations=annotations,
            priority=priority,
        )
        return ClaimContext(self._loop, claim_context)


class ClaimContext:
    """The context manager that `Client.claim` returns. It can be entered once, and yields the instance."""

    def __init__(self, loop: _Loop, claim_context: AsyncClaimContext) -> None:
        self._loop = loop
        self._context = claim_context

    @property
    def name(self) -> str:
        """Return the name of the claim, which is known before it is made."""
        return self._context.name

    def __enter__(self) -> Box:
        self._loop.enter()
        try:
            return Box(self._loop, self._loop.do(self._context.__aenter__()))
        except BaseException:
            self._leave()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave()

    def _leave(self) -> None:
        try:
            if self._context.is_held:
                self._loop.do(self._context.__aexit__(None, None, None))
        finally:
            self._loop.leave()


class Box:
    """A claimed instance, while its claim lasts."""

    def __init__(self, loop: _Loop, box: AsyncBox) -> None:
        self._loop = loop
        self._box = box
        self.files = Files(loop, box.files)
        self.name = box.name
        self.namespace = box.namespace
        self.instance = box.instance
        self.addresses: list[Address] = box.addresses

    @property
    def expires_at(self) -> datetime.datetime | None:
        """Return when the lease ends. It is renewed automatically."""
        return self._box.expires_at

    def keep(self) -> None:
        """Keep the claim at the end of the block. Clients that know its name can renew and release it."""
        self._box.keep()

    def check(self) -> None:
        """Check with the server that the claim is still held. Raises ClaimLost."""
        self._loop.do(self._box.check())

    def exec(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        timeout: float | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
        container: str = "",
    ) -> Result:
        """Run a command, as the async `Box.exec` does. `on_stdout` and `on_stderr` are called in another thread."""
        return self._loop.do(
            self._box.exec(
                command,
                stdin=stdin,
                env=env,
                cwd=cwd,
                timeout=timeout,
                output_bytes_max=output_bytes_max,
                on_stdout=on_stdout,
                on_stderr=on_stderr,
                container=container,
            )
        )


class Files:
    """The files of an instance, like the async `Files`."""

    def __init__(self, loop: _Loop, files: AsyncFiles) -> None:
        self._loop = loop
        self._files = files

    def of(self, container: str) -> Files:
        """Return the files of another container than the first."""
        return Files(self._loop, self._files.of(container))

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return self._loop.do(self._files.read(path, offset=offset, limit=limit))

    def read_text(self, path: str, *, encoding: str = "utf-8") -> str:
        return self._loop.do(self._files.read_text(path, encoding=encoding))

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        self._loop.do(self._files.write(path, data, mode=mode))

    def write_text(self, path: str, text: str, *, encoding: str = "utf-8", mode: int = 0o644) -> None:
        self._loop.do(self._files.write_text(path, text, encoding=encoding, mode=mode))

    def list(self, path: str = ".") -> list[Entry]:
        return self._loop.do(self._files.list(path))

    def stat(self, path: str) -> Entry:
        return self._loop.do(self._files.stat(path))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        self._loop.do(self._files.remove(path, recursive=recursive))

    def upload(self, source: PathLike, path: str) -> None:
        self._loop.do(self._files.upload(source, path))

    def download(self, path: str, target: PathLike) -> None:
        self._loop.do(self._files.download(path, target))
