"""Expectations of the suite: refusals, and events of a watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import pytest

from rota import ApiError, Client
from rota.api import Kind
from rota.client import Change

Object = dict[str, Any]
PATIENCE_SECONDS = 100.0
"""The patience for something that must come."""


@contextmanager
def refused(code: int, reason: str) -> Iterator[pytest.ExceptionInfo[ApiError]]:
    """The API refuses what is done inside, with this code and reason."""
    with pytest.raises(ApiError) as caught:
        yield caught
    assert (caught.value.code, caught.value.reason) == (code, reason), caught.value.message


def causes(caught: pytest.ExceptionInfo[ApiError]) -> list[tuple[str, str]]:
    """The causes of a refusal: field and reason, sorted."""
    return sorted((cause["field"], cause["reason"]) for cause in caught.value.causes)


class Watching:
    """A watch under way."""

    def __init__(self, changes: AsyncGenerator[Change[Object], None]) -> None:
        self._changes = changes

    async def next(self) -> Change[Object]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await anext(self._changes)

    async def take(self, count: int) -> list[Change[Object]]:
        return [await self.next() for _ in range(count)]

    async def until(self, type_: str, name: str) -> list[Change[Object]]:
        """Everything up to and including this event of this object."""
        seen = [await self.next()]
        while told(seen[-1]) != (type_, name):
            seen.append(await self.next())
        return seen


@asynccontextmanager
async def watching(client: Client, kind: Kind, **options: Any) -> AsyncIterator[Watching]:
    """A watch that is ended when the test has seen enough."""
    changes = cast(AsyncGenerator[Change[Object], None], client.watch(kind, **options))
    try:
        yield Watching(changes)
    finally:
        await changes.aclose()


def told(change: Change[Object]) -> tuple[str, str]:
    """An event as type and name."""
    return change.type, change.object["metadata"]["name"] if change.object else ""


async def gone(client: Client, kind: Kind, name: str) -> None:
    """Wait until an object is gone."""
    await _reached(client, kind, name, lambda obj: obj is None)


async def becomes(client: Client, kind: Kind, name: str, state: Any) -> Object:
    """Wait until an object is there and in a state."""
    obj = await _reached(client, kind, name, lambda obj: obj is not None and state(obj))
    assert obj is not None
    return obj


async def _reached(client: Client, kind: Kind, name: str, state: Any) -> Object | None:
    only = f"metadata.name={name}"
    listed = await client.list(kind, fields=only)
    obj = listed.items[0] if listed.items else None
    async with watching(client, kind, fields=only, resource_version=listed.resource_version) as watch:
        while not state(obj):
            change = await watch.next()
            obj = None if change.type == "DELETED" else change.object
    return obj
