"""The how-to runs as it is written."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from rota.testing import AsyncProject, Project

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "testing.md").read_text()
FILES: dict[str, str] = dict(re.findall(r"```(?:yaml|python)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
TESTS: dict[str, Any] = {}
exec(compile(FILES["test_project.py"], "test_project.py", "exec"), TESTS)


@pytest.mark.parametrize("name", [name for name in TESTS if name.startswith("test_")])
def test_the_tests_of_the_page_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for file, text in FILES.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    fixture = inspect.unwrap(TESTS["project"])
    made = getattr(fixture, "__wrapped__", fixture)(monkeypatch)
    TESTS[name](next(made))
    assert next(made, None) is None


def test_both_forms_have_the_same_names_and_all_are_on_the_page() -> None:
    def named(form: type[Any]) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(one).parameters) if callable(one) else []
            for name, one in vars(form).items()
            if not name.startswith("_") and name not in ("opened", "close")
        }

    assert named(Project) == named(AsyncProject)
    for name in named(Project):
        assert re.search(rf"`(project\.)?{name}\b", PAGE), name
