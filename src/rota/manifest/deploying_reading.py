"""Objects as they are, and lists to their last page: who acts on what is not listed must know that it is not there."""

from __future__ import annotations

from typing import Any

from rota.api import Kind
from rota.client import Client
from rota.registry import ApiError

PAGE_ITEMS = 500
PAGES_MAX = 2_000
STARTS_MAX = 3
"""Times that a list is begun again because the server no longer had the rest of it."""
GONE = 410


class ListNotWhole(Exception):  # noqa: N818 - says what the list is
    """There is more than was listed, so nothing can be told from what was not."""


async def find(client: Client, kind: Kind, name: str) -> dict[str, Any] | None:
    """An object of the client's namespace, if it is there. That a server has lost the kind does not mean that."""
    try:
        return await client.get(kind, name)
    except ApiError as error:
        if error.code != 404 or not (error.details or {}).get("name"):
            raise
        return None


async def all_of(client: Client, kind: Kind, labels: str = "", page_items: int = 0) -> list[dict[str, Any]]:
    """All objects of a kind in the client's namespace that have these labels. Raises `ListNotWhole`."""
    for _ in range(STARTS_MAX):
        try:
            return await _pages(client, kind, labels, page_items or PAGE_ITEMS)
        except ApiError as error:
            if error.code != GONE:
                raise
    raise ListNotWhole(f"the list of {kind.plural} changes faster than it can be read; try again")


async def _pages(client: Client, kind: Kind, labels: str, page_items: int) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    continue_ = ""
    for _ in range(PAGES_MAX):
        page = await client.list(kind, labels=labels, limit=page_items, continue_=continue_)
        found |= {obj["metadata"]["name"]: obj for obj in page.items}
        continue_ = page.continue_
        if continue_:
            continue
        if page.remaining:
            break
        return list(found.values())
    raise ListNotWhole(f"there are more {kind.plural} than the server lists")
