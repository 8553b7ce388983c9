"""What there is, and then every change of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from rota.api import Kind
from rota.cli.naming import key
from rota.client import Client
from rota.registry import ApiError

PAGE_ITEMS = 500
GONE = 410

Object = dict[str, Any]
Batch = tuple[list[Object], list[Object]]


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
) -> AsyncGenerator[Batch, None]:
    """Batches of what is new or changed, and of what is gone, beginning with what there is. It does not end.

    When the server has forgotten what came between, the differences are told.
    """
    where: dict[str, Any] = {"namespace": namespace, "labels": labels, "fields": fields}
    last: dict[tuple[str, str], Object] = {}
    while True:
        found, version = await everything(client, kind, **where)
        now = {key(obj): obj for obj in found}
        changed = [obj for at, obj in now.items() if at not in last or _version(last[at]) != _version(obj)]
        yield changed, [obj for at, obj in last.items() if at not in now]
        last = now
        try:
            async with aclosing(_changes(client, kind, version, where)) as batches:
                async for batch in batches:
                    yield batch
                    last.update({key(obj): obj for obj in batch[0]})
                    for obj in batch[1]:
                        last.pop(key(obj), None)
        except ApiError as error:
            if error.code != GONE:
                raise


async def _changes(client: Client, kind: Kind, version: str, where: dict[str, Any]) -> AsyncGenerator[Batch, None]:
    while True:
        # A server ends a watch when it likes; the next one begins where this one stopped.
        changes: Any = client.watch(kind, resource_version=version, bookmarks=True, **where)
        async with aclosing(changes):
            async for change in changes:
                version = change.resource_version
                if change.object is not None:
                    yield ([], [change.object]) if change.type == "DELETED" else ([change.object], [])


def _version(obj: Object) -> Any:
    return obj["metadata"].get("resourceVersion")
