"""Manifests: every problem at its place, all at once."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.api import KINDS
from rota.client import Client
from rota.manifest import ManifestError, dumps, load, loads
from rota.manifest.load import FILE_BYTES_MAX
from rota.manifest.yaml_text import DEPTH_MAX, DOCUMENTS_MAX, NODES_MAX, parse
from rota.registry import Registry
from rota.store import MemoryStore
from tests.amount import amount
from tests.examples import examples

POOL = """\
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata:
  name: agents
spec:
  worker: {type: shell}
"""


def config(text: str) -> str:
    """A ConfigMap whose data is this."""
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\n{text}"


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(ManifestError) as refused:
        loads(text, "f.yaml")
    return [str(problem) for problem in refused.value.problems]


def value(text: str) -> Any:
    (node,), found = parse(text, "f.yaml")
    assert found == []
    return node.plain()


def no_stdin() -> bytes:
    raise AssertionError("standard input was not asked for")


# What loads.


def test_an_object_is_loaded_as_it_was_written() -> None:
    (manifest,) = loads(POOL, "f.yaml")
    assert manifest.object["spec"] == {"worker": {"type": "shell"}}, "defaults are the server's to fill in"
    assert (manifest.kind.name, manifest.name, manifest.namespace) == ("WorkerPool", "agents", None)
    assert manifest.line_number == 1


def test_several_documents_and_lists_are_several_objects() -> None:
    listed = (
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n"
        "- {apiVersion: v1, kind: Namespace, metadata: {name: b}}\n"
    )
    text = f"---\n{POOL}---\n# nothing\n---\n{listed}"
    assert [manifest.name for manifest in loads(text, "f.yaml")] == ["agents", "a", "b"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_a_server_accepts_loads(kind: str) -> None:
    for obj in examples(kind):
        (manifest,) = loads(msgspec.json.encode(obj), "f.json")
        assert manifest.object == obj


def test_a_folder_is_read_with_all_below_it_in_order(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("b/two.yml", "one.yaml", ".hidden/three.yaml", "b/.four.yaml"):
        (tmp_path / name).write_text(POOL.replace("agents", Path(name).stem.strip(".")))
    (tmp_path / "notes.txt").write_text("not: a manifest")
    assert [manifest.name for manifest in load([str(tmp_path)], read_stdin=no_stdin)] == ["one", "two"]


def test_standard_input_is_read_for_a_dash() -> None:
    (manifest,) = load(["-"], read_stdin=POOL.encode)
    assert (manifest.name, manifest.source) == ("agents", "stdin")


# How texts are read.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("off", "off"),
        ("n", "n"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("12", 12),
        ("-3", -3),
        ("0o644", 420),
        ("0x1F", 31),
        ("1e3", 1000.0),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("!!float 12", 12),
        ("1.2.3", "1.2.3"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_a_plain_text_is_what_yaml_1_2_says(text: str, expected: Any) -> None:
    read = value(f"x: {text}")["x"]
    assert read == expected and type(read) is type(expected)


def test_numbers_are_texts_where_they_are_keys() -> None:
    assert value("{1: a, true: b, on: c}") == {"1": "a", "true": "b", "on": "c"}


def test_anchors_and_merges_are_expanded() -> None:
    text = "base: &b {x: 1, y: 2}\none: {<<: *b, y: 3}\ntwo: {<<: [{x: 9}, *b]}\nthree: *b\n"
    read = value(text)
    assert read["one"] == {"x": 1, "y": 3}
    assert read["two"] == {"x": 9, "y": 2}
    assert read["three"] == {"x": 1, "y": 2}


def test_an_anchor_counts_in_its_own_document_only() -> None:
    _, found = parse("a: &x 1\n---\nb: *x\n", "f.yaml")
    assert [str(problem) for problem in found] == ["f.yaml:3:4: no anchor &x before this alias"]


# What is refused.


def test_all_problems_are_reported_at_once_each_at_its_place() -> None:
    text = """\
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata:
  name: Agents
  nmae: x
spec:
  replcas: 3
  replicas: many
  reset: Sometimes
  worker:
    env:
    - name: A
      valeu: b
    - value: c
---
apiVersion: rota.dev/v1alpha1
kind: Task
metadata: {name: t}
spec: {prompt: hi, command: [a], workerPoolRef: {name: p}}
"""
    found = problems(text)
    assert found[0].startswith('f.yaml:4:9: metadata.name: Invalid value: "Agents"')
    assert found[1:4] == [
        "f.yaml:5:3: metadata.nmae: unknown field; did you mean name?",
        "f.yaml:7:3: spec.replcas: unknown field; did you mean replicas?",
        'f.yaml:8:13: spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"',
    ]
    assert found[4].startswith('f.yaml:9:10: spec.reset: Unsupported value: "Sometimes": supported values: ')
    assert found[5:] == [
        "f.yaml:13:7: spec.worker.env[0].valeu: unknown field; did you mean value?",
        "f.yaml:14:7: spec.worker.env[1].name: Required value",
        "f.yaml:19:7: spec: Invalid value: exactly one of function, command, prompt must be set",
    ]


def test_the_problems_of_all_files_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    (tmp_path / "b.yaml").write_text(POOL.replace("WorkerPool", "Pool"))
    with pytest.raises(ManifestError) as refused:
        load([str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"), str(tmp_path / "c.yaml")], read_stdin=no_stdin)
    sources = [Path(problem.source).name for problem in refused.value.problems]
    assert sources == ["a.yaml", "b.yaml", "c.yaml"]
    assert str(refused.value).endswith("c.yaml: no such file or directory")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Task\nmetadata: {name: a}", "f.yaml:1:1: apiVersion: required"),
        ("apiVersion: v1\nmetadata: {name: a}", "f.yaml:1:1: kind: required"),
        ("apiVersion: v1\nkind: [a]", "f.yaml:1:1: kind: required"),
        ("- a", "f.yaml:1:1: an object with apiVersion, kind and metadata is expected here"),
        (
            "apiVersion: v1\nkind: Workerpol",
            'f.yaml:2:7: kind: no kind "Workerpol"; did you mean WorkerPool?',
        ),
        (
            "apiVersion: rota.dev/v2\nkind: Task",
            "f.yaml:1:13: apiVersion: Task is of rota.dev/v1alpha1, not rota.dev/v2",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap",
            "f.yaml:1:1: metadata.name: Required value: name or generateName is required",
        ),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: 3", "f.yaml:3:11: metadata: Invalid value: 3: must be an object"),
        (
            config("data:\n  a.b/c: 1\n"),
            'f.yaml:5:10: data.a.b/c: Invalid value: "integer": data.a.b/c in body must be of type string: "integer"',
        ),
        (config("data: {a: 1, a: 2}"), 'f.yaml:4:14: the key "a" is already on line 4'),
        (config("data: {a: 0644}"), 'f.yaml:4:11: 0644 could be octal or decimal: write "0644" for a text, '),
        (config("data: {a: .inf}"), "f.yaml:4:11: .inf cannot be written as JSON"),
        (config("data: {a: !env HOME}"), "f.yaml:4:11: the tag !env is not supported"),
        (config("data: {a: !!int b}"), 'f.yaml:4:11: "b" is no int'),
        (config("data: {? [a] : b}"), "f.yaml:4:10: a key must be a text"),
        (config("data: {~: b}"), "f.yaml:4:8: a key cannot be empty"),
        (config("data: {<<: b}"), "f.yaml:4:8: << takes a map, or a list of maps"),
        (config("data: &d {a: *d}"), "f.yaml:4:14: &d contains itself"),
        (config("data: *d"), "f.yaml:4:7: no anchor &d before this alias"),
        (config("data: {a: b: c}"), "f.yaml:4:12: "),
        (config("data: {a: '\x07'}"), "f.yaml:4:12: control characters are not allowed"),
    ],
)
def test_a_problem_is_told_with_its_place(text: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems(text)), problems(text)


def test_a_label_that_is_a_number_says_how_to_write_it() -> None:
    text = POOL.replace("  name: agents", "  name: agents\n  labels: {rota.dev/v: 1.0}")
    assert problems(text) == [
        "f.yaml:5:24: metadata.labels[rota.dev/v]: Invalid value: Expected str, got float; put it in quotes"
    ]


def test_a_name_in_upper_case_says_how_to_write_it() -> None:
    text = (
        "apiVersion: rota.dev/v1alpha1\nkind: Location\nmetadata: {name: dfw}\nspec: {cityCode: DFW}\n---\n"
        "apiVersion: rota.dev/v1alpha1\nkind: Location\nmetadata: {name: ber}\nspec: {cityCode: 'B/R'}\n"
    )
    found = problems(text)
    assert len(found) == 2
    assert found[0].endswith('; write it in lower case: "dfw"') and "lower case" not in found[1]


def test_a_text_that_is_not_utf_8_is_refused_where_it_is_not() -> None:
    assert problems(b"a: b\nc: \xff") == ["f.yaml:2:4: it is not UTF-8; save the file as UTF-8"]


def test_problems_in_a_list_name_the_item() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: A}}\n"
    assert problems(text)[0].startswith('f.yaml:4:54: items[0].metadata.name: Invalid value: "A"')


def test_an_object_that_is_declared_twice_is_refused() -> None:
    assert problems(f"{POOL}---\n{POOL}") == [
        'f.yaml:8:1: metadata.name: WorkerPool "agents" is also at f.yaml:1',
    ]


def test_a_folder_without_manifests_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no objects in it; files that end in"):
        load([str(tmp_path)], read_stdin=no_stdin)


YAML = st.text("abc:-[]{}#&*!|>'\"%@`,?~<\n\t 019.\\ée\x00", max_size=60)


@given(YAML | st.binary(max_size=40))
@example("? - a\n: b")
@example("a: !!map [x]")
@example("&a [*a, *b]")
@example("<<: *x")
@example("\ufeffa: 1")
@example(b"\xff\xfea\x00")
def test_whatever_is_read_there_are_objects_or_problems(text: str | bytes) -> None:
    with contextlib.suppress(ManifestError):
        loads(text, "f.yaml")


SPOILT: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 3, 1.5, "", "text", [], [None], {}, {"a": {"b": []}}, 2**70]
)


def spoilt(kind: str, data: st.DataObject) -> Any:
    """An example of a kind, with another value in one of its fields."""
    obj = data.draw(st.sampled_from(examples(kind)))
    here: Any = obj
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        step = data.draw(st.sampled_from(keys))
        if not isinstance(here[step], dict | list) or not here[step] or data.draw(st.booleans()):
            here[step] = data.draw(SPOILT)
            return obj
        here = here[step]


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(data=st.data())
def test_whatever_stands_in_a_field_is_an_object_or_a_problem(kind: str, data: st.DataObject) -> None:
    with contextlib.suppress(ManifestError):
        loads(dumps(spoilt(kind, data)), "f.yaml")


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=amount(20, 1_000), deadline=None)
@given(data=st.data())
def test_what_loads_has_no_field_that_a_server_refuses(kind: str, data: st.DataObject) -> None:
    try:
        (manifest,) = loads(dumps(spoilt(kind, data)), "f.yaml")
    except ManifestError:
        return

    async def create() -> None:
        registry = Registry(MemoryStore())
        await registry.start()
        try:
            # Its namespace need not exist on a server.
            meta = {name: value for name, value in manifest.object["metadata"].items() if name != "namespace"}
            await Client.local(registry).apply({**manifest.object, "metadata": meta}, dry_run=True)
        finally:
            await registry.stop()

    asyncio.run(create())


# Bounds.


def test_depth_is_bounded() -> None:
    assert problems("[" * 1_000_000) == [f"f.yaml:1:{DEPTH_MAX + 2}: nested more than {DEPTH_MAX} levels deep"]


def test_what_aliases_expand_to_is_bounded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert f"more than {NODES_MAX} values, aliases expanded" in problems("\n".join(lines))[0]


def test_the_number_of_documents_is_bounded() -> None:
    assert f"more than {DOCUMENTS_MAX} documents" in problems("---\n" * (DOCUMENTS_MAX + 1))[0]


def test_the_size_of_a_file_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(ManifestError, match=f"larger than {FILE_BYTES_MAX} bytes"):
        load([str(file)], read_stdin=no_stdin)
