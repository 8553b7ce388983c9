"""Print objects in the formats of `-o`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from rota.api import Kind
from rota.api.jsonpath import JSONPathError, Path, Template, shown
from rota.api.table import rows
from rota.cli.naming import reference
from rota.cli.output import Columns, print_line
from rota.cli.session import bad_usage

Object = dict[str, Any]
FORMATS = "wide, json, yaml, name, jsonpath=TEMPLATE, custom-columns=HEADING:PATH,…"
NAMES = ("", "wide", "json", "yaml", "name", "jsonpath", "custom-columns")


class KindGroup(NamedTuple):
    """Objects of one kind."""

    kind: Kind
    objects: list[Object]


class Format(NamedTuple):
    """A format: its name, and the argument after the `=`."""

    name: str
    argument: str = ""

    @property
    def is_table(self) -> bool:
        return self.name in ("table", "wide", "custom-columns")


def format_named(text: str) -> Format:
    """Return the format that `-o` names. Raises CommandError."""
    name, equals, argument = text.partition("=")
    takes_argument = name in ("jsonpath", "custom-columns")
    if takes_argument != bool(argument) or name not in NAMES:
        raise bad_usage(f"-o {text}: there are {FORMATS}")
    if equals and not takes_argument:
        raise bad_usage(f"-o {text}: {name} takes no argument")
    found = Format(name or "table", argument)
    if name == "jsonpath":
        _template(argument)
    elif name == "custom-columns":
        _custom(argument)
    return found


def without_managed_fields(obj: Object) -> Object:
    """Return an object without its managed fields, which are long and for programs."""
    meta = obj.get("metadata", {})
    return {**obj, "metadata": {name: value for name, value in meta.items() if name != "managedFields"}}


def listed(objects: list[Object]) -> Object:
    """Return objects as a List."""
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": objects}


def write_document(value: Any, format_: Format) -> None:
    """Print one object, or a List."""
    if format_.name == "json":
        print_line(json.dumps(value, indent=4, ensure_ascii=False))
    elif format_.name == "yaml":
        from rota.manifest import dumps

        print_line(dumps(value).rstrip("\n"))
    else:
        print_line(_template(format_.argument).render(value))


def write_names(groups: Sequence[KindGroup]) -> None:
    for kind, objects in groups:
        for obj in objects:
            print_line(reference(kind, obj["metadata"]["name"]))


def _template(text: str) -> Template:
    try:
        return Template(text)
    except JSONPathError as error:
        raise bad_usage(f"-o jsonpath={text}: {error}") from None


class TableOf:
    """The table of a kind. Rows can be added as objects change."""

    def __init__(self, kind: Kind, format_: Format, *, with_namespace: bool = False, with_kind: bool = False) -> None:
        self._kind = kind
        self._custom = _custom(format_.argument) if format_.name == "custom-columns" else None
        self._namespace = with_namespace and self._custom is None
        self._prefix = reference(kind, "") if with_kind else ""
        definitions = rows(kind, [], 0)["columnDefinitions"]
        self._shown = [i for i, d in enumerate(definitions) if format_.name == "wide" or not d["priority"]]
        self._name = next((i for i, d in enumerate(definitions) if d["format"] == "name"), None)
        heading = [definitions[i]["name"].upper() for i in self._shown]
        if self._custom is not None:
            heading = [title for title, _ in self._custom]
        self._columns = Columns(["NAMESPACE", *heading] if self._namespace else heading)

    def write(self, objects: list[Object]) -> None:
        if self._custom is not None:
            self._columns.write([[_found(path, obj) for _, path in self._custom] for obj in objects])
            return
        out = []
        for row in rows(self._kind, objects, time.time())["rows"]:
            cells = row["cells"]
            if self._prefix and self._name is not None:
                cells[self._name] = self._prefix + cells[self._name]
            chosen = [cells[i] for i in self._shown]
            out.append([row["object"]["metadata"].get("namespace", ""), *chosen] if self._namespace else chosen)
        self._columns.write(out)


def _custom(text: str) -> list[tuple[str, Path]]:
    out = []
    for part in text.split(","):
        title, colon, path = part.partition(":")
        if not title or not colon or not path:
            raise bad_usage(f'custom-columns: "{part}" is not HEADING:PATH, such as NAME:.metadata.name')
        try:
            out.append((title, Path(path.strip("{}"))))
        except JSONPathError as error:
            raise bad_usage(f"custom-columns: {error}") from None
    return out


def _found(path: Path, obj: Object) -> str:
    return ",".join(map(shown, path.find(obj)))
