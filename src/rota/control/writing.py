"""Writes of controllers that somebody else may have been faster with."""

from __future__ import annotations

from collections.abc import Awaitable

from rota.registry import ApiError


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
