"""What a project refers to and nobody has: its objects are made all the same, and wait for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from rota.client import Client
from rota.engine.references import Graph, kind_of
from rota.registry import ApiError

LOOKED_FOR_MAX = 200
"""Objects that a server is asked for. What is beyond says so itself, once it is there: `rota why`."""


class Lacking(NamedTuple):
    """An object that is neither declared nor on the server."""

    id: str
    referrers: list[str]
    """Nodes of those that wait for it."""


async def lacking(client: Client, graph: Graph, declared: Collection[str], doomed: Collection[str]) -> list[Lacking]:
    """What the declared objects refer to and will not find, in the order in which they are declared."""
    targets = dict.fromkeys(edge.target for id_ in declared for edge in graph.references(id_))
    asked = [target for target in targets if target not in declared][:LOOKED_FOR_MAX]
    absent = [target for target in asked if target in doomed or await _is_absent(client, target)]
    return [Lacking(target, graph.referrers(target)) for target in absent]


async def _is_absent(client: Client, id_: str) -> bool:
    """Whether it is known that there is no such object: one may not be allowed to look."""
    kind = kind_of(id_)
    _, namespace, name = id_.split("/", 2)
    if kind is None:
        return False
    try:
        await client.get(kind, name, namespace=namespace or None)
    except ApiError as error:
        return error.code == 404 and bool((error.details or {}).get("name"))
    return False
