"""Expand `${NAME}` in a project file with environment variables.

Only values are expanded, not keys or comments. `$$` stands for `$`; a `$` before anything else stands for itself. An
unset variable is reported with its position, because an empty value would cause harm unnoticed.

Expanded text is not expanded again. A quoted value stays a string. An unquoted one is read as if it had been written
there, so `replicas: ${REPLICAS}` is a number; where the field is a string it stays a string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rota.api.schema import PRESERVE, Schema
from rota.manifest.load import FILE_BYTES_MAX
from rota.manifest.yaml_text import Node, Problem, parse, reads_as_text

_USE = re.compile(r"\$(\$|\{([^}]*)\}?)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Environment:
    """Expands the values of one file."""

    def __init__(self, values: Mapping[str, str], source: str) -> None:
        self._values = values
        self._source = source
        self._texts: dict[Node, str] = {}
        self._bytes = 0
        self.problems: list[Problem] = []

    def fill(self, top: Node) -> None:
        """Expand all values in place, and collect problems in `problems`."""
        expanded: set[Node] = set()
        work: list[tuple[Node, str]] = [(top, "")]
        while work:
            node, path = work.pop()
            # All aliases of an anchor share one node.
            if node in expanded:
                continue
            expanded.add(node)
            work += [(inner, at) for inner, at in _inside(node, path)]
            if isinstance(node.value, str) and "$" in node.value:
                self._fill_value(node, path)

    def _fill_value(self, node: Node, path: str) -> None:
        parts: list[str] = []
        end = 0
        for use in _USE.finditer(node.value):
            parts.append(node.value[end : use.start()])
            parts.append(self._value(use, node, path))
            end = use.end()
        text = "".join([*parts, node.value[end:]])
        self._bytes += len(text)
        if self._bytes > FILE_BYTES_MAX:
            self._report(node, path, f"with the environment's values the file has more than {FILE_BYTES_MAX} bytes")
            return
        if node.bare:
            self._texts[node] = text
            node.value = _as_yaml(text)
        else:
            node.value = text

    def _value(self, use: re.Match[str], node: Node, path: str) -> str:
        if use[1] is None:
            return "$"
        if use[1] == "$":
            return "$"
        name = use[2]
        if not use[0].endswith("}") or not _NAME.fullmatch(name):
            self._report(node, path, f"{use[0]} names no variable; write ${{NAME}}, or $${{ for the text ${{")
            return ""
        if name not in self._values:
            self._report(node, path, f"the environment variable {name} is not set; set it, or write $${{ for ${{")
            return ""
        value = self._values[name]
        if not _is_unicode(value):
            self._report(node, path, f"the environment variable {name} holds bytes that are not UTF-8")
            return ""
        return value

    def _report(self, node: Node, path: str, message: str) -> None:
        self.problems.append(Problem(self._source, node.line_number, node.column, path, message))

    # Types.

    def typed_by(self, node: Node, schema: Schema) -> Node:
        """Return a node typed by a schema: expanded values become strings where it wants strings, nulls are dropped."""
        text = self._texts.get(node)
        if text is not None:
            wants_text = schema.get("type") == "string" and not schema.get("x-kubernetes-int-or-string")
            return Node(node.line_number, node.column, text) if wants_text else node
        if schema.get(PRESERVE):
            return node
        if node.fields is not None:
            known, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
            # Unknown fields stay, so that they are reported.
            written = {
                name: inner for name, inner in node.fields.items() if not (inner.is_null and (rest or name in known))
            }
            fields = {name: self.typed_by(inner, known.get(name, rest)) for name, inner in written.items()}
            return Node(node.line_number, node.column, None, fields, node.keys, None, node.size)
        if node.items is not None:
            items = [self.typed_by(inner, schema.get("items", {})) for inner in node.items]
            return Node(node.line_number, node.column, None, None, {}, items, node.size)
        return node


def _as_yaml(text: str) -> Any:
    """Return the value of an unquoted text in YAML; the text itself if YAML refuses it or reads null."""
    if not text or reads_as_text(text):
        return text
    documents, problems = parse(text, "")
    return documents[0].value if documents and not problems and documents[0].value is not None else text


def _is_unicode(text: str) -> bool:
    """Report whether an environment value is valid Unicode. Python turns other bytes into lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _inside(node: Node, path: str) -> Iterator[tuple[Node, str]]:
    for name, inner in (node.fields or {}).items():
        yield inner, f"{path}.{name}" if path else name
    for i, item in enumerate(node.items or ()):
        yield item, f"{path}[{i}]"
