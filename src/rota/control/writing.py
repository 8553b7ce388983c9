"""Writes of controllers that may conflict with another writer."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar, cast

from rota.api import Object
from rota.engine import Context
from rota.registry import ApiError

T = TypeVar("T", bound=Object)


def is_overtaken(error: ApiError) -> bool:
    """Report whether a write conflicted: the object exists, has changed or is gone, or its namespace is terminating.

    The watch event of the other write wakes the controller again.
    """
    causes = (error.details or {}).get("causes", ())
    return error.code in (404, 409) or any(one.get("reason") == "NamespaceTerminating" for one in causes)


async def unless_overtaken(writing: Awaitable[object]) -> None:
    """Await a write, and ignore a conflict."""
    try:
        await writing
    except ApiError as error:
        if not is_overtaken(error):
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
