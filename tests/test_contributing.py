"""The recipes of CONTRIBUTING.md work as written: they are applied to a copy of the sources, and tested there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
COPIED = ("src", "tests", "pyproject.toml")


class Recipe(NamedTuple):
    """One recipe: the files that it adds, and the changes that it makes to others."""

    files: dict[str, str]
    changes: dict[str, list[str]]
    """Each change is a piece of a diff without line numbers."""

    @property
    def tests(self) -> list[str]:
        return [path for path in self.files if path.startswith("tests/")]


def recipes() -> dict[str, Recipe]:
    """Return the recipes by the headings that they stand below."""
    found = {}
    for section in PAGE.split("\n### ")[1:]:
        heading, _, text = section.partition("\n")
        files, changes = {}, {}
        for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            first, _, rest = block.partition("\n")
            if language == "python":
                files[first.removeprefix("# ")] = rest
            elif language == "diff":
                changes[first.removeprefix("--- ")] = rest.split("@@\n")
        found[heading] = Recipe(files, changes)
    return found


def changed(text: str, piece: str) -> str:
    """Apply a piece of a diff at the one place where its old lines stand."""
    lines = [(line[:1], line[1:] + "\n") for line in piece.splitlines()]
    old = "".join(line for sign, line in lines if sign != "+")
    new = "".join(line for sign, line in lines if sign != "-")
    assert text.count(old) == 1, f"these lines stand at {text.count(old)} places:\n{old}"
    return text.replace(old, new)


RECIPES = recipes()


def test_there_is_a_recipe_for_a_field_a_controller_and_a_command() -> None:
    assert [*RECIPES] == ["Add a field to a kind", "Add a controller", "Add a command"]
    assert all(recipe.tests and recipe.changes for recipe in RECIPES.values())


def test_the_recipes_work_as_written(tmp_path: Path) -> None:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path)
    for recipe in RECIPES.values():
        apply(recipe, tmp_path)
    written = [path for recipe in RECIPES.values() for path in (*recipe.files, *recipe.changes)]
    run(tmp_path, "ruff", "check", "--no-cache", *written)
    run(tmp_path, "ruff", "format", "--check", "--no-cache", *written)
    tests = [path for recipe in RECIPES.values() for path in recipe.tests]
    assert " passed" in run(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 't'}", *tests)


def apply(recipe: Recipe, root: Path) -> None:
    for path, text in recipe.files.items():
        assert not (ROOT / path).exists(), f"{path} is there already: the recipe has to use another name"
        (root / path).write_text(text)
    for path, pieces in recipe.changes.items():
        text = (root / path).read_text()
        for piece in pieces:
            text = changed(text, piece)
        (root / path).write_text(text)


def run(root: Path, *words: str) -> str:
    """Run a module of Python in the copy, on its sources. Fails with what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
