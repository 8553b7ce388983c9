"""`rota dev`, as somebody sees it who writes a project."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.cli.dev_folder import Folder
from tests.local.place import Place

PROJECT = """\
name: demo
pools:
  - name: crew
    replicas: 1
    worker:
      type: shell
      isolation: none
"""
FUNCTION = """\
name: demo
functions:
  - name: hello
    entrypoint: main:handler
    path: hello
    public: true
"""
HANDLER = """\
def handler(event, context):
    print("called for one")
    return "one"
"""
INTERRUPTED = 130
CALL_SECONDS_MAX = 30


class Dev:
    """The command, running; what it says is read line by line."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.file = place.folder / "rota.yaml"
        self.file.write_text(PROJECT)
        self.process: subprocess.Popen[str] = place.begin("dev", "--port", "0")

    def until(self, text: str) -> list[str]:
        """The lines up to one that has this in it."""
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if text in line:
                return said
        raise AssertionError(f"{text!r} was not said: {said}")

    def call(self, function: str) -> object:
        state = self.place.found().state
        assert state is not None
        with urllib.request.urlopen(f"{state.edge}/default/{function}/", timeout=CALL_SECONDS_MAX) as answer:
            return json.load(answer)

    def save(self, text: str) -> None:
        """As editors do: another file takes the place of the old one."""
        new = self.file.with_name("rota.yaml.new")
        new.write_text(text)
        new.replace(self.file)


@pytest.fixture
def dev(place: Place) -> Iterator[Dev]:
    made = Dev(place)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate(timeout=60)


def test_a_save_is_deployed(dev: Dev) -> None:
    dev.until("WorkerPool/crew created")
    dev.until("watching")
    dev.save(PROJECT.replace("replicas: 1", "replicas: 2"))
    dev.until("WorkerPool/crew updated")
    dev.until("watching")
    assert dev.place.says("get", "wp", "crew", "-o", "jsonpath={.spec.replicas}") == "2\n"


def test_the_code_of_a_function_is_deployed_when_it_is_saved(dev: Dev) -> None:
    dev.until("watching")
    code = dev.place.folder / "hello" / "main.py"
    code.parent.mkdir()
    code.write_text(HANDLER)
    dev.save(FUNCTION)
    dev.until("Function/hello created")
    dev.until("watching")
    assert dev.call("hello") == "one"
    dev.until("called for one")
    code.write_text(HANDLER.replace("one", "two"))
    dev.until("Function/hello updated")
    dev.until("watching")
    # The version before answers until the new one can.
    deadline = time.monotonic() + CALL_SECONDS_MAX
    while dev.call("hello") != "two":
        assert time.monotonic() < deadline


def test_code_that_cannot_be_loaded_is_told_when_it_is_saved(dev: Dev) -> None:
    dev.until("watching")
    code = dev.place.folder / "hello" / "main.py"
    code.parent.mkdir()
    code.write_text("def handler(event, context)\n    return 1\n")
    dev.save(FUNCTION)
    told = dev.until("error: Function/hello cannot be loaded")[-1]
    assert "SyntaxError: expected ':' (hello/main.py:1)" in told
    code.write_text(HANDLER)
    dev.until("Function/hello updated")
    dev.until("watching")
    # What was wrong with the version before is not told of this one.
    assert dev.call("hello") == "one"


def test_a_broken_file_is_told_and_lived_through(dev: Dev) -> None:
    dev.until("watching")
    dev.save(PROJECT.replace("replicas: 1", "replicas: many"))
    assert "rota.yaml:4" in dev.until("error:")[-1]
    dev.until("watching")
    dev.save(PROJECT.replace("replicas: 1", "replicas: 2"))
    dev.until("WorkerPool/crew updated")


def test_what_its_tasks_write_is_shown_with_their_names(dev: Dev) -> None:
    dev.until("watching")
    dev.place.says("run", "--pool", "crew", "--name", "errand", "--", "sh", "-c", "echo one; echo two")
    (first,) = [line for line in dev.until("one") if line.startswith("errand")]
    assert first.split() == ["errand", "one"]
    assert dev.until("two")[-1].split() == ["errand", "two"]


def test_a_server_is_started_if_none_runs_and_outlives_ctrl_c(dev: Dev) -> None:
    dev.until("no server ran here; one was started")
    dev.until("watching")
    dev.process.send_signal(signal.SIGINT)
    out, _ = dev.process.communicate(timeout=20)
    assert dev.process.returncode == INTERRUPTED and "the server goes on" in out
    assert dev.place.rota("status").returncode == 0


def test_a_restart_of_the_server_is_waited_out(dev: Dev) -> None:
    dev.until("watching")
    dev.place.says("restart")
    dev.save(PROJECT.replace("replicas: 1", "replicas: 2"))
    dev.until("WorkerPool/crew updated")
    dev.place.says("run", "--pool", "crew", "--name", "errand", "--", "echo", "after")
    dev.until("after")


def test_what_was_over_before_is_not_shown_after_a_restart_either(dev: Dev) -> None:
    dev.until("watching")
    dev.place.says("run", "--pool", "crew", "--name", "errand", "--follow", "--", "echo", "long past")
    later = Dev(dev.place)
    try:
        later.until("watching")
        dev.place.says("restart")
        dev.place.says("run", "--pool", "crew", "--name", "another", "--", "echo", "after")
        assert [line for line in later.until("after") if "long past" in line] == []
    finally:
        later.process.kill()
        later.process.communicate(timeout=60)


def test_where_there_is_no_project_nothing_is_started(place: Place) -> None:
    refused = place.rota("dev", "--port", "0")
    assert refused.returncode == 1 and "rota.yaml; `rota init` writes one" in refused.stderr
    assert place.found().condition == "stopped"


def test_the_image_that_the_projects_own_file_names_is_meant(place: Place) -> None:
    shop = place.folder / "shop"
    shop.mkdir()
    (shop / "rota.yaml").write_text(PROJECT)
    (shop / ".env.local").write_text("ROTA_IMAGE='no image'\n")
    refused = place.rota("dev", "-f", "shop", "--port", "0")
    assert refused.returncode == 1 and "is not the name of an image" in refused.stderr, refused.stderr
    assert place.found().condition == "stopped"


# What counts as a save.


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (lambda top: (top / "code" / "main.py").write_text("changed = True\n"), True),
        (lambda top: (top / "code" / "new.py").write_text(""), True),
        (lambda top: (top / "code" / "main.py").unlink(), True),
        (lambda top: (top / "rota.yaml").write_text("name: other\n"), True),
        (lambda top: (top / "code" / "__pycache__" / "main.pyc").write_text("x"), False),
        (lambda top: (top / ".git" / "index").write_text("x"), False),
        (lambda top: (top / "home" / "server.log").write_text("x"), False),
    ],
)
async def test_what_is_packed_counts_and_nothing_else(
    tmp_path: Path, change: Callable[[Path], object], counts: bool
) -> None:
    for name in ("code/main.py", "code/__pycache__/main.pyc", ".git/index", "home/server.log", "rota.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    folder = Folder(tmp_path / "rota.yaml", leaving_out=tmp_path / "home")
    await folder.look()
    change(tmp_path)
    assert await folder.saved(1.0) == counts
