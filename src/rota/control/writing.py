"""Writes of controllers that somebody else may have been faster with."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar, cast

from rota.api import Object
from rota.engine import Context
from rota.registry import ApiError

T = TypeVar("T", bound=Object)


def is_overtaken(error: ApiError) -> bool:
    """Report whether a write came too late: the object is there, has changed or is gone, or its namespace is going.

    The news of that brings the next look.
    """
    causes = (error.details or {}).get("causes", ())
    return error.code in (404, 409) or any(one.get("reason") == "NamespaceTerminating" for one in causes)


async def unless_overtaken(writing: Awaitable[object]) -> None:
    """Write something that another run may have written."""
    try:
        await writing
    except ApiError as error:
        if not is_overtaken(error):
            raise


async def find_fresh(context: Context, type_: type[T], name: str, namespace: str) -> T | None:
    """Return an object as the server has it now: for what cannot be made good if it is there after all."""
    kind: Any = type_
    try:
        return cast("T", await context.client.get(kind, name, namespace=namespace))
    except ApiError as error:
        if error.code == 404:
            return None
        raise
