"""Objects as YAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rota.manifest import dumps
from rota.manifest.yaml_text import parse

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    [
        "on",
        "yes",
        "0644",
        "0o7",
        "0x1f",
        "1e3",
        ".5",
        "1_000",
        "null",
        "~",
        "",
        "12:30",
        "2024-01-01",
        "- a",
        "a: b",
        "#",
        "<<",
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


def read(text: str) -> Any:
    (node,), problems = parse(text, "f")
    assert problems == []
    return node.plain()


@given(VALUES)
def test_what_is_written_reads_back_as_the_same(value: Any) -> None:
    assert read(dumps({"x": value})) == {"x": value}


@pytest.mark.parametrize("text", ["on", "no", "0644", "1e3", "0o7", "12:30:45", "2024-01-01"])
def test_tools_that_read_yaml_1_1_read_the_same_text(text: str) -> None:
    assert yaml.safe_load(dumps({"x": text})) == {"x": text}


def test_lines_are_written_as_lines_and_fields_in_their_order() -> None:
    assert dumps({"b": "one\ntwo\n", "a": []}) == "b: |\n  one\n  two\na: []\n"


def test_several_objects_are_several_documents() -> None:
    assert dumps({"a": 1}, {"b": 2}) == "---\na: 1\n---\nb: 2\n"
