"""Holds the source to the rules for names and sentences (tests/words.py), and packages to their contracts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.words import SOURCE, avoided_names, repeated_classes, riddles, sources

BULLETS_MIN = 3
LAYERS = sorted({file.relative_to(SOURCE).parts[0] for file in sources()})
"""The packages and modules directly below the source: a layer that breaks a rule fails alone."""


def has_code(file: Path) -> bool:
    """Report whether a module has anything but its docstring and imports of the future."""
    body = ast.parse(file.read_text()).body
    return any(
        not isinstance(one, ast.Expr) and not (isinstance(one, ast.ImportFrom) and one.module == "__future__")
        for one in body
    )


PACKAGES = [file for file in sources() if file.name == "__init__.py" and file.parent != SOURCE and has_code(file)]


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


@pytest.mark.parametrize("file", PACKAGES, ids=lambda file: str(file.parent.relative_to(SOURCE)))
def test_a_package_with_code_below_its_docstring_promises_something(file: Path) -> None:
    contract = ast.get_docstring(ast.parse(file.read_text())) or ""
    assert len(re.findall(r"^- ", contract, re.MULTILINE)) >= BULLETS_MIN
