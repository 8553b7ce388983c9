"""Load the project file `rota.yaml`: return the objects that it declares, or report all of its problems together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rota.api.validation import prune
from rota.manifest.check import check
from rota.manifest.load import FILE_BYTES_MAX, Manifest, ManifestError
from rota.manifest.packing import Packed
from rota.manifest.project_code import Code
from rota.manifest.project_environment import Environment
from rota.manifest.project_format import (
    CODE_FIELDS,
    ENTRIES_MAX,
    FILE_NAME,
    NAME_PATTERN,
    NAME_RULE,
    NESTED,
    NESTED_KEYS,
    PROJECT_LABEL,
    SCHEDULES,
    SECTIONS,
    Section,
    keys_of,
)
from rota.manifest.yaml_text import Node, Problem, parse

_NAME = re.compile(NAME_PATTERN.removesuffix("$") + r"\Z")
IN_BRACES = "within { } and [ ] put ${NAME} in quotes, or the value on a line of its own"
_FROM_SPEC = re.compile(r"\bspec\.(target\.)?")


@dataclass(frozen=True, slots=True)
class Project:
    """The content of a project file."""

    name: str
    source: str
    manifests: list[Manifest]
    """The objects, in an order that depends on the file only."""
    packs: dict[str, Packed] = field(default_factory=dict)
    """The code that they refer to, by digest."""
    mentioned: dict[str, int] = field(default_factory=dict)
    """Functions that are named only for their schedules, with their lines."""
    partial: frozenset[str] = frozenset()
    """Functions that declare some fields but no code: they must exist on the server."""
    places: dict[str, Path] = field(default_factory=dict)
    """The path that the code was packed from, by digest."""


def load_project(path: str, environment: Mapping[str, str]) -> Project:
    """Load a project file, or the `rota.yaml` of a folder. Raises `ManifestError` with all problems."""
    file = Path(path) / FILE_NAME if Path(path).is_dir() else Path(path)
    try:
        with file.open("rb") as opened:
            text = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        hint = "; `rota init` writes one, -f names another" if isinstance(error, FileNotFoundError) else ""
        raise ManifestError([Problem(str(file), 0, 0, "", f"{why}{hint}")]) from None
    if len(text) > FILE_BYTES_MAX:
        raise ManifestError([Problem(str(file), 0, 0, "", f"larger than {FILE_BYTES_MAX} bytes")])
    return loads_project(text, str(file), file.parent, environment)


def loads_project(text: bytes | str, source: str, folder: Path, environment: Mapping[str, str]) -> Project:
    """Load a project from a text. Paths in it are relative to the folder."""
    documents, problems = parse(text, source)
    if not problems and len(documents) != 1:
        where = documents[1].line_number if documents else 0
        what = "a project file is one document; remove the ---" if documents else "empty; it begins with name: NAME"
        problems = [Problem(source, where, 1, "", what)]
    if problems:
        raise ManifestError([_with_hint(problem, text) for problem in problems])
    filling = Environment(environment, source)
    filling.fill(documents[0])
    if filling.problems:
        # Later checks would only report consequences of these.
        raise ManifestError(sorted(filling.problems, key=_position))
    return _Compiler(source, folder, filling).compile(documents[0])


def _with_hint(problem: Problem, text: bytes | str) -> Problem:
    """Add a hint to a syntax error on a line with `${`, which YAML reads as the start of a map."""
    lines = (text if isinstance(text, str) else text.decode("utf-8", "replace")).split("\n")
    line = lines[problem.line_number - 1] if 0 < problem.line_number <= len(lines) else ""
    if "flow" not in problem.message or "${" not in line:
        return problem
    return problem._replace(message=f"{problem.message}; {IN_BRACES}")


def _position(problem: Problem) -> tuple[int, int]:
    return problem.line_number, problem.column


@dataclass(slots=True)
class _Entry:
    """One entry of a section."""

    section: Section
    node: Node
    path: str
    name: str
    fields: dict[str, Node]
    """Its fields, without the name and nested schedules."""


class _Compiler:
    def __init__(self, source: str, folder: Path, filling: Environment) -> None:
        self._source = source
        self._filling = filling
        self._code = Code(folder, source)
        self._problems: list[Problem] = self._code.problems
        self._manifests: list[Manifest] = []
        self._schedules: list[Manifest] = []
        self._mentioned: dict[str, int] = {}
        self._partial: set[str] = set()
        self._project = ""

    def compile(self, top: Node) -> Project:
        if top.fields is None:
            raise ManifestError(
                [Problem(self._source, top.line_number, top.column, "", "a project file begins with name:")]
            )
        self._check_keys(top, ["name", *SECTIONS], "")
        self._project = self._name(top, "", {}, "project")
        for name, section in SECTIONS.items():
            first: dict[str, int] = {}
            for path, node in self._items(top, name, ""):
                entry = self._entry(section, node, path, keys_of(name), first)
                if entry is not None and name == "functions":
                    self._function(entry)
                elif entry is not None and name == SCHEDULES:
                    self._schedule(entry, self._target(entry))
                elif entry is not None:
                    self._declare(entry, entry.name, entry.fields)
        if self._problems:
            raise ManifestError(sorted(dict.fromkeys(self._problems), key=_position))
        manifests = [*self._manifests, *self._schedules]
        partial = frozenset(self._partial)
        code = self._code
        return Project(self._project, self._source, manifests, code.packs, self._mentioned, partial, code.places)

    def _report(self, node: Node, path: str, message: str, key: str = "") -> None:
        line, column = node.keys.get(key, (node.line_number, node.column))
        self._problems.append(Problem(self._source, line, column, path, message))

    # Sections and entries.

    def _check_keys(self, node: Node, known: list[str], path: str) -> None:
        for key in node.fields or {}:
            if key not in known:
                near = get_close_matches(key, known, 1, 0.6)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                self._report(node, f"{path}.{key}" if path else key, f"unknown key; {hint}", key)

    def _items(self, node: Node, key: str, path: str) -> list[tuple[str, Node]]:
        """Return the entries below a key, with their paths; none if the key has no value."""
        inner = (node.fields or {}).get(key)
        at = f"{path}.{key}" if path else key
        if inner is None or inner.is_null:
            return []
        if inner.items is None:
            self._report(inner, at, "a list of entries is expected here, each with a name: - name: …")
            return []
        if len(inner.items) > ENTRIES_MAX:
            self._report(inner, at, f"more than {ENTRIES_MAX} entries; split the project")
            return []
        return [(f"{at}[{i}]", item) for i, item in enumerate(inner.items)]

    def _entry(self, section: Section, node: Node, path: str, known: list[str], first: dict[str, int]) -> _Entry | None:
        if node.fields is None:
            self._report(node, path, "an entry is a map with a name: - name: …")
            return None
        self._check_keys(node, known, path)
        name = self._name(node, path, first, section.kind.singular)
        fields = {
            key: self._filling.typed_by(inner, section.properties[key])
            for key, inner in node.fields.items()
            if key in section.properties and key != "name" and not inner.is_null
        }
        missing = [key for key in section.required if key not in fields]
        for key in missing:
            self._report(node, f"{path}.{key}", "required")
        return _Entry(section, node, path, name, fields) if name and not missing else None

    def _name(self, node: Node, path: str, first: dict[str, int], what: str) -> str:
        at = f"{path}.name" if path else "name"
        inner = (node.fields or {}).get("name")
        if inner is None or inner.is_null:
            self._report(node, at, f"required: {NAME_RULE}")
            return ""
        name = self._filling.typed_by(inner, {"type": "string"}).value
        if not isinstance(name, str) or not _NAME.match(name):
            self._report(inner, at, f"{inner.plain()!r}: {NAME_RULE}")
            return ""
        if name in first:
            self._report(inner, at, f'the {what} "{name}" is already on line {first[name]}')
            return ""
        first[name] = inner.line_number
        return name

    # Entries to objects.

    def _function(self, entry: _Entry) -> None:
        node, fields = entry.node, entry.fields
        both = [key for key in NESTED_KEYS if key in (node.fields or {})]
        if len(both) > 1:
            self._report(node, f"{entry.path}.{both[1]}", f"{both[0]} and {both[1]} are the same; use one", both[1])
        first: dict[str, int] = {}
        nested = [at for key in both[:1] for at in self._items(node, key, entry.path)]
        for path, inner in nested:
            schedule = self._entry(NESTED, inner, path, list(NESTED.properties), first)
            if schedule is not None:
                reference = _map(inner, {"name": Node(inner.line_number, inner.column, entry.name)})
                schedule.name = f"{entry.name}.{schedule.name}"
                self._schedule(schedule, {"functionRef": reference})
        if not fields and not nested:
            # Invalid fields have been reported already.
            if all(key == "name" or _is_empty(inner) for key, inner in (node.fields or {}).items()):
                self._report(node, entry.path, "it says nothing: give it entrypoint and path, or schedules")
        elif not fields:
            self._mentioned[entry.name] = node.line_number
        elif any(key in fields for key in CODE_FIELDS):
            self._declare(entry, entry.name, self._code.with_code(node, fields, entry.path))
        else:
            self._partial.add(entry.name)
            self._declare(entry, entry.name, fields, self._code.placeholders(node))

    def _target(self, entry: _Entry) -> dict[str, Node]:
        return {"taskTemplate": entry.fields.pop("taskTemplate")}

    def _schedule(self, entry: _Entry, target: dict[str, Node]) -> None:
        self._declare(entry, entry.name, {**entry.fields, "target": _map(entry.node, target)})

    def _declare(
        self, entry: _Entry, name: str, fields: dict[str, Node], placeholders: dict[str, Node] | None = None
    ) -> None:
        """Add an object if it is valid. `placeholders` are fields for the check only."""
        kind, node = entry.section.kind, entry.node
        whole = self._object(entry, name, {**fields, **(placeholders or {})})
        found = check(kind, whole, self._source, entry.path)
        if found:
            self._problems += [_in_file_terms(problem, entry.path) for problem in found]
            return
        obj: dict[str, Any] = self._object(entry, name, fields).plain()
        prune(entry.section.spec, obj["spec"], "spec", [])
        declared = self._schedules if kind is NESTED.kind else self._manifests
        declared.append(Manifest(kind, obj, self._source, node.line_number))

    def _object(self, entry: _Entry, name: str, fields: dict[str, Node]) -> Node:
        kind, node = entry.section.kind, entry.node
        label = _map(node, {PROJECT_LABEL: _scalar(node, self._project)})
        meta = _map(node, {"name": _scalar((node.fields or {})["name"], name), "labels": label})
        top = {"apiVersion": _scalar(node, kind.api_version), "kind": _scalar(node, kind.name), "metadata": meta}
        return _map(node, {**top, "spec": _map(node, fields)})


def _is_empty(node: Node) -> bool:
    return node.is_null or node.items == []


def _scalar(at: Node, value: str) -> Node:
    return Node(at.line_number, at.column, value)


def _map(at: Node, fields: dict[str, Node]) -> Node:
    """Return a map at the position of another node, which is also the position of keys that it does not have."""
    keys = {key: at.keys.get(key, (at.line_number, at.column)) for key in fields}
    return Node(at.line_number, at.column, None, fields, keys, None, 1 + sum(inner.size for inner in fields.values()))


def _in_file_terms(problem: Problem, prefix: str) -> Problem:
    """Return a problem of an object with its path in the project file."""
    below = problem.path.removeprefix(prefix).removeprefix(".")
    below = _FROM_SPEC.sub("", below, count=1).removeprefix("metadata.")
    path = prefix if below in ("", "spec") else f"{prefix}.{below}"
    return problem._replace(path=path, message=_FROM_SPEC.sub("", problem.message))
