"""The text of a project file: what YAML makes of it, and what of the environment is put in where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.manifest import ManifestError
from rota.manifest.load import FILE_BYTES_MAX
from rota.manifest.project import Project, load_project, loads_project

PAYLOAD = (
    "name: shop\nfunctions:\n  - name: f\n    schedules:\n      - name: s\n        cron: '@daily'\n        payload:\n"
)
POOL = "name: shop\npools:\n  - name: p\n    worker: {}\n    replicas: "

BILLION = "[&a0 [x, x], " + "".join(f"&a{n + 1} [{', '.join([f'*a{n}'] * 20)}], " for n in range(6)) + "]"
"""A small text that would become a large object."""


def project(text: str | bytes, **environment: str) -> Project:
    return loads_project(text, "rota.yaml", Path(), environment)


def problem(text: str | bytes, **environment: str) -> str:
    with pytest.raises(ManifestError) as refused:
        project(text, **environment)
    (found,) = refused.value.problems
    return str(found)


def payload(text: str, **environment: str) -> Any:
    (schedule,) = project(text, **environment).manifests
    return schedule.object["spec"]["payload"]


def replicas(text: str, **environment: str) -> Any:
    (pool,) = project(text, **environment).manifests
    return pool.object["spec"]["replicas"]


# What YAML makes of it.


def test_a_tab_is_told_as_one() -> None:
    assert problem("name: shop\npools:\n\t- name: p\n") == "rota.yaml:3:1: a tab: YAML is indented with spaces"


def test_what_is_not_utf_8_is_told_with_its_place() -> None:
    text = "name: shop\nagents:\n  - name: a\n    instructions: café\n".encode("latin-1")
    assert problem(text) == "rota.yaml:4:22: it is not UTF-8; save the file as UTF-8"


def test_a_key_that_is_there_twice_is_told_with_both_lines() -> None:
    assert problem("name: shop\npools: []\nname: shop\n") == 'rota.yaml:3:1: the key "name" is already on line 1'


def test_a_byte_order_mark_and_lines_of_other_systems_do_not_matter() -> None:
    text = b"\xef\xbb\xbf" + (POOL + "${N}\n").replace("\n", "\r\n").encode()
    (pool,) = project(text, N="3").manifests
    assert pool.object["spec"]["replicas"] == 3
    assert project("name: shop\n".encode("utf-16")).name == "shop"


def test_anchors_and_merges_are_as_if_it_were_written_out() -> None:
    text = "name: shop\npools:\n  - &base\n    name: p\n    worker: {type: python}\n    replicas: 2\n"
    text += "  - <<: *base\n    name: q\n    replicas: 3\n"
    assert [(one.name, one.object["spec"]) for one in project(text).manifests] == [
        ("p", {"worker": {"type": "python"}, "replicas": 2}),
        ("q", {"worker": {"type": "python"}, "replicas": 3}),
    ]


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        ("[" * 200 + "]" * 200, "nested more than 100 levels deep"),
        ("&a [*a]", "&a contains itself"),
        (BILLION, "more than 500000 values, aliases expanded"),
    ],
)
def test_what_would_have_no_end_is_refused(inside: str, why: str) -> None:
    assert why in problem(f"name: shop\npools: {inside}\n")


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "rota.yaml").write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(ManifestError, match=f"rota.yaml: larger than {FILE_BYTES_MAX} bytes"):
        load_project(str(tmp_path), {})


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "rota.yaml").mkdir()
    with pytest.raises(ManifestError, match=r"rota.yaml: is a directory"):
        load_project(str(tmp_path), {})


# The environment.


def test_values_are_put_into_lists_and_lists_of_lists_and_numbers_are_numbers_there() -> None:
    text = (
        PAYLOAD
        + "          - ${N}\n          - - ${N}\n            - 'n: ${N}'\n            - $$N\n            - ${YES}\n"
    )
    assert payload(text.replace("payload:\n", "payload:\n         a:\n"), N="3", YES="true") == {
        "a": [3, [3, "n: 3", "$N", True]]
    }


def test_every_place_of_a_variable_that_is_not_set_is_told() -> None:
    text = "name: shop\nfunctions:\n  - name: f\n    requirements:\n      - ${A}\n      - b\n      - ${A}${B}\n"
    with pytest.raises(ManifestError) as refused:
        project(text)
    assert [(one.line_number, one.column, one.path) for one in refused.value.problems] == [
        (5, 9, "functions[0].requirements[0]"),
        (7, 9, "functions[0].requirements[2]"),
        (7, 9, "functions[0].requirements[2]"),
    ]


def test_a_number_may_have_an_anchor() -> None:
    assert replicas(POOL + "&n ${N}\n", N="3") == 3


@pytest.mark.parametrize("odd", ["\x85", "\u2028", "🎉"])
def test_in_quotes_it_is_a_text_whatever_stands_before_it(odd: str) -> None:
    text = f"# {odd} {odd}\n" + PAYLOAD + "          a: &x '${N}'\n          b: *x\n          c: ${N}\n"
    assert payload(text, N="3") == {"a": "3", "b": "3", "c": 3}


@pytest.mark.parametrize("value", ["two", "", "null", " 3", "3\n", "007", "[3]"])
def test_what_is_no_number_is_refused_where_one_is_wanted(value: str) -> None:
    assert problem(POOL + "${N}\n", N=value).startswith("rota.yaml:5:15: pools[0].replicas: Invalid value")


def test_a_variable_that_is_no_text_is_told() -> None:
    text = "name: shop\nagents:\n  - name: a\n    instructions: ${N}\n"
    assert problem(text, N="a\udcff") == (
        "rota.yaml:4:19: agents[0].instructions: the environment variable N holds bytes that are not UTF-8"
    )


@pytest.mark.parametrize("entry", ["{name: p, replicas: ${N}}", "{name: p, worker: {env: [${N}]}}"])
def test_within_braces_it_is_told_to_need_quotes(entry: str) -> None:
    assert "within { } and [ ] put ${NAME} in quotes" in problem(f"name: shop\npools:\n  - {entry}\n", N="3")


def test_what_the_environment_adds_is_bounded() -> None:
    text = "name: shop\nagents:\n" + "".join(f"  - name: a{n}\n    instructions: ${{N}}\n" for n in range(9))
    assert f"more than {FILE_BYTES_MAX} bytes" in problem(text, N="x" * (FILE_BYTES_MAX // 8 - 1))
