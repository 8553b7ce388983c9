"""Load manifests from files, folders and standard input, or report all of their problems together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.api import Kind
from rota.manifest.check import check, resolve_kind
from rota.manifest.yaml_text import Node, Problem, parse

SUFFIXES = (".yaml", ".yml", ".json")
"""Suffixes of the files that are read in a folder."""
FILE_BYTES_MAX = 8 * 1024 * 1024
FILES_MAX = 10_000
PROBLEMS_MAX = 200
"""Problems that are printed; the rest are counted."""
STDIN = "-"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object as written, and its position."""

    kind: Kind
    object: dict[str, Any]
    source: str
    line_number: int

    @property
    def name(self) -> str:
        name: str = self.object["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str | None:
        """The namespace in the manifest; None if it names none."""
        namespace: str | None = self.object["metadata"].get("namespace")
        return namespace or None


class ManifestError(Exception):
    """All problems of the manifests."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        more = len(problems) - PROBLEMS_MAX
        lines = [str(problem) for problem in problems[:PROBLEMS_MAX]]
        super().__init__("\n".join([*lines, f"… and {more} more problems"] if more > 0 else lines))
        self.problems = list(problems)


def load(paths: Sequence[str], *, read_stdin: Callable[[], bytes], namespace: str = "") -> list[Manifest]:
    """Load the objects of files, of folders with everything below them, and of standard input for `-`, in order.

    `namespace` applies to objects that name none. Raises `ManifestError` with the problems of all sources.
    """
    found: list[Manifest] = []
    problems: list[Problem] = []
    for path in paths:
        before = len(found) + len(problems)
        for source, text in _texts(path, read_stdin, problems):
            _load_text(text, source, found, problems)
        if before == len(found) + len(problems):
            problems.append(Problem(_display_source(path), 0, 0, "", f"no objects in it{_hint(path)}"))
    problems += _duplicates(found, namespace)
    if problems:
        raise ManifestError(problems)
    return found


def loads(text: bytes | str, source: str) -> list[Manifest]:
    """Load the objects of a text. Raises `ManifestError`."""
    found: list[Manifest] = []
    problems: list[Problem] = []
    _load_text(text, source, found, problems)
    problems += _duplicates(found)
    if problems:
        raise ManifestError(problems)
    return found


def _display_source(path: str) -> str:
    return "stdin" if path == STDIN else path


def _hint(path: str) -> str:
    return f"; files that end in {', '.join(SUFFIXES)} are read" if Path(path).is_dir() else ""


def _texts(path: str, read_stdin: Callable[[], bytes], problems: list[Problem]) -> Iterator[tuple[str, bytes]]:
    if path == STDIN:
        text = read_stdin()
        if len(text) > FILE_BYTES_MAX:
            problems.append(Problem("stdin", 0, 0, "", f"larger than {FILE_BYTES_MAX} bytes"))
        else:
            yield "stdin", text
        return
    for i, file in enumerate(_files(path)):
        if i == FILES_MAX:
            problems.append(Problem(path, 0, 0, "", f"more than {FILES_MAX} files"))
            return
        try:
            text = _read(file)
        except OSError as error:
            problems.append(Problem(file, 0, 0, "", (error.strerror or str(error)).lower()))
        else:
            if len(text) > FILE_BYTES_MAX:
                problems.append(Problem(file, 0, 0, "", f"larger than {FILE_BYTES_MAX} bytes"))
            else:
                yield file, text


def _files(path: str) -> Iterator[str]:
    if not Path(path).is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (str(Path(folder) / n) for n in sorted(files) if n.endswith(SUFFIXES) and not n.startswith("."))


def _read(file: str) -> bytes:
    with Path(file).open("rb") as opened:
        return opened.read(FILE_BYTES_MAX + 1)


def _load_text(text: bytes | str, source: str, found: list[Manifest], problems: list[Problem]) -> None:
    documents, here = parse(text, source)
    for document in documents:
        for node, path in _members(document):
            kind, wrong = resolve_kind(node, source, path)
            if kind is not None:
                wrong = check(kind, node, source, path)
                if not wrong:
                    found.append(Manifest(kind, node.plain(), source, node.line_number))
            here += wrong
    problems += sorted(here, key=lambda problem: (problem.line_number, problem.column))


def _members(document: Node) -> Iterator[tuple[Node, str]]:
    """Yield the objects of a document, or those of a List in it, with their paths."""
    fields = document.fields or {}
    items = fields.get("items")
    is_list = "kind" in fields and fields["kind"].value == "List"
    if is_list and items is not None and items.items is not None:
        yield from ((item, f"items[{i}]") for i, item in enumerate(items.items))
    else:
        yield document, ""


def _duplicates(found: list[Manifest], namespace: str = "") -> list[Problem]:
    first: dict[tuple[str, str, str], Manifest] = {}
    out = []
    for manifest in found:
        place = (manifest.namespace or namespace) if manifest.kind.namespaced else ""
        key = (manifest.kind.name, place, manifest.name)
        known = first.setdefault(key, manifest)
        if known is not manifest:
            message = f'{manifest.kind.name} "{manifest.name}" is also at {known.source}:{known.line_number}'
            out.append(Problem(manifest.source, manifest.line_number, 1, "metadata.name", message))
    return out
