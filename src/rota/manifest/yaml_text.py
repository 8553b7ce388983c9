"""YAML: parse text into nodes with positions, and dump objects.

Parsing follows YAML 1.2: only `true` and `false` are booleans, so `on`, `yes` and `off` are strings, and so are times.
A key occurs once in its map. A number with a leading zero is refused, because tools differ on its meaning. Anchors and
`<<` work; expanded values are counted, so that a small text cannot become a large object.

Nodes are built from the parser's events and not by PyYAML's composer, which recurses without a limit.

What `dumps` writes reads back as the same object, here and in tools that still read YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

DEPTH_MAX = 100
NODES_MAX = 500_000
"""Values of one text, aliases expanded."""
DOCUMENTS_MAX = 10_000

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

NULLS = frozenset(("", "~", "null", "Null", "NULL"))
BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
INTEGER = re.compile(r"[-+]?[0-9]+")
BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NOT_A_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
DIGITS_MAX = 400
TAG = "tag:yaml.org,2002:"
TAB = "a tab: YAML is indented with spaces"
NOT_UTF_8 = "it is not UTF-8; save the file as UTF-8"


class Problem(NamedTuple):
    """One problem and its position. Lines and columns count from 1; 0 stands for the whole source."""

    source: str
    line_number: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line_number}:{self.column}" if self.line_number else self.source
        return ": ".join(part for part in (place, self.path, self.message) if part)


@dataclass(slots=True, eq=False)
class Node:
    """One value and its position. A scalar has a `value`, a map has `fields`, a list has `items`."""

    line_number: int
    column: int
    value: Any = None
    fields: dict[str, Node] | None = None
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The line and column of each key of a map."""
    items: list[Node] | None = None
    size: int = 1
    """The number of values in it, aliases expanded."""
    bare: bool = False
    """A scalar without quotes and tag, whose type follows from its text."""

    @property
    def is_null(self) -> bool:
        """True for a null and for a key without a value."""
        return self.value is None and self.fields is None and self.items is None

    def plain(self) -> Any:
        """Return the value as JSON data."""
        if self.fields is not None:
            return {key: inner.plain() for key, inner in self.fields.items()}
        if self.items is not None:
            return [item.plain() for item in self.items]
        return self.value


def reads_as_text(text: str) -> bool:
    """Report whether a string can be written without quotes and reads back as the same string."""
    reader = _Reader("")
    return reader.resolved(text, None) == text and not reader.problems


class _Stop(Exception):  # noqa: N818
    """Stops parsing: the rest of the text cannot be read."""

    def __init__(self, mark: Any, message: str) -> None:
        super().__init__(message)
        self.mark = mark


def parse(text: bytes | str, source: str) -> tuple[list[Node], list[Problem]]:
    """Return the non-empty documents of a text, and its problems. Parsing stops at the first syntax error."""
    reader = _Reader(source)
    try:
        reader.read(text)
    except _Stop as stop:
        reader.report(stop.mark, str(stop))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f"{error.context}, " if error.context else ""
        reader.report(mark, TAB if _is_tab(text, mark) else f"{context}{error.problem}")
    except yaml.reader.ReaderError as error:
        reason = NOT_UTF_8 if "UTF-8" in error.reason else error.reason
        reader.report(_mark(text, error.position), reason)
    return reader.documents, reader.problems


def _mark(text: bytes | str, position: int) -> yaml.Mark:
    """Return the position of an unreadable character."""
    raw = text.encode() if isinstance(text, str) else text
    before = raw[:position]
    return yaml.Mark("", position, before.count(b"\n"), position - before.rfind(b"\n") - 1, None, 0)


def _is_tab(text: bytes | str, mark: Any) -> bool:
    if mark is None:
        return False
    lines = (text if isinstance(text, str) else text.decode("utf-8", "replace")).split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    return line[mark.column : mark.column + 1] == "\t"


class _Reader:
    def __init__(self, source: str) -> None:
        self.documents: list[Node] = []
        self.problems: list[Problem] = []
        self._source = source
        self._anchors: dict[str, Node | None] = {}
        self._nodes = 0

    def report(self, mark: Any, message: str) -> None:
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        self.problems.append(Problem(self._source, line, column, "", message))

    def read(self, text: bytes | str) -> None:
        events = iter(yaml.parse(text, Loader=Loader))
        count = 0
        for event in events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            count += 1
            if count > DOCUMENTS_MAX:
                raise _Stop(event.start_mark, f"more than {DOCUMENTS_MAX} documents: split the file")
            self._anchors = {}
            node = self._node(next(events), events, 0)
            if not node.is_null:
                self.documents.append(node)

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        mark = event.start_mark
        if depth > DEPTH_MAX:
            raise _Stop(mark, f"nested more than {DEPTH_MAX} levels deep")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        node = Node(mark.line + 1, mark.column + 1)
        if event.anchor:
            # An alias within its own anchor would never end.
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node.value = self._scalar(event)
            node.bare = event.implicit[0] and not event.tag
        elif isinstance(event, yaml.SequenceStartEvent):
            self._expect_tag(event, "seq")
            node.items = self._items(events, depth)
            node.size += sum(item.size for item in node.items)
        else:
            self._expect_tag(event, "map")
            self._fill(node, events, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        self._count(1, mark)
        return node

    def _count(self, nodes: int, mark: Any) -> None:
        self._nodes += nodes
        if self._nodes > NODES_MAX:
            raise _Stop(mark, f"more than {NODES_MAX} values, aliases expanded")

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            raise _Stop(event.start_mark, f"no anchor &{event.anchor} before this alias")
        target = self._anchors[event.anchor]
        if target is None:
            raise _Stop(event.start_mark, f"&{event.anchor} contains itself")
        self._count(target.size, event.start_mark)
        return target

    def _items(self, events: Iterator[Any], depth: int) -> list[Node]:
        items: list[Node] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._node(event, events, depth + 1))
        return items

    def _fill(self, node: Node, events: Iterator[Any], depth: int) -> None:
        node.fields = {}
        merged: list[Node] = []
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, events, depth)
            inner = self._node(next(events), events, depth + 1)
            if key is None:
                continue
            if key == "<<" and event.implicit[0]:
                merged += self._merged(inner, event.start_mark)
                continue
            if key in node.fields:
                line, _ = node.keys[key]
                self.report(event.start_mark, f'the key "{key}" is already on line {line}')
                continue
            node.fields[key] = inner
            node.keys[key] = (event.start_mark.line + 1, event.start_mark.column + 1)
            node.size += inner.size
        for other in merged:
            for key, inner in (other.fields or {}).items():
                if key not in node.fields:
                    node.fields[key], node.keys[key] = inner, other.keys[key]
                    node.size += inner.size

    def _key(self, event: Any, events: Iterator[Any], depth: int) -> str | None:
        if isinstance(event, yaml.ScalarEvent):
            if event.implicit[0] and event.value in NULLS:
                self.report(event.start_mark, "a key cannot be empty")
                return None
            return str(event.value)
        key = self._node(event, events, depth + 1)
        if isinstance(event, yaml.AliasEvent) and isinstance(key.value, str):
            return key.value
        self.report(event.start_mark, "a key must be a text")
        return None

    def _merged(self, node: Node, mark: Any) -> list[Node]:
        several = node.items if node.items is not None else [node]
        if any(each.fields is None for each in several):
            self.report(mark, "<< takes a map, or a list of maps")
            return []
        return several

    def _expect_tag(self, event: Any, name: str) -> None:
        if event.tag not in (None, "!", TAG + name):
            self.report(event.start_mark, f"the tag {event.tag} is not supported")

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        tag = event.tag.removeprefix(TAG) if event.tag else ""
        if tag in ("str", "!") or (not tag and not event.implicit[0]):
            return text
        if tag not in ("", "null", "bool", "int", "float"):
            self.report(event.start_mark, f"the tag {event.tag} is not supported")
            return text
        value = self.resolved(text, event.start_mark)
        if tag and type(value).__name__.replace("NoneType", "null") != tag and (tag, type(value)) != ("float", int):
            self.report(event.start_mark, f'"{text}" is no {tag}')
        return value

    def resolved(self, text: str, mark: Any) -> Any:
        """Return the value of a plain scalar in YAML 1.2."""
        if text in NULLS:
            return None
        if text in BOOLEANS:
            return BOOLEANS[text]
        if not (text[0].isdigit() or text[0] in "+-."):
            return text
        if len(text) > DIGITS_MAX:
            return text
        if LEADING_ZERO.fullmatch(text):
            self.report(mark, f'{text} could be octal or decimal: write "{text}" for a text, 0o… for an octal number')
            return text
        if INTEGER.fullmatch(text):
            return int(text)
        if BASED.fullmatch(text):
            return int(text, 0)
        if FLOAT.fullmatch(text):
            return self._finite(text, mark)
        if NOT_A_NUMBER.fullmatch(text):
            self.report(mark, f"{text} cannot be written as JSON")
        return text

    def _finite(self, text: str, mark: Any) -> Any:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            self.report(mark, f"{text} is too large a number")
            return text
        return value


_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]
    """Writes repeated values in full instead of as aliases, for people."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, value: str) -> Any:
    style = "|" if "\n" in value else None if reads_as_text(value) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dumps(*objects: Any) -> str:
    """Return the objects as YAML documents, with their fields in order."""
    text: str = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000, explicit_start=len(objects) > 1
    )
    return text
