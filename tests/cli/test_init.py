"""`rota init`: a starter project that is a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.cli import main
from rota.cli.init import contents, project_name
from rota.manifest.project import loads_project
from tests.cli.conftest import Terminal
from tests.server.live import Live

MADE = ("Function/hello", "Schedule/hello.every-minute", "Schedule/greet", "WorkerPool/workers")
KINDS = 3


def test_the_starter_project_deploys_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Live(tmp_path / "home", "--no-controllers")
    try:
        folder = tmp_path / "demo"
        assert main(["init", str(folder)]) == 0
        said = []
        for _ in range(2):
            capsys.readouterr()
            assert main(["deploy", "-f", str(folder), "--no-wait", "--home", str(server.home)]) == 0
            said.append(capsys.readouterr().out)
        assert all(f"+ {one} created" in said[0] for one in MADE)
        assert said[1].count(": 0 created, 0 updated, ") == len(said[1].splitlines()) == KINDS
    finally:
        server.end()


def test_it_says_what_to_type_next(rota: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "My Demo"
    ran = rota("init", str(folder))
    assert ran.code == 0 and "name: my-demo" in (folder / "rota.yaml").read_text()
    assert f"next: `rota start`, then `rota deploy -f '{folder}'`" in ran.err


def test_files_that_are_there_are_not_replaced(rota: Terminal, tmp_path: Path) -> None:
    (tmp_path / "rota.schema.json").write_text("mine")
    ran = rota("init", str(tmp_path))
    assert ran.code == 1 and "rota.schema.json is there already; nothing was written" in ran.err
    assert not (tmp_path / "rota.yaml").exists()


def test_the_starter_project_has_a_function_schedules_and_a_pool(tmp_path: Path) -> None:
    for name, text in contents("demo").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    project = loads_project((tmp_path / "rota.yaml").read_text(), "rota.yaml", tmp_path, {})
    assert [manifest.name for manifest in project.manifests] == ["workers", "hello", "hello.every-minute", "greet"]


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ({"method": "GET", "query": {"name": "Ada"}}, "Ada"),
        ({"method": "GET", "query": {}}, "world"),
        ({"name": "clock", "schedule": {"name": "hello.every-minute"}}, "clock"),
        ({}, "world"),
    ],
)
def test_the_starter_function_answers_requests_and_schedules(event: dict[str, object], name: str) -> None:
    scope: dict[str, object] = {}
    exec(contents("demo")["hello/main.py"], scope)
    handler = scope["handler"]
    assert callable(handler) and handler(event, None) == {"message": f"Hello, {name}!"}


@pytest.mark.parametrize(("folder", "name"), [("Demo_1", "demo-1"), ("...", "project"), ("a" * 80, "a" * 63)])
def test_the_project_is_named_after_its_folder(tmp_path: Path, folder: str, name: str) -> None:
    assert project_name(tmp_path / folder) == name
