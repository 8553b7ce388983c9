"""The modules that kinds may import: a rule is decided by its object alone, on every machine alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota.api

FILES = sorted(Path(rota.api.__file__).parent.rglob("*.py"))
OUTSIDE = {
    "asyncio",
    "io",
    "os",
    "random",
    "secrets",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_kinds_import_no_other_layer_and_nothing_of_the_machine(file: Path) -> None:
    names = set(imported(file))
    assert not {name for name in names if name.startswith("rota") and not name.startswith("rota.api")}
    assert not OUTSIDE.intersection(name.partition(".")[0] for name in names)
