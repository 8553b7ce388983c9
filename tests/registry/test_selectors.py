"""Label and field selectors, read as Kubernetes reads them, in time that grows with their length only."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from rota import ApiError
from rota.api import Task
from rota.registry.selectors import LazyObject, Selection, parse_fields, parse_labels


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ("", {}, True),
        ("a", {"a": "1"}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("! a", {"a": ""}, False),
        ("a=1", {"a": "1"}, True),
        ("a==1", {"a": "2"}, False),
        ("a=", {"a": ""}, True),
        ("a!=1", {}, True),
        ("a != 1", {"a": "1"}, False),
        ("a in (1, 2)", {"a": "2"}, True),
        ("a in (1,)", {"a": ""}, True),
        ("a notin (1,2)", {"a": "3"}, True),
        ("a notin (1,2)", {}, True),
        ("a notin (1,2)", {"a": "1"}, False),
        ("a>1", {"a": "2"}, True),
        ("a<1", {"a": "-2"}, True),
        ("a>1", {"a": "x"}, False),
        ("a>1", {"a": "9" * 25}, False),
        ("a=1,b in (2)", {"a": "1", "b": "2"}, True),
        ("example.com/a=1", {"example.com/a": "1"}, True),
        ("in=1", {"in": "1"}, True),
    ],
)
def test_label_selectors(selector: str, labels: dict[str, str], matches: bool) -> None:
    assert all(term.matches(labels) for term in parse_labels(selector)) == matches


@pytest.mark.parametrize(
    "selector",
    [
        ",",
        "a,",
        "a,,b",
        "a=b,",
        "a in ()",
        "a notin ()",
        "a in (1",
        "a in 1",
        "a in (1 2)",
        "a in ((1)",
        "a=b=c",
        "a>x",
        "a>" + "9" * 25,
        "n>" + "9" * 5000,
        "=1",
        "!",
        "!a=1",
        "a~b",
        "a=b c",
        "/a",
        "a/",
        "-a",
        "a=" + "b" * 64,
    ],
)
def test_label_selectors_that_make_no_sense_are_refused(selector: str) -> None:
    with pytest.raises(ApiError) as refusal:
        parse_labels(selector)
    assert refusal.value.code == 400


@pytest.mark.parametrize("selector", ["spec.cancel=true", "metadata.name", "status.phase~x", "=a"])
def test_field_selectors_that_make_no_sense_are_refused(selector: str) -> None:
    with pytest.raises(ApiError) as refusal:
        parse_fields(Task.api, selector)
    assert refusal.value.code == 400


def test_field_selectors_compare_texts() -> None:
    selection = Selection(Task.api, "", "status.phase!=Failed,,metadata.name=a")
    value = b'{"metadata":{"name":"a"},"status":{"phase":"Running"}}'
    assert selection.matches("tasks.rota.dev/default/a", LazyObject(value))
    assert not selection.matches("tasks.rota.dev/default/b", LazyObject(value))
    failed = LazyObject(b'{"metadata":{"name":"a"},"status":{"phase":"Failed"}}')
    assert not selection.matches("tasks.rota.dev/default/a", failed)


@pytest.mark.parametrize(
    "selector",
    [" " * 30_000 + "=", "," * 32_000, "a" + " " * 32_000 + "b", "a in (" + "," * 30_000, "(" * 32_000, "!" * 32_000],
    ids=range(6),
)
@pytest.mark.parametrize("parse", [parse_labels, lambda text: parse_fields(Task.api, text)], ids=["labels", "fields"])
def test_a_long_selector_takes_no_time(parse: Any, selector: str) -> None:
    began = time.process_time()
    with contextlib.suppress(ApiError):
        parse(selector)
    assert time.process_time() - began < 0.5, "the time must not grow with the square of the length"


def test_selectors_are_bounded() -> None:
    for text in ("a" * 40_000, ",".join(["a"] * 101)):
        with pytest.raises(ApiError):
            parse_labels(text)
    with pytest.raises(ApiError):
        parse_fields(Task.api, ",".join(["metadata.name=a"] * 33))
