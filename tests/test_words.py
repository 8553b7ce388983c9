"""Holds the source to the rules for names and sentences (tests/words.py), and packages to their contracts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.promises import TESTS_OF_PROMISES
from tests.words import SOURCE, TESTS, avoided_names, repeated_classes, riddles, sources

PROMISES_MIN = 3
LAYERS = sorted({file.relative_to(SOURCE).parts[0] for file in sources()})
"""The packages and modules directly below the source: a layer that breaks a rule fails alone."""


PACKAGES = [file for file in sources() if file.name == "__init__.py" and file.parent != SOURCE]
PROMISE = re.compile(r"^- (.*(?:\n  .*)*)", re.MULTILINE)


def files(layer: str) -> list[Path]:
    path = SOURCE / layer
    return sources(path) if path.is_dir() else [path]


@pytest.mark.parametrize("layer", LAYERS)
def test_no_name_has_an_avoided_word(layer: str) -> None:
    assert not list(avoided_names(files(layer)))


@pytest.mark.parametrize("layer", LAYERS)
def test_no_two_classes_of_a_layer_have_the_same_name(layer: str) -> None:
    assert not list(repeated_classes(files(layer)))


@pytest.mark.parametrize("layer", LAYERS)
def test_no_docstring_opens_with_a_question_word(layer: str) -> None:
    assert not list(riddles(files(layer)))


def test_no_docstring_of_a_test_opens_with_a_question_word() -> None:
    assert not list(riddles(sources(TESTS)))


def promises(package: Path) -> list[str]:
    """Return the points of the list that the docstring of a package opens with."""
    contract = ast.get_docstring(ast.parse(package.read_text())) or ""
    _, opening, after = contract.partition("\n- ")
    return [" ".join(one.split()) for one in PROMISE.findall(opening.strip("\n") + after.partition("\n\n")[0])]


def name(package: Path) -> str:
    return package.parent.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("package", PACKAGES, ids=name)
def test_every_package_opens_with_what_it_promises_and_each_promise_has_a_test(package: Path) -> None:
    found, held = promises(package), list(TESTS_OF_PROMISES[name(package)])
    assert len(found) >= PROMISES_MIN
    assert len(found) == len(held)
    assert [(one, first) for one, first in zip(found, held, strict=True) if not one.startswith(first)] == []


def test_no_package_is_named_that_is_not_there() -> None:
    assert TESTS_OF_PROMISES.keys() == {name(package) for package in PACKAGES}


@pytest.mark.parametrize(
    "named", sorted({one for each in TESTS_OF_PROMISES.values() for tests in each.values() for one in tests})
)
def test_every_test_of_a_promise_is_there(named: str) -> None:
    path, _, function = named.partition("::")
    tree = ast.parse((SOURCE.parent.parent / path).read_text())
    functions = {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert not function or function in functions
