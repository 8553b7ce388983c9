from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rota import Client
from rota.api import KINDS
from rota.cli import main
from rota.cli.session import MANAGER, Settings
from rota.registry import Registry
from rota.store import SqliteStore
from tests.until import until_async

Object = dict[str, Any]


class Ran(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """The words of each line of the output."""
        return [line.split() for line in self.out.splitlines()]


Meanwhile = Callable[[Client, io.StringIO], Coroutine[Any, Any, None]]
"""Acts while a command runs, with a view of the screen."""


class Terminal:
    """Runs commands against a registry of its own, which is kept in a file between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *argv: str, stdin: str = "", meanwhile: Meanwhile | None = None) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        known, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin.encode()))

        @contextlib.asynccontextmanager
        async def connect(settings: Settings) -> AsyncIterator[Client]:
            async with self._client(settings.namespace) as client:
                beside = asyncio.create_task(meanwhile(client, out)) if meanwhile else None
                yield client
                if beside is not None:
                    await beside

        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(argv, connect=connect)
        finally:
            sys.stdin = known
        return Ran(code, out.getvalue(), err.getvalue())

    @contextlib.asynccontextmanager
    async def _client(self, namespace: str | None) -> AsyncIterator[Client]:
        store = SqliteStore(self.folder / "rota.db")
        registry = Registry(store)
        await registry.start()
        try:
            yield Client.local(registry, manager=MANAGER, namespace=namespace or "default")
        finally:
            await registry.stop()
            await store.close()

    def act(self, act: Callable[[Client], Awaitable[Any]]) -> Any:
        """Do something with a client between two commands."""

        async def acting() -> Any:
            async with self._client(None) as client:
                return await act(client)

        return asyncio.run(acting())

    def write(self, name: str, text: str) -> str:
        """A file with this text; returns its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def stored(self, kind: str, name: str, namespace: str = "default") -> Object:
        found: Object = self.act(lambda client: client.get(KINDS[kind], name, namespace=namespace))
        return found


async def until(screen: io.StringIO, text: str) -> None:
    """Go on when this is on the screen."""
    await until_async(lambda: text in screen.getvalue(), screen.getvalue, poll_seconds=0.001)


@pytest.fixture
def rota(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def pool(name: str = "agents", namespace: str = "default", **spec: Any) -> Object:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"worker": {"type": "shell"}, **spec},
    }
