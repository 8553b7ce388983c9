"""Compare manifests with a server, field by field. Nothing is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from rota.api import KINDS, Kind, Namespace
from rota.cli.following import everything
from rota.cli.output import Part, print_line, printable
from rota.cli.previews import Preview, preview_all, substance
from rota.client import Client
from rota.engine.references import shown
from rota.manifest import Manifest
from rota.manifest.rehearsal import ASSUMED_KINDS, manifest_id
from rota.manifest.rehearsal_server import TRANSIENT_KINDS, ServerState
from rota.registry import ApiError

Object = dict[str, Any]
What = Literal["create", "change", "unchanged"]

WHAT: dict[str, What] = {"created": "create", "configured": "change", "unchanged": "unchanged"}
MARKS: dict[str, Part] = {"create": ("+", "green"), "change": ("~", "yellow")}
NOT_SET = "(not set)"
HIDDEN = "***"
VALUE_LENGTH_MAX = 60
"""Characters of a value that are shown."""
FIELDS_MAX = 40
"""Fields that are shown of one object."""


class FieldChange(Struct, frozen=True, rename="camel"):
    """One field that would change. A value that is not set is null."""

    path: str
    before: Any
    after: Any


class Changed(Struct, frozen=True, rename="camel"):
    """One object of the manifests, and its fields that would change."""

    id: str
    name: str
    what: What
    fields: list[FieldChange]


class Difference(Struct, frozen=True, rename="camel"):
    """The difference between manifests and a server."""

    context: str
    create: int
    change: int
    unchanged: int
    objects: list[Changed]


async def compare(
    client: Client, found: list[Manifest], context: str, *, force: bool
) -> tuple[Difference, ServerState]:
    """Return the difference, and everything on the server that the manifests may depend on."""
    previews = await preview_all(client, found, force=force)
    planned = {manifest_id(one.manifest, client.namespace): one for one in previews}
    objects = [_changed(id_, one) for id_, one in planned.items()]
    create, change, unchanged = (sum(one.what == what for one in objects) for what in WHAT.values())
    namespaces = sorted({namespace for id_ in planned if (namespace := id_.split("/", 2)[1])})
    there, unreadable = await _existing(client, namespaces)
    server = ServerState(there, {id_: one.planned for id_, one in planned.items()}, unreadable)
    return Difference(context, create, change, unchanged, objects), server


async def _existing(client: Client, namespaces: list[str]) -> tuple[dict[str, Object], list[Kind]]:
    """Return the objects of these namespaces and of the whole server, and the kinds that may not be read."""
    there: dict[str, Object] = {}
    unreadable: list[Kind] = []
    for kind in KINDS.values():
        if kind.name in TRANSIENT_KINDS:
            continue
        for namespace in namespaces if kind.namespaced else [""]:
            try:
                items = await _listed(client, kind, namespace, namespaces)
            except ApiError as error:
                if error.code == 403 and kind in ASSUMED_KINDS:
                    unreadable.append(kind)
                elif error.code != 404:
                    raise
                # A cluster need not serve all kinds.
                continue
            for obj in items:
                there[kind.key(namespace, obj["metadata"]["name"])] = {
                    **obj,
                    "apiVersion": kind.api_version,
                    "kind": kind.name,
                }
    return there, unreadable


async def _listed(client: Client, kind: Kind, namespace: str, namespaces: list[str]) -> list[Object]:
    if kind is not Namespace.api:
        return (await everything(client, kind, namespace=namespace))[0]
    found = []
    for name in namespaces:
        try:
            found.append(await client.get(kind, name))
        except ApiError as error:
            if error.code != 404:
                raise
    return found


# Field by field.


def _changed(id_: str, preview: Preview) -> Changed:
    what = WHAT[preview.outcome]
    fields: list[FieldChange] = []
    if what == "change":
        secret = preview.manifest.kind.name == "Secret"
        pairs = _differences(_wanted(preview.live), _wanted(preview.planned), "")
        fields = [FieldChange(path, *(_masked(path, value, secret) for value in values)) for path, *values in pairs]
    return Changed(id_, shown(id_), what, fields)


def _wanted(obj: Object | None) -> Object:
    return substance(obj) if obj else {}


def _differences(before: Any, after: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from _differences(before.get(name), after.get(name), f"{path}.{name}" if path else name)
    elif isinstance(before, list) and isinstance(after, list) and _is_keyed(before) and _is_keyed(after):
        old, new = ({item["name"]: item for item in items} for items in (before, after))
        for name in dict.fromkeys((*old, *new)):
            yield from _differences(old.get(name), new.get(name), f"{path}[{name}]")
        if list(old) != list(new) and old == new:
            yield path, list(old), list(new)
    else:
        yield path, before, after


def _is_keyed(items: list[Any]) -> bool:
    names = [item.get("name") for item in items if isinstance(item, dict)]
    return len(names) == len(items) == len(set(map(str, names))) and None not in names


def _masked(path: str, value: Any, secret: bool) -> Any:
    """Return a value, or a placeholder if it is, or may hold, data of a Secret."""
    plain = not secret or value is None or path.startswith(("metadata.labels", "type", "immutable"))
    return value if plain else HIDDEN


# As text.


def write_difference(difference: Difference) -> None:
    """Print the fields that would change, and how many objects would not."""
    counts = f"{difference.create} to create, {difference.change} to change, {difference.unchanged} unchanged"
    print_line("")
    print_line((f"Against {printable(difference.context)}: ", "bold"), counts)
    for one in difference.objects:
        if one.what == "unchanged":
            continue
        print_line("  ", MARKS[one.what], f" {one.name}")
        for field in one.fields[:FIELDS_MAX]:
            print_line(
                "      ", (field.path, "dim"), "  ", (_text(field.before), "red"), " → ", (_text(field.after), "green")
            )
        if len(one.fields) > FIELDS_MAX:
            print_line("      ", (f"… and {len(one.fields) - FIELDS_MAX} more fields", "dim"))


def _text(value: Any) -> str:
    if value is None:
        return NOT_SET
    text = value if value == HIDDEN else json.dumps(value, ensure_ascii=False)
    return printable(text if len(text) <= VALUE_LENGTH_MAX else f"{text[: VALUE_LENGTH_MAX - 1]}…")
