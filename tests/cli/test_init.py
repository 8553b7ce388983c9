"""`rota init`: a starter project that is a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.cli.init import contents, project_name
from rota.manifest.project import loads_project
from tests.cli.conftest import Terminal


def test_the_starter_project_deploys_as_it_is(rota: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "My Demo"
    ran = rota("init", str(folder))
    assert ran.code == 0 and "rota deploy -f" in ran.err
    assert "name: my-demo" in (folder / "rota.yaml").read_text()
    done = rota("deploy", "-f", str(folder))
    assert done.code == 0, done.err
    assert "Schedule/greet created" in done.out and "WorkerPool/workers created" in done.out


def test_files_that_are_there_are_not_replaced(rota: Terminal, tmp_path: Path) -> None:
    (tmp_path / "rota.schema.json").write_text("mine")
    ran = rota("init", str(tmp_path))
    assert ran.code == 1 and "rota.schema.json is there already; nothing was written" in ran.err
    assert not (tmp_path / "rota.yaml").exists()


@pytest.mark.parametrize("with_function", [True, False])
def test_the_starter_project_is_one_with_and_without_a_function(tmp_path: Path, with_function: bool) -> None:
    for name, text in contents("demo", with_function=with_function).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    project = loads_project((tmp_path / "rota.yaml").read_text(), "rota.yaml", tmp_path, {})
    names = [manifest.name for manifest in project.manifests]
    assert names == (["workers", "hello", "hello.every-minute", "greet"] if with_function else ["workers", "greet"])


def test_the_starter_function_answers(tmp_path: Path) -> None:
    scope: dict[str, object] = {}
    exec(contents("demo", with_function=True)["hello/main.py"], scope)
    handler = scope["handler"]
    assert callable(handler)
    assert handler({"query": {"name": "Ada"}}, None) == {"message": "Hello, Ada!"}
    assert handler({"payload": {}}, None) == {"message": "Hello, world!"}


@pytest.mark.parametrize(("folder", "name"), [("Demo_1", "demo-1"), ("...", "project"), ("a" * 80, "a" * 63)])
def test_the_project_is_named_after_its_folder(tmp_path: Path, folder: str, name: str) -> None:
    assert project_name(tmp_path / folder) == name
