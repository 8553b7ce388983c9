"""Lookups of a deploy: single objects, complete lists, and references that nothing satisfies.

A list is complete or it fails: a deploy acts on what is not listed, so it must know that it does not exist.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from rota.api import Kind
from rota.client import Client
from rota.engine.references import Graph, kind_of
from rota.registry import ApiError

PAGE_ITEMS = 500
PAGES_MAX = 2_000
STARTS_MAX = 3
"""Attempts to read a list whose continuation expired."""
HTTP_GONE = 410


class IncompleteList(Exception):  # noqa: N818 - says what the list is
    """The server did not return a complete list, so an object missing from it may exist."""


async def find(client: Client, kind: Kind, name: str) -> dict[str, Any] | None:
    """Return an object of the client's namespace, or None. Raises ApiError if the server does not serve the kind."""
    try:
        return await client.get(kind, name)
    except ApiError as error:
        if error.code != 404 or not (error.details or {}).get("name"):
            raise
        return None


async def list_all(client: Client, kind: Kind, labels: str = "", page_items: int = 0) -> list[dict[str, Any]]:
    """Return all objects of a kind in the client's namespace with these labels. Raises `IncompleteList`."""
    for _ in range(STARTS_MAX):
        try:
            return await _pages(client, kind, labels, page_items or PAGE_ITEMS)
        except ApiError as error:
            if error.code != HTTP_GONE:
                raise
    raise IncompleteList(f"the list of {kind.plural} changes faster than it can be read; try again")


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
    raise IncompleteList(f"there are more {kind.plural} than the server lists")


LOOKUPS_MAX = 200
"""References that are looked up. The rest show up once deployed, in `rota why`."""


class MissingReference(NamedTuple):
    """A referenced object that is neither declared nor on the server. The deploy goes on; its referrers wait for it."""

    id: str
    referrers: list[str]
    """The ids of the objects that refer to it."""


async def find_missing_references(
    client: Client, graph: Graph, declared: Collection[str], doomed: Collection[str]
) -> list[MissingReference]:
    """Return the references of declared objects to objects that will not exist, in the order of the declarations."""
    targets = dict.fromkeys(edge.target for id_ in declared for edge in graph.references(id_))
    asked = [target for target in targets if target not in declared][:LOOKUPS_MAX]
    absent = [target for target in asked if target in doomed or await _is_absent(client, target)]
    return [MissingReference(target, graph.referrers(target)) for target in absent]


async def _is_absent(client: Client, id_: str) -> bool:
    """Report whether an object certainly does not exist; False if reading it is not allowed."""
    kind = kind_of(id_)
    _, namespace, name = id_.split("/", 2)
    if kind is None:
        return False
    try:
        await client.get(kind, name, namespace=namespace or None)
    except ApiError as error:
        return error.code == 404 and bool((error.details or {}).get("name"))
    return False
