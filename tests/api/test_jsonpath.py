"""Kubernetes' dialect of JSONPath."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rota.api.jsonpath import RESULTS_MAX, JSONPathError, Path, Template

OBJECT: dict[str, Any] = {
    "metadata": {"name": "a", "annotations": {"rota.dev/note": "x", "kubernetes.io/y": "z"}},
    "spec": {"replicas": 3, "on": True, "list": [1, 2, 3, 4]},
    "items": [{"name": "one", "n": 1}, {"name": "two", "n": 2, "tags": ["t"]}, {"name": "three", "n": 3}],
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Live", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".metadata.name", ["a"]),
        ("$.metadata.name", ["a"]),
        ("metadata.name", ["a"]),
        ("['metadata']['name']", ["a"]),
        (".metadata.annotations['rota.dev/note']", ["x"]),
        (r".metadata.annotations.kubernetes\.io/y", ["z"]),
        (".spec.list[0]", [1]),
        (".spec.list[-1]", [4]),
        (".spec.list[1:3]", [2, 3]),
        (".spec.list[:2]", [1, 2]),
        (".spec.list[::2]", [1, 3]),
        (".spec.list[0,2]", [1, 3]),
        (".spec.list[*]", [1, 2, 3, 4]),
        (".spec.list[9]", []),
        (".metadata['name','absent']", ["a"]),
        (".items[*].name", ["one", "two", "three"]),
        (".items..n", [1, 2, 3]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type != 'Ready')].status", ["False"]),
        (".items[?(@.n>=2)].name", ["two", "three"]),
        (".items[?(@.n<2)].name", ["one"]),
        (".items[?(@.tags)].name", ["two"]),
        (".items[?(@.tags[0]=='t')].name", ["two"]),
        (".items[?(@.name>1)].name", []),
        (".nothing.at.all", []),
        (".metadata.name.deeper", []),
    ],
)
def test_a_path_leads_to_its_values(path: str, found: list[Any]) -> None:
    assert Path(path).find(OBJECT) == found


@pytest.mark.parametrize(
    "path", [".a[", ".a[]", ".a[1", ".a[?(@.b==)]", ".a[?(@.b 1)]", ".a b", ".a[::0]", ".a['b]", "." + "a" * 5000]
)
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(JSONPathError):
        Path(path)


def test_a_path_yields_a_bounded_number_of_values() -> None:
    wide: Any = [0]
    for _ in range(4):
        wide = [wide] * 20
    with pytest.raises(JSONPathError, match=str(RESULTS_MAX)):
        Path("..*..*..*").find({"a": wide})


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.metadata.name}", "a"),
        (".metadata.name", "a"),
        ("name={.metadata.name}, {.spec.replicas} {.spec.on}", "name=a, 3 true"),
        ("{.items[*].name}", "one two three"),
        ('{range .items[*]}{.name}{"\\t"}{.n}{"\\n"}{end}', "one\t1\ntwo\t2\nthree\t3\n"),
        ("{.spec.list}", "[1,2,3,4]"),
        ("{range .items[*]}{$.metadata.name}{end}", "aaa"),
        ("{.absent}", ""),
        ("{range .items[1:]}[{range .tags[*]}{@}{end}]{end}", "[t][]"),
    ],
)
def test_a_template_is_text_with_paths(template: str, text: str) -> None:
    assert Template(template).render(OBJECT) == text


@pytest.mark.parametrize(
    ("template", "why"),
    [("{.a", "not closed"), ("{range .a}", "without {end}"), ("{end}", "without {range}"), ("{.a[}", "not closed")],
)
def test_a_template_that_cannot_be_read_says_why(template: str, why: str) -> None:
    with pytest.raises(JSONPathError, match=re.escape(why)):
        Template(template)
