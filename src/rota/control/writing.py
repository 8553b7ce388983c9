"""Writes of controllers that may conflict with another writer."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar, cast

from rota.api import Object
from rota.engine import Context
from rota.registry import ApiError

T = TypeVar("T", bound=Object)


async def unless_overtaken(writing: Awaitable[object]) -> None:
    """Await a write, and ignore a conflict: the watch event of the other write wakes the controller again."""
    try:
        await writing
    except ApiError as error:
        if not error.is_overtaken:
            raise


async def find_fresh(context: Context, type_: type[T], name: str, namespace: str) -> T | None:
    """Read an object from the server. For decisions that a lagging cache could get wrong for good."""
    kind: Any = type_
    try:
        return cast("T", await context.client.get(kind, name, namespace=namespace))
    except ApiError as error:
        if error.code == 404:
            return None
        raise
