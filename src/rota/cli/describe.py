"""`rota describe`."""

from __future__ import annotations

import time
from typing import Any

from rota.api import KINDS, Event, Kind
from rota.api.table import age, last_occurrence, rows
from rota.cli.command import command
from rota.cli.following import everything
from rota.cli.missing_names import note_nothing_found
from rota.cli.naming import targets
from rota.cli.options import AllNamespaces, Selector, Targets
from rota.cli.output import Columns, print_line, printable, style_of
from rota.cli.session import Session, bad_usage
from rota.client import ALL_NAMESPACES, Client

Object = dict[str, Any]

SHOWN_APART = ("apiVersion", "kind", "metadata", "status")
VALUE_LENGTH_MAX = 2000


@command
async def describe(
    session: Session, which: Targets = None, selector: Selector = "", all_namespaces: AllNamespaces = False
) -> None:
    """Show all that is known of objects: fields, conditions and events."""
    wanted = targets(which or [])
    if wanted[0].name and (selector or all_namespaces):
        raise bad_usage("a name does not go with --selector or --all-namespaces")
    namespace = ALL_NAMESPACES if all_namespaces else None
    async with session.client() as client:
        found: list[tuple[Kind, Object]] = []
        for kind, name in wanted:
            if name:
                found.append((kind, await client.get(kind, name)))
            else:
                objects, _ = await everything(client, kind, namespace=namespace, labels=selector)
                found += [(kind, obj) for obj in objects]
        if not found:
            await note_nothing_found(client, everywhere=all_namespaces)
        for i, (kind, obj) in enumerate(found):
            if i:
                print_line("\n")
            _describe(kind, obj, await events_of(client, kind, obj))


async def events_of(client: Client, kind: Kind, obj: Object) -> list[Object]:
    """Return the events of an object, oldest first."""
    if kind.name == "Event":
        return []
    meta = obj["metadata"]
    about = f"involvedObject.kind={kind.name},involvedObject.name={meta['name']}"
    if uid := meta.get("uid"):
        about += f",involvedObject.uid={uid}"
    found, _ = await everything(client, Event.api, namespace=meta.get("namespace", ALL_NAMESPACES), fields=about)
    return sorted(found, key=last_occurrence)


def _describe(kind: Kind, obj: Object, events: list[Object]) -> None:
    now = time.time()
    meta = obj["metadata"]
    _fields({"name": meta["name"], **({"namespace": meta["namespace"]} if "namespace" in meta else {})}, "")
    _fields({"kind": f"{kind.name}, {kind.api_version}"}, "")
    if created := meta.get("creationTimestamp"):
        _fields({"created": f"{created} ({age(created, now)} ago)"}, "")
    if deleted := meta.get("deletionTimestamp"):
        _fields({"deleting": f"since {deleted} ({age(deleted, now)})", "held by": meta.get("finalizers", [])}, "")
    owners = [f"{owner['kind']}/{owner['name']}" for owner in meta.get("ownerReferences", [])]
    _fields({"owners": owners, **{name: meta.get(name) for name in ("labels", "annotations", "finalizers")}}, "")
    _fields({name: _hidden(kind, name, value) for name, value in obj.items() if name not in SHOWN_APART}, "")
    status = dict(obj.get("status") or {})
    conditions = status.pop("conditions", [])
    _fields({"status": status}, "")
    if conditions:
        print_line(("conditions:", "bold"))
        table = Columns(["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"])
        table.write([_condition(condition, now) for condition in conditions], "  ")
    if events:
        print_line(("events:", "bold"))
        table = Columns(["LAST SEEN", "TYPE", "REASON", "COUNT", "MESSAGE"])
        names = [column["name"].upper() for column in rows(KINDS["Event"], [], now)["columnDefinitions"]]
        cells = [dict(zip(names, row["cells"], strict=True)) for row in rows(KINDS["Event"], events, now)["rows"]]
        table.write([[c[name] for name in ("LAST SEEN", "TYPE", "REASON", "COUNT", "MESSAGE")] for c in cells], "  ")


def _condition(condition: Object, now: float) -> list[Any]:
    since = condition.get("lastTransitionTime")
    shown = [condition.get(name, "") for name in ("type", "status", "reason")]
    return [*shown, age(since, now) if since else "", condition.get("message", "")]


def _hidden(kind: Kind, name: str, value: Any) -> Any:
    """Replace the values of a Secret by their lengths."""
    if kind.name == "Secret" and name in ("data", "stringData") and isinstance(value, dict):
        return {key: f"{len(inner)} characters" for key, inner in value.items()}
    return value


def _fields(fields: Object, indent: str) -> None:
    """Print fields, one a line, nested ones indented. Empty ones are left out."""
    for name, value in fields.items():
        if value is None or value in ({}, []):
            continue
        title = (f"{indent}{printable(name)}:", "bold")
        if isinstance(value, dict | list):
            print_line(title)
            _inside(value, indent + "  ")
        else:
            _scalar(title, value, indent)


def _inside(value: Any, indent: str) -> None:
    if isinstance(value, dict):
        _fields(value, indent)
        return
    for item in value:
        _item(item, indent)


def _item(item: Any, indent: str) -> None:
    if not isinstance(item, dict):
        print_line(f"{indent}- {_text(item)}")
        return
    for i, (name, value) in enumerate(item.items()):
        mark = "- " if i == 0 else "  "
        if isinstance(value, dict | list):
            print_line((f"{indent}{mark}{printable(name)}:", "bold"))
            inner = indent + "    "
            _inside(value, inner)
        else:
            _scalar((f"{indent}{mark}{printable(name)}:", "bold"), value, indent + "  ")


def _scalar(title: tuple[str, str], value: Any, indent: str) -> None:
    text = _text(value)
    lines = str(value).splitlines() if isinstance(value, str) else []
    if len(lines) > 1:
        print_line(title)
        for each in lines:
            print_line(f"{indent}  {printable(each)}")
    else:
        print_line(title, " ", (text, style_of(text)))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = printable(str(value).strip() if isinstance(value, str) else str(value))
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}… ({len(text)} characters)"
