"""Explain an unknown name: say which objects exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.api import KINDS, Kind, Namespace
from rota.cli.command import complain
from rota.cli.output import note
from rota.cli.session import CommandError
from rota.cli.usage import did_you_mean, listed
from rota.registry import ApiError
from rota.registry.errors import not_found

if TYPE_CHECKING:
    from rota.client import Client

LISTED_MAX = 500
"""Objects of a kind among which a similar name is searched."""


async def explain_missing(client: Client, error: ApiError) -> None:
    """Extend the error about a missing object by the objects that exist. Other errors stay as they are.

    What cannot be listed, for lack of permission or because the server is away, is left out.
    """
    details = error.details or {}
    kind = next((kind for kind in KINDS.values() if details.get("kind") in (kind.plural, kind.name)), None)
    name = details.get("name")
    if error.code != 404 or kind is None or not name or "\n" in error.message:
        return
    try:
        error.message += await there_are(client, kind, name)
    except (ApiError, OSError):
        return
    except CommandError as no_namespace:
        error.message = str(no_namespace)


async def complain_missing(client: Client, kind: Kind, name: str) -> None:
    """Print on standard error that an object does not exist, and which do."""
    error = not_found(kind, name)
    await explain_missing(client, error)
    complain(error.message)


async def note_nothing_found(client: Client, *, everywhere: bool) -> None:
    """Print on standard error that a list is empty, and whether its namespace is missing."""
    if everywhere:
        note("nothing found")
        return
    try:
        await check_namespace(client)
    except CommandError as no_namespace:
        note(f"nothing found: {no_namespace}")
    else:
        note(f"nothing found in namespace {client.namespace}")


async def there_are(client: Client, kind: Kind, name: str) -> str:
    """Return the end of a message about an unknown name. Raises CommandError if the namespace does not exist."""
    found = (await client.list(kind, limit=LISTED_MAX)).items
    names = [obj["metadata"]["name"] for obj in found]
    if not names and kind.namespaced:
        await check_namespace(client)
    place = f"namespace {client.namespace} has" if kind.namespaced else "there are"
    return f"{did_you_mean(name, names)}\n{place} {listed(names) or f'no {kind.plural}'}"


async def check_namespace(client: Client) -> None:
    """Raise CommandError if the namespace does not exist. Passes if the credential may not read it."""
    try:
        await client.get(Namespace.api, client.namespace)
    except ApiError as error:
        if error.code == 403:
            return
        if error.code != 404:
            raise
        names = [obj["metadata"]["name"] for obj in (await client.list(Namespace.api, limit=LISTED_MAX)).items]
        near = did_you_mean(client.namespace, names)
        raise CommandError(f"there is no namespace {client.namespace}{near}; there are: {listed(names)}") from None
