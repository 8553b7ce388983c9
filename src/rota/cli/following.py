"""What there is, and then every change of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from rota.api import Kind
from rota.cli.naming import key
from rota.client import Client
from rota.registry import ApiError

PAGE_ITEMS = 500
GONE = 410

Object = dict[str, Any]
Known = dict[tuple[str, str], str]


async def everything(
    client: Client, kind: Kind, *, namespace: str | None, labels: str = "", fields: str = ""
) -> tuple[list[Object], str]:
    """All objects of a kind that are selected, and the version to watch from."""
    found: list[Object] = []
    continue_ = ""
    while True:
        page = await client.list(
            kind, namespace=namespace, labels=labels, fields=fields, limit=PAGE_ITEMS, continue_=continue_
        )
        found += page.items
        continue_ = page.continue_
        if not continue_:
            return found, page.resource_version


async def follow(
    client: Client, kind: Kind, *, namespace: str | None, labels: str = "", fields: str = ""
) -> AsyncIterator[tuple[list[Object], list[Object]]]:
    """Batches of what is new or changed, and of what is gone, beginning with what there is. It does not end.

    When the server has forgotten what came between, the differences are told.
    """
    where: dict[str, Any] = {"namespace": namespace, "labels": labels, "fields": fields}
    known: Known = {}
    last: dict[tuple[str, str], Object] = {}
    while True:
        found, version = await everything(client, kind, **where)
        now = {key(obj): obj for obj in found}
        changed = [obj for at, obj in now.items() if known.get(at) != obj["metadata"]["resourceVersion"]]
        yield changed, [obj for at, obj in last.items() if at not in now]
        last = now
        known = {at: obj["metadata"]["resourceVersion"] for at, obj in now.items()}
        try:
            async for batch in _changes(client, kind, version, where):
                yield batch
                for obj in batch[0]:
                    last[key(obj)], known[key(obj)] = obj, obj["metadata"]["resourceVersion"]
                for obj in batch[1]:
                    last.pop(key(obj), None)
                    known.pop(key(obj), None)
        except ApiError as error:
            if error.code != GONE:
                raise


async def _changes(
    client: Client, kind: Kind, version: str, where: dict[str, Any]
) -> AsyncIterator[tuple[list[Object], list[Object]]]:
    while True:
        # A server ends a watch when it likes; the next one begins where this one stopped.
        async for change in client.watch(kind, resource_version=version, bookmarks=True, **where):
            version = change.resource_version
            if change.object is not None:
                yield ([], [change.object]) if change.type == "DELETED" else ([change.object], [])
