"""List objects, and follow their changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Any

from rota.api import Kind
from rota.cli.naming import key
from rota.cli.patience import Patience
from rota.client import ALL_NAMESPACES, Client, ConnectionFailed
from rota.registry import ApiError

PAGE_ITEMS = 500
GONE = 410

Object = dict[str, Any]
Key = tuple[str, str]
"""A namespace and a name."""
Batch = tuple[list[Object], list[Object]]


async def everything(
    client: Client, kind: Kind, *, namespace: str | None, labels: str = "", fields: str = ""
) -> tuple[list[Object], str]:
    """Return all objects that are selected, and the resource version to watch from."""
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
    client: Client,
    kind: Kind,
    *,
    namespace: str | None,
    labels: str = "",
    fields: str = "",
    patience: Patience | None = None,
) -> AsyncGenerator[Batch, None]:
    """Yield batches of new or changed objects and of deleted ones, beginning with what exists. Does not end.

    When the server has lost the history in between, the differences are yielded; with patience, also after it was away.
    """
    where: dict[str, Any] = {"namespace": namespace, "labels": labels, "fields": fields}
    last: dict[Key, Object] = {}
    while True:
        try:
            found, version = await everything(client, kind, **where)
        except (ApiError, ConnectionFailed) as error:
            if patience is None or not patience.has_answered:
                raise
            await patience.wait_to_retry(error)
            continue
        if patience is not None:
            patience.record_answer()
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
        except (ApiError, ConnectionFailed) as error:
            if isinstance(error, ApiError) and error.code == GONE:
                continue
            if patience is None:
                raise
            await patience.wait_to_retry(error)


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


async def follow_named(
    client: Client, kind: Kind, keys: Collection[Key]
) -> AsyncGenerator[tuple[Key, Object | None], None]:
    """Yield each of these objects, and again after each change; None for one that does not exist.

    One watch serves all of them.
    """
    namespaces = {namespace for namespace, _ in keys}
    namespace = namespaces.pop() if len(namespaces) == 1 else ALL_NAMESPACES
    fields = f"metadata.name={next(iter(keys))[1]}" if len(keys) == 1 else ""
    first = True
    async with aclosing(follow(client, kind, namespace=namespace, fields=fields)) as batches:
        async for changed, gone in batches:
            now: dict[Key, Object | None] = {key(obj): None for obj in gone}
            now.update({key(obj): obj for obj in changed})
            for each in keys if first else now:
                if each in keys:
                    yield each, now.get(each)
            first = False


def key_in(client: Client, kind: Kind, name: str, namespace: str | None = None) -> Key:
    """Return the namespace and name of an object."""
    return (namespace or client.namespace if kind.namespaced else "", name)
